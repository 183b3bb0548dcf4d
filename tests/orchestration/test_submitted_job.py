"""A job by spark-submit, through Dagster Pipes: its steps, checks and result come back."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster_pipes import encode_param

from jobs.jetstream.process import NatsServer
from jobs.settings.warehouse import Warehouse
from tests.support.dagster_project import OTHER_WEIGHTS, Project, failures, write_messages
from tests.support.files import edit
from tests.support.jobs import ingested
from tests.support.programs import output_of, printed_in_python
from tests.support.rules import mappings
from tests.support.streams import new_stream, settings_of_ingest

# A driver of its own for each.
pytestmark = [
    pytest.mark.dagster,
    pytest.mark.slow,
    # Pipes of Dagster (1.13) call what Dagster has deprecated, or not finished.
    pytest.mark.filterwarnings("ignore:AssetExecutionContext.* is deprecated"),
    pytest.mark.filterwarnings("ignore:.* is currently in preview"),
]

ROOT = Path(__file__).parents[2]
YAML = f"""type: nats_transform.dagster.SubmittedJob

attributes:
  name: mapped
  job: transform
  arguments: [transform.json]
  main: {ROOT / "deploy" / "spark_job.py"}
  options: ["--master=local[2]", --conf=spark.driver.memory=512m]
"""
CHECKS = {
    "every_message_once",
    "partitions_steady_and_even",
    "same_result_twice",
    "subjects_are_legal",
    "weights_within_tolerance",
}


def unlucky(stream: str, count: int) -> int:
    """A seed by which all orders of some messages go to the same half of the mapping: it's rare."""
    halves = mappings({"orders.*.*": [("v1.$1.$2", 50), ("v2.$1.$2", 50)]})
    orders = [(n + 1, f"orders.{('eu', 'us')[n % 4]}.{n}") for n in range(count) if n % 4 < 2]

    def ends(seed: int) -> set[str | None]:
        return {
            halves.replay(subject, stream=stream, seq=seq, seed=seed).mapping_destination
            for seq, subject in orders
        }

    return next(seed for seed in range(100_000) if len(ends(seed)) == 1)


