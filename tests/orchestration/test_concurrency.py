"""Two runs over the same days: held apart by the pool, and where they are not, they never mix."""

from __future__ import annotations

import time
from datetime import date
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from jobs.warehouse import staging
from nats_transform.spark import digest
from orchestration.days import range_tags
from tests.support.dagster_processes import ONE_WRITER, daemon, webserver
from tests.support.dagster_project import DAYS, Project, failures

pytestmark = [pytest.mark.dagster, pytest.mark.spark]


@pytest.mark.slow
@pytest.mark.parametrize(
    "days",
    [pytest.param(DAYS, id="same-days"), pytest.param((DAYS[1], DAYS[1]), id="one-in-common")],
)
def test_without_a_pool_the_tables_refuse_the_second_writer(
    project: Project,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    days: tuple[date, date],
) -> None:
    project.add("east", count=40)
    project.made("east", ["mapping_version", "messages"])
    publish = staging.publish
    between: list[dg.ExecuteInProcessResult] = []

    def late(*given: Any, **more: Any) -> int:
        # Another run begins and ends after this one has read the table and written its files.
        monkeypatch.setattr(staging, "publish", publish)
        between.append(project.materialize("east", ["transformed_messages"], days))
        return publish(*given, **more)

    monkeypatch.setattr(staging, "publish", late)

    refused = project.materialize("east", ["transformed_messages"])

    assert failures(refused) == {
        "east/transformed_messages": "another job changed nats.transformed_messages for stream "
        "EAST meanwhile; nothing was published, run again"
    }
    (done,) = between
    assert done.success, failures(done)
    written, rows = project.published(), project.rows(spark)
    assert written["run-id"] == done.run_id
    assert written["digest"] == str(digest.digest(rows))
    assert rows.select("day").distinct().count() == (2 if days == DAYS else 1)


@pytest.mark.slow
@pytest.mark.parametrize("bare_project", [ONE_WRITER], indirect=True, ids=["one-writer"])
def test_the_pool_holds_runs_of_the_same_days_apart(bare_project: Project) -> None:
    """A run waits in the daemon's queue until the other has ended."""
    bare_project.add("east", count=40)
    bare_project.made("east", ["mapping_version"])
    days = range_tags(*DAYS)
    # What `dagster instance concurrency set` does. Dagster (1.13) gives a new pool the default
    # limit in the daemon's first look at the queue, and holds nothing back before the second.
    bare_project.instance.event_log_storage.set_concurrency_slots("archive_east", 1)
    assets = [["east", "messages"]]
    with webserver(bare_project) as server:
        # Both are in the queue before the daemon first looks at it: without the pool it would
        # launch them together.
        runs = [server.launch(assets, days) for _ in range(2)]
        with daemon(bare_project):
            while not all(server.status(run) == "SUCCESS" for run in runs):
                assert not any(server.status(run) == "FAILURE" for run in runs)
                time.sleep(1)  # pytest's timeout ends it
    records = bare_project.instance.get_run_records(dg.RunsFilter(run_ids=runs))
    spans = sorted((record.start_time or 0.0, record.end_time or 0.0) for record in records)
    assert len(spans) == 2
    assert spans[0][1] <= spans[1][0]
