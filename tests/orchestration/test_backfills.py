"""Backfills: one action for many days, day by day or in one run, by Dagster's backfill daemon."""

from __future__ import annotations

import time

import dagster as dg
import pytest

from jobs.warehouse import specs
from jobs.warehouse.tables import days_of, open_table
from tests.support.archive import sequences
from tests.support.dagster_processes import ONE_WRITER, daemon, run_dg, webserver
from tests.support.dagster_project import DAY_KEYS, DAYS, Project, key
from tests.support.files import edit

pytestmark = pytest.mark.dagster

BACKFILL = """mutation ($params: LaunchBackfillParams!) {
  launchPartitionBackfill(backfillParams: $params) {
    __typename
    ... on LaunchBackfillSuccess { backfillId }
    ... on PythonError { message }
  }
}"""
PARTITIONED = ("messages", "transformed_messages")


def runs_of(instance: dg.DagsterInstance, backfill: str) -> list[list[str]]:
    """The days of every run of a backfill."""
    runs = instance.get_runs(dg.RunsFilter(tags={"dagster/backfill": backfill}))
    assert all(run.is_success for run in runs)
    first, last = (f"dagster/asset_partition_range_{end}" for end in ("start", "end"))
    return sorted(sorted({run.tags[first], run.tags[last]}) for run in runs)


STATUS = """query ($id: String!) {
  partitionBackfillOrError(backfillId: $id) { ... on PartitionBackfill { status } }
}"""


def backfilled(project: Project) -> str:
    """The id of a backfill of all days by whatever daemons run, once it is done."""
    project.made("east", ["mapping_version"])
    with webserver(project) as server:
        action = {
            "assetSelection": [{"path": ["east", asset]} for asset in PARTITIONED],
            "partitionNames": DAY_KEYS,
        }
        asked = server.ask(BACKFILL, params=action)["launchPartitionBackfill"]
        assert asked["__typename"] == "LaunchBackfillSuccess", asked
        status = "REQUESTED"
        while status == "REQUESTED":  # pytest's timeout ends it
            time.sleep(1)
            found = server.ask(STATUS, id=asked["backfillId"])["partitionBackfillOrError"]
            status = found["status"]
    assert status == "COMPLETED_SUCCESS"
    for asset in PARTITIONED:
        made = project.instance.get_materialized_partitions(key(f"east/{asset}"))
        assert made == set(DAY_KEYS)
    return str(asked["backfillId"])


@pytest.mark.slow
@pytest.mark.parametrize("bare_project", [ONE_WRITER], indirect=True, ids=["one-writer"])
@pytest.mark.parametrize(
    ("backfill", "expected"),
    [
        pytest.param("one_run", [DAY_KEYS], id="one-run"),
        pytest.param("day_by_day", [[day] for day in DAY_KEYS], id="day-by-day"),
    ],
)
def test_a_backfill_by_a_real_daemon(
    bare_project: Project, backfill: str, expected: list[list[str]]
) -> None:
    """Webserver, daemon, queue and a process for each run, as `dg dev` has them."""
    bare_project.add("east", f"  backfill: {backfill}\n", count=40)
    with daemon(bare_project):
        done = backfilled(bare_project)
    assert runs_of(bare_project.instance, done) == expected


@pytest.mark.slow
@pytest.mark.parametrize("bare_project", [ONE_WRITER], indirect=True, ids=["one-writer"])
def test_two_daemons(bare_project: Project) -> None:
    """Dagster says that it supports no second one, and lets it work; each message is there once."""
    bare_project.add("east", "  backfill: day_by_day\n", count=40)
    with daemon(bare_project), daemon(bare_project):
        for _ in range(2):  # the second one replaces the days
            backfilled(bare_project)
    assert "not supported" in (bare_project.root / "dagster-daemon.log").read_text()
    for spec in (specs.MESSAGES, specs.TRANSFORMED):
        table = open_table(bare_project.warehouse, spec)
        assert sequences(table) == list(range(1, 41))


@pytest.mark.parametrize(
    "what",
    [
        pytest.param(("--job", "east_reprocess"), id="a job"),
        # Each asset in a process of its own: what a project has that names no executor.
        pytest.param(
            ("--assets", "key:east/messages,key:east/subject_census"),
            id="assets",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_range_of_days_by_command(
    bare_project: Project, monkeypatch: pytest.MonkeyPatch, what: tuple[str, str]
) -> None:
    """One run for all days, which starts no JVM: there is none."""
    bare_project.add("east", count=40)
    definitions = bare_project.defs_folder.parent / "definitions.py"
    edit(definitions, ("executor=dg.in_process_executor", ""))
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    run_dg(bare_project, "launch", *what, "--partition-range", "...".join(DAY_KEYS))
    (run,) = bare_project.instance.get_runs()
    assert run.is_success
    table = open_table(bare_project.warehouse, specs.MESSAGES)
    assert days_of(table, "EAST") == list(DAYS)