@pytest.fixture
def folder(bare_project: Project, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the component, whose driver runs as this Python."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    (folder := bare_project.defs_folder / "mapped").mkdir()
    (folder / "defs.yaml").write_text(YAML)
    return folder


def archived(folder: Path) -> dict[str, Any]:
    """The settings that name an archive of 24 messages in a folder."""
    write_messages(folder / "messages.jsonl", 24)
    ingested(Warehouse(dir=folder / "warehouse"), folder / "messages.jsonl")
    return {"stream": "S", "warehouse": {"dir": str(folder / "warehouse")}}


@pytest.mark.parametrize(
    ("settings", "fail"),
    [
        pytest.param({"seed": 7, "tolerance": 40}, set(), id="published"),
        pytest.param({"tolerance": 1}, {"weights_within_tolerance"}, id="refused"),
        pytest.param({"seed": 7, "no_checks": True}, CHECKS, id="not looked at"),
    ],
)
def test_steps_checks_and_result_come_back(
    bare_project: Project, folder: Path, settings: dict[str, Any], fail: set[str]
) -> None:
    (folder / "mapping.conf").write_text(OTHER_WEIGHTS)
    settings = {"mapping": "mapping.conf", "seed": unlucky("S", 24), **settings}
    (folder / "transform.json").write_text(json.dumps(archived(folder) | settings))

    result = bare_project.run()

    checks = {check.check_name: check for check in result.get_asset_check_evaluations()}
    assert checks.keys() == CHECKS
    failed = {name for name, check in checks.items() if not check.passed}
    assert failed == fail
    assert all(check.metadata for check in checks.values())
    logged = [log.user_message for log in bare_project.instance.all_logs(result.run_id)]
    begin = logged.index("job transform: transform.json")
    assert "mapping S" in logged[begin + 1 :]
    if "tolerance" in settings and fail:
        assert "nothing was published" in failures(result)["mapped"]
    else:
        assert result.success, failures(result)
        (made,) = result.asset_materializations_for_node("mapped")
        assert made.metadata["messages"].value == 24
        assert isinstance(made.metadata["fates"], dg.JsonMetadataValue)


@pytest.mark.server
def test_an_ingest_of_several_streams(
    bare_project: Project, folder: Path, nats_server: NatsServer
) -> None:
    streams = [new_stream(nats_server) for _ in range(2)]
    for stream in streams:
        stream.count(5)
    settings_of_ingest(folder, nats_server, *(stream.name for stream in streams))
    edit(folder / "defs.yaml", ("job: transform", "job: ingest"), ("transform.json", "ingest.json"))
    result = bare_project.run()
    assert result.success, failures(result)
    checks = result.get_asset_check_evaluations()
    assert all(check.passed for check in checks)
    assert {name.partition(":")[0] for check in checks for name in check.metadata} == {
        stream.name for stream in streams
    }
    (made,) = result.asset_materializations_for_node("mapped")
    results: Any = made.metadata["streams"].value
    assert [one["added"] for one in results] == [5, 5]


def reported(folder: Path, *arguments: str) -> list[dict[str, Any]]:
    """What the main file reports through Pipes, without spark-submit."""
    topics = {"conservation": "every_message_once", "completeness": "no_unexplained_gaps"}
    context = {
        "asset_keys": ["mapped"],
        "code_version_by_asset_key": {"mapped": None},
        "provenance_by_asset_key": {"mapped": None},
        "partition_key": None,
        "partition_key_range": None,
        "partition_time_window": None,
        "run_id": "r",
        "job_name": "j",
        "retry_number": 0,
        "extras": {"checks": topics},
    }
    (folder / "messages").unlink(missing_ok=True)
    (folder / "context").write_text(json.dumps(context))
    places = {"CONTEXT": folder / "context", "MESSAGES": folder / "messages"}
    pipes = {
        f"DAGSTER_PIPES_{name}": encode_param({"path": str(path)}) for name, path in places.items()
    }
    command = (sys.executable, ROOT / "deploy" / "spark_job.py", *arguments)
    output_of(*command, cwd=folder, env=os.environ | pipes)
    return [json.loads(line) for line in (folder / "messages").read_text().splitlines()]


@pytest.mark.server
def test_a_stream_that_was_not_read_fails_every_check(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    queue, stream = new_stream(nats_server, retention="workqueue"), new_stream(nats_server)
    stream.count(5)
    queue.count(5)
    for names in ([queue.name], [stream.name, queue.name]):
        settings_of_ingest(tmp_path, nats_server, *names, "NO_SUCH_*")
        said = reported(tmp_path, "ingest", "ingest.json")
        checks = [one["params"] for one in said if one["method"] == "report_asset_check"]
        assert len(checks) == 2
        for check in checks:
            assert not check["passed"]
            failed = check["metadata"]["not looked at"]["raw_value"]
            assert failed.keys() == {queue.name, "NO_SUCH_*"}


def test_the_result_of_a_plan(tmp_path: Path) -> None:
    for name in ("now", "next"):
        (tmp_path / f"{name}.conf").write_text(f"mappings {{ orders.*.*: {name}.$1.$2 }}")
    settings = {"mapping": "now.conf", "candidate": "next.conf", "out": "steps"}
    settings |= archived(tmp_path) | {"without_streams": True}
    (tmp_path / "plan.json").write_text(json.dumps(settings))
    spark = ("--engine", "process", "--remote", "sc://127.0.0.1:1/;token=secret")
    said = reported(tmp_path, "plan", "plan.json", *spark)
    assert "secret" not in json.dumps(said)
    (made,) = [one["params"] for one in said if one["method"] == "report_asset_materialization"]
    assert made["metadata"]["streams"]["raw_value"] == 0


def test_the_main_file_needs_no_dagster() -> None:
    code = "import runpy, sys; sys.argv = ['x', '--help']; sys.modules['dagster'] = None\n"
    code += "runpy.run_path('deploy/spark_job.py', run_name='__main__')"
    assert "Run JOB" in printed_in_python(code, cwd=ROOT)
