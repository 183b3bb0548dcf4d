"""What a catalog of lineage is told of a run, by OpenLineage's own library, over HTTP."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import gzip
import re
import resource
import ssl
import subprocess
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any
from uuid import uuid4

import dagster as dg
import dagster_openlineage.sensor
import pytest

from orchestration import lineage
from orchestration.lineage import lineage_sensors
from orchestration.metadata.columns import TABLES
from tests.support.dagster_project import FIRST, Project
from tests.support.posted import receiver
from tests.support.refused import refused
from tests.support.serving import serving

pytestmark = [
    pytest.mark.dagster,
    pytest.mark.spark,
    # dagster-openlineage (0.2) calls what Dagster has deprecated, as it runs on older releases too.
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """The events that a server on loopback gets."""
    with receiver() as (url, events):
        monkeypatch.setenv("OPENLINEAGE_URL", url)
        yield events


def test_a_run_is_told_with_its_columns(
    project: Project, sent: list[dict[str, Any]], tmp_path: Path
) -> None:
    from orchestration.definitions import defs

    # The sensor asks all runs at once, which Dagster's default storage, a file for each, cannot.
    storage = {
        "module": "dagster.core.storage.event_log",
        "class": "ConsolidatedSqliteEventLogStorage",
        "config": {"base_dir": str(tmp_path / "history")},
    }
    instance = dg.DagsterInstance.local_temp(str(tmp_path), {"event_log_storage": storage})
    project = dataclasses.replace(project, instance=instance)
    project.add("east", count=40)
    for assets in (["mapping_version"], ["messages", "transformed_messages"]):
        project.made("east", assets, (FIRST, FIRST))
    sensor = defs().resolve_sensor_def("openlineage_sensor")
    with instance, dg.build_sensor_context(instance) as context:
        sensor.evaluate_tick(context)

    outputs = {
        output["name"]: output["facets"]
        for event in sent
        if event.get("eventType") == "COMPLETE"  # what is observed has none
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
    assert ("weights_within_tolerance", True) in assertions


LOGIN = b"Basic " + base64.b64encode(b"user:sesame")


class Hostile(ThreadingTCPServer):
    """A catalog on loopback that answers with some bytes, and then with more of them for ever."""

    daemon_threads = True

    def __init__(self, answer: bytes, for_ever: bytes, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), BaseRequestHandler)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.asked: list[bytes] = []
        self.answer, self.for_ever = answer, for_ever
        self.port = self.server_address[1]
        self.ended = threading.Event()

    def finish_request(self, request: Any, client_address: Any) -> None:
        with contextlib.suppress(OSError):
            self.asked.append(request.recv(65536))
            request.sendall(self.answer)
            while self.for_ever and not self.ended.is_set():
                request.sendall(self.for_ever)
                self.ended.wait(0.1 if len(self.for_ever) == 1 else 0)

    def shutdown(self) -> None:
        self.ended.set()
        super().shutdown()


BOMB = gzip.compress(bytes(100_000_000))
FAILS = [
    # What it answers, what it goes on with, and what is logged.
    pytest.param(b"HTTP/1.1 500 x\r\n\r\n", b"", "status 500|RetryError", id="fails"),
    pytest.param(b"HTTP/1.1 401 x\r\n\r\n", b"", "status 401", id="refuses"),
    pytest.param(b"HTTP/1.1 302 x\r\nLocation: URL\r\n\r\n", b"", "status 302", id="redirects"),
    pytest.param(b"HTTP/1.1 307 x\r\nLocation: URL\r\n\r\n", b"", "status 307", id="sends-on"),
    pytest.param(b"HTTP/1.1 308 x\r\nLocation: /\r\n\r\n", b"", "status 308", id="to-itself"),
    pytest.param(b"HTTP/1.1 200 x\r\nX: ", b"x", "no answer within", id="drips-a-header"),
    pytest.param(b"", b"", "Connection", id="hangs-up"),
    pytest.param(b"\x00\xff\r\n\r\n", b"", "Connection", id="garbage"),
    pytest.param(b"H" * 200_000, b"", "Connection", id="long-line"),
]
HARMLESS = [
    pytest.param(b"HTTP/1.1 200 x\r\n\r\n", b"x" * 65536, id="endless-body"),
    pytest.param(b"HTTP/1.1 200 x\r\n\r\n", b"x", id="dripping-body"),
    pytest.param(
        b"HTTP/1.1 200 x\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(BOMB)
        + BOMB,
        b"",
        id="gzip-bomb",
    ),
]


def send_three(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send three events as the sensor does, with a password in the address."""
    monkeypatch.setenv("OPENLINEAGE_URL", f"http://user:sesame@127.0.0.1:{port}")
    (_,) = lineage_sensors()
    for _ in range(3):
        dagster_openlineage.sensor._ADAPTER.start_pipeline("job\n\x1b[31m", str(uuid4()), 1.0)


@pytest.mark.parametrize(("answer", "for_ever", "told"), FAILS)
def test_a_catalog_that_fails_is_asked_once_and_its_password_is_not_logged(
    answer: bytes,
    for_ever: bytes,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(lineage, "PATIENCE", 1.0 if for_ever else 600.0)
    with serving(other := Hostile(b"", b"")):
        to_other = answer.replace(b"URL", b"http://127.0.0.1:%d/" % other.port)
        with serving(catalog := Hostile(to_other, for_ever)):
            send_three(catalog.port, monkeypatch)
    (asked,) = catalog.asked
    assert LOGIN in asked
    assert other.asked == []
    assert "emit failed" in caplog.text
    assert re.search(told, caplog.text), caplog.text
    assert f"url=http://127.0.0.1:{catalog.port}" in caplog.text
    assert "sesame" not in caplog.text
    assert "\x1b" not in caplog.text


@pytest.mark.parametrize(("answer", "for_ever"), HARMLESS)
def test_the_body_of_an_answer_is_not_read(
    answer: bytes,
    for_ever: bytes,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(lineage, "PATIENCE", 600.0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with serving(catalog := Hostile(answer, for_ever)):
        send_three(catalog.port, monkeypatch)
    assert len(catalog.asked) == 3
    assert "emit failed" not in caplog.text
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


@pytest.mark.parametrize(
    "address",
    [
        pytest.param("user:sesame@catalog:80", id="no-scheme"),
        pytest.param("http://user:sesame@catalog:99999", id="no-port"),
        pytest.param("http://user:ses/ame@catalog", id="slash-in-the-password"),
    ],
)
def test_an_address_that_is_none_is_told_without_its_password(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENLINEAGE_URL", address)
    with refused(ValueError, "catalog-address") as raised:
        lineage_sensors()
    shown = "".join(traceback.format_exception(raised.value))
    assert not {"sesame", "ame@"} & set(re.findall("sesame|ame@", shown))


def test_a_certificate_that_nobody_signed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    command = "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=127.0.0.1 -keyout key -out cert"
    subprocess.run(command.split(), cwd=tmp_path, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert", tmp_path / "key")
    with serving(catalog := Hostile(b"HTTP/1.1 200 x\r\n\r\n", b"", context)):
        monkeypatch.setenv("OPENLINEAGE_URL", f"https://user:sesame@127.0.0.1:{catalog.port}")
        lineage_sensors()
        dagster_openlineage.sensor._ADAPTER.start_pipeline("job", str(uuid4()), 1.0)
    assert catalog.asked == []
    assert "CERTIFICATE_VERIFY_FAILED" in caplog.text
    assert "sesame" not in caplog.text
