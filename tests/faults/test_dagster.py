"""Faults of what is around Dagster's runs: its daemon, and the Postgres that remembers for it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from jobs import digest, tables
from tests.orchestration.conftest import DAYS, Project, empty_project
from tests.orchestration.processes import BIN, ONE_WRITER, environment, webserver
from tests.postgres import postgres
from tests.spark_cluster import Daemon, daemon

pytestmark = [
    pytest.mark.dagster,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(900),
]

# As deploy/production has it, but a run that does not start is given up after a minute.
MONITORED = (
    ONE_WRITER
    + """run_monitoring:
  enabled: true
  start_timeout_seconds: 60
  poll_interval_seconds: 5
run_retries:
  enabled: true
  max_retries: 1
  retry_on_asset_or_op_failure: false
"""
)
IN_POSTGRES = """storage:
  postgres:
    postgres_db:
      scheme: postgresql+psycopg2
      hostname: 127.0.0.1
      port: {port}
      db_name: dagster
      username: archive
      password: secret
"""
COUNT = 60


class Daemons:
    """The daemon, started again like a service: all that it left behind ends with the test."""

    def __init__(self, project: Project, running: ExitStack) -> None:
        self.project = project
        self.running = running
        self.now: Daemon | None = None

    def keep(self) -> Daemon:
        """The daemon that runs; a new one if there is none."""
        if self.now is None or self.now.process.poll() is not None:
            command = [str(BIN / "dagster-daemon"), "run", "-m", f"{self.project.name}.definitions"]
            log = self.project.root / "dagster-daemon.log"
            started = daemon(command, log, environment(self.project), self.project.root)
            self.now = self.running.enter_context(started)
        return self.now

    def kill(self) -> None:
        """kill -9 of the daemon alone."""
        if self.now is not None:
            self.now.process.kill()
            self.now.process.wait()


@contextmanager
def daemons(project: Project) -> Iterator[Daemons]:
    with ExitStack() as running:
        yield Daemons(project, running)


def last_of(instance: dg.DagsterInstance, run: str) -> dg.DagsterRun:
    """A run, or the last of those that were started in its place."""
    group = instance.get_run_group(run)
    assert group is not None
    return max(group[1], key=lambda one: (one.run_id != run, one.tags.get("dagster/retry_number")))


def until(found: Callable[[], bool], between: Callable[[], object] = lambda: None) -> None:
    """Waits; pytest's timeout ends it."""
    while not found():
        between()
        time.sleep(0.1)


def assert_complete(project: Project, spark: SparkSession) -> None:
    """Every message is there once in both tables, and the rows are those the commits speak of."""
    warehouse = tables.Warehouse(dir=project.defs_folder.parent / "warehouse")
    for spec in (tables.MESSAGES, tables.TRANSFORMED):
        table = tables.open_table(warehouse, spec)
        rows = tables.read(spark, table, spec, "EAST")
        assert sorted(row.seq for row in rows.select("seq").collect()) == list(range(1, COUNT + 1))
    assert rows.select("mapping_version").distinct().count() == 1
    for day in DAYS:
        made = tables.read(spark, table, tables.TRANSFORMED, "EAST", [day])
        assert str(digest.digest(made)) in {
            tables.properties_of(snapshot).get("digest") for snapshot in table.metadata.snapshots
        }


ASSETS = [["east", asset] for asset in ("messages", "transformed_messages")]
OVER = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)


def test_a_daemon_that_is_killed_again_and_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """As a run is being launched, then at any moment: each run that was asked for ends well."""
    chance = random.Random(seed)
    with empty_project(tmp_path, monkeypatch, MONITORED) as project, ExitStack() as running:
        project.add("east", count=COUNT)
        assert project.materialize("east", ["mapping_version"]).success
        instance, service = project.instance, Daemons(project, running)
        with webserver(project) as server:
            runs = [server.launch(ASSETS, {"dagster/partition": f"{day}"}) for day in DAYS]

        def status(run: str) -> dg.DagsterRunStatus:
            return last_of(instance, run).status

        queued = dg.DagsterRunStatus.QUEUED
        until(lambda: any(status(run) is not queued for run in runs), service.keep)
        service.kill()
        kills = 1
        moment = time.monotonic()
        while not all(status(run) is dg.DagsterRunStatus.SUCCESS for run in runs):
            if kills < 6 and time.monotonic() >= moment:
                service.kill()
                kills += 1
                moment = time.monotonic() + chance.uniform(2, 20)
            service.keep()
            time.sleep(0.1)
        assert kills >= 4
        assert_complete(project, spark)
        # Nothing was done by two runs.
        done = [instance.all_logs(one.run_id, of_type=SUCCEEDED) for one in instance.get_runs()]
        steps = [log.step_key for logs in done for log in logs]
        assert sorted(steps) == sorted([f"east__{asset}" for _, asset in ASSETS] * 2 + [VERSION])


SUCCEEDED = dg.DagsterEventType.STEP_SUCCESS
VERSION = "east__mapping_version"


@pytest.mark.parametrize("seconds", [0, 20], ids=["restarted", "away"])
def test_postgres_that_is_gone_under_a_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    """The run goes on, or is seen as failed and started again; its tables are never mixed."""
    with postgres("secret") as database, ExitStack() as running:
        database.create("dagster")
        storage = IN_POSTGRES.format(port=database.port)
        project = running.enter_context(empty_project(tmp_path, monkeypatch, MONITORED + storage))
        project.add("east", count=COUNT)
        assert project.materialize("east", ["mapping_version"]).success
        instance, service = project.instance, Daemons(project, running)
        with webserver(project) as server:
            runs = [server.launch(ASSETS, {"dagster/partition": f"{day}"}) for day in DAYS]
            until(lambda: steps_of(instance, runs) != [], service.keep)
            database.stop()
            end = time.monotonic() + seconds
            until(lambda: time.monotonic() >= end, service.keep)
            database.start()
            until(
                lambda: all(
                    last_of(instance, run).status is dg.DagsterRunStatus.SUCCESS for run in runs
                ),
                service.keep,
            )
            assert {server.status(run) for run in runs} <= {"SUCCESS", "FAILURE"}
        assert_complete(project, spark)


def steps_of(instance: dg.DagsterInstance, runs: list[str]) -> list[str | None]:
    """The steps that some runs have started."""
    started = dg.DagsterEventType.STEP_START
    return [log.step_key for run in runs for log in instance.all_logs(run, of_type=started)]
