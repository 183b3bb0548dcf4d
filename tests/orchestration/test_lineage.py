"""What a catalog of lineage is told of a run, by OpenLineage's own library, over HTTP."""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

import dagster as dg
import dagster_openlineage.sensor
import pytest
from dagster_openlineage.adapter import OpenLineageAdapter

from orchestration.definitions import _lineage
from orchestration.metadata.columns import TABLES
from tests.support.dagster_project import FIRST, Project, failures

pytestmark = [
    pytest.mark.dagster,
    pytest.mark.spark,
    # dagster-openlineage (0.2) calls what Dagster has deprecated, as it runs on older releases too.
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def point_to(port: int, monkeypatch: pytest.MonkeyPatch, login: str = "") -> None:
    monkeypatch.setenv("OPENLINEAGE_URL", f"http://{login}127.0.0.1:{port}")
    # The library reads the address when it is imported, perhaps in an earlier test.
    monkeypatch.setattr("dagster_openlineage.sensor._ADAPTER", OpenLineageAdapter())


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """The events that a server on loopback gets."""
    events: list[dict[str, Any]] = []

    class Catalog(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            events.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(201)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Catalog) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        point_to(server.server_port, monkeypatch)
        yield events
        server.shutdown()
        thread.join()


def test_a_run_is_told_with_its_columns(
    project: Project, sent: list[dict[str, Any]], tmp_path: Path
) -> None:
    from orchestration.definitions import defs

    # The sensor asks all runs at once, which Dagster's default storage, a file for each, cannot.
    storage = {
        "module": "dagster._core.storage.event_log",
        "class": "ConsolidatedSqliteEventLogStorage",
        "config": {"base_dir": str(tmp_path / "history")},
    }
    instance = dg.DagsterInstance.local_temp(str(tmp_path), {"event_log_storage": storage})
    project = dataclasses.replace(project, instance=instance)
    project.add("east", count=40)
    for assets in (["mapping_version"], ["messages", "transformed_messages"]):
        made = project.materialize("east", assets, (FIRST, FIRST))
        assert made.success, failures(made)
    sensor = defs().resolve_sensor_def("openlineage_sensor")
    with instance, dg.build_sensor_context(instance) as context:
        sensor.evaluate_tick(context)

    outputs = {
        output["name"]: output["facets"]
        for event in sent
        if event["eventType"] == "COMPLETE"
        for output in event["outputs"]
    }
    for asset in ("mapping_version", "messages", "transformed_messages"):
        fields = outputs[f"east/{asset}"]["schema"]["fields"]
        assert {f["name"] for f in fields if f["description"]} == TABLES[asset].about.keys()
    lineage = outputs["east/transformed_messages"]["columnLineage"]["fields"]
    assert {(one["name"], one["field"]) for one in lineage["mapped_subject"]["inputFields"]} == {
        ("east/mapping_version", "canonical"),
        *(("east/messages", name) for name in ("subject", "cluster", "stream", "seq")),
    }
    assertions = [
        (one["assertion"], one["success"])
        for event in sent
        for dataset in event.get("inputs", ())
        for one in dataset.get("inputFacets", {})
        .get("dataQualityAssertions", {})
        .get("assertions", ())
    ]
    assert ("weights", True) in assertions


def test_a_catalog_that_fails_is_asked_once_and_its_password_is_not_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[str] = []

    class Failing(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.headers["Authorization"])
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_error(500)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Failing) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        point_to(server.server_port, monkeypatch, "user:sesame@")
        _lineage()
        dagster_openlineage.sensor._ADAPTER.start_pipeline("job", str(uuid4()), 1.0)
        server.shutdown()
        thread.join()
    assert [one.split()[0] for one in asked] == ["Basic"]
    assert "emit failed (RetryError)" in caplog.text
    assert f"url=http://127.0.0.1:{server.server_port}" in caplog.text
    assert "sesame" not in caplog.text
