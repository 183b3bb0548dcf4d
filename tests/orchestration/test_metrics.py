"""What Prometheus scrapes: by a process of its own, read with Prometheus' own parser."""

from __future__ import annotations

import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import dagster as dg
import pytest
from prometheus_client.parser import text_string_to_metric_families

from orchestration.metrics import Runs
from tests.support.dagster_processes import environment
from tests.support.dagster_project import Project
from tests.support.spark_cluster import daemon, free_port

pytestmark = pytest.mark.dagster

ROOT = Path(__file__).parents[2]


def scrape(port: int) -> dict[tuple[str, ...], float]:
    """The value of each sample, by its name and labels."""
    url = f"http://127.0.0.1:{port}/metrics"
    with urllib.request.urlopen(url, timeout=600) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        text = answer.read().decode()
    return {
        (sample.name.removeprefix("nats_transform_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_the_last_runs_of_each_stream_of_an_account() -> None:
    @dg.asset(key=["prod", "mapping_version"])
    def shared() -> None: ...

    @dg.asset(key=["prod", "A", "messages"])
    def a() -> None:
        raise dg.Failure

    @dg.asset(key=["prod", "B", "messages"])
    def b() -> None: ...

    job = dg.define_asset_job("reprocess")
    defs = dg.Definitions(assets=[shared, a, b], jobs=[job])
    with dg.DagsterInstance.ephemeral() as instance:
        for asset in (a, b):
            defs.resolve_job_def("reprocess").execute_in_process(
                instance=instance, asset_selection=[shared.key, asset.key], raise_on_error=False
            )
        (ended, *_) = Runs(instance)._last_runs()
    last = {(sample.labels["archive"], sample.labels["status"]) for sample in ended.samples}
    assert last == {("prod/A", "FAILURE"), ("prod/B", "SUCCESS")}


def test_a_scrape_tells_of_runs_and_assets(bare_project: Project) -> None:
    began = time.time()
    folder = bare_project.add("east")
    port = free_port()
    command = [sys.executable, "-m", "orchestration.metrics", "--port", str(port)]
    with daemon(command, bare_project.root / "log", environment(bare_project), ROOT) as exporter:
        exporter.wait_for(f"metrics at http://127.0.0.1:{port}/metrics")
        none = scrape(port)
        assert none["runs", "SUCCESS"] == none["runs", "FAILURE"] == 0
        assert not any(name.startswith(("last_run", "asset")) for name, *_ in none)
        assert none["daemon_healthy", "SCHEDULER"] == 0

        bare_project.made("east", ["mapping_version"])
        (folder / "mapping.conf").write_text("mappings { a: [ { destination: b, weight: 120 } ] }")
        assert not bare_project.materialize("east", ["mapping_version"]).success
        found = scrape(port)

    assert found["runs", "SUCCESS"] == found["runs", "FAILURE"] == 1
    for status in ("SUCCESS", "FAILURE"):
        run = ("east", "__ASSET_JOB", status)
        assert began < found["last_run_end_timestamp_seconds", *run] < time.time()
        assert 0 < found["last_run_duration_seconds", *run] < 600
    assert began < found["asset_made_timestamp_seconds", "east/mapping_version"] < time.time()
    assert found["asset_value", "east/mapping_version", "number of rules"] == 3
    assert not any(name.startswith("oldest_run_age") for name, *_ in found)
