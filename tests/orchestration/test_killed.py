"""Runs killed at a known moment: the tables are the old or the new state, and a retry finishes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import dagster as dg
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from jobs.warehouse import specs
from nats_transform.config import load_mappings, mapping_version
from nats_transform.spark import apply, digest
from tests.support.dagster_processes import NO_QUEUE, ONE_WRITER, environment, webserver
from tests.support.dagster_project import DAY_KEYS, OTHER_WEIGHTS, Project, values
from tests.support.spark_cluster import daemon

# A process with a JVM of its own for each.
pytestmark = [pytest.mark.dagster, pytest.mark.spark, pytest.mark.slow]

# Runs `dagster asset materialize`, and stops for good at a moment, once it has said so in a file.
CHILD = """
import os, runpy, sys, time
from pathlib import Path
from jobs.warehouse import staging, specs, tables
from jobs import transform

moment, marker, *sys.argv = sys.argv[1:]
publish = staging.publish

def stop():
    Path(marker + ".new").write_text(str(os.getpid()))
    os.rename(marker + ".new", marker)
    time.sleep(600)

class HalfWritten(transform.TransformTask):
    def _rows(self, batch):
        if 30 in batch.column("seq").to_pylist():
            stop()
        return super()._rows(batch)

def before_the_commit(*given, **more):
    stop()

def after_the_commit(*given, **more):
    publish(*given, **more)
    stop()

if moment == "half_written":
    transform.TransformTask = HalfWritten
else:
    staging.publish = globals()[moment]
runpy.run_module("dagster", run_name="__main__")
"""


def digest_of(project: Project, spark: SparkSession) -> str:
    """The digest of the rows that readers of the table see."""
    return str(digest.digest(project.rows(spark)))


@contextmanager
def stopped(project: Project, moment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of its own that transforms both days, and is then at this moment."""
    marker = project.root / "marker"
    arguments = ["dagster", "asset", "materialize", "-m", f"{project.name}.definitions"]
    arguments += ["--select", 'key:"east/transformed_messages"']
    arguments += ["--partition-range", "...".join(DAY_KEYS)]
    command = [sys.executable, "-c", CHILD, moment, str(marker), *arguments]
    with daemon(command, project.root / "run.log", environment(project), project.root) as child:
        while not marker.exists():  # pytest's timeout ends it
            assert child.process.poll() is None, child.log.read_text()
            time.sleep(0.1)
        yield child.process


@pytest.mark.parametrize(
    ("moment", "survives"),
    [("half_written", False), ("before_the_commit", False), ("after_the_commit", True)],
)
def test_a_killed_run_leaves_the_old_or_the_new_state(
    project: Project, spark: SparkSession, moment: str, survives: bool
) -> None:
    folder = project.add("east", count=60)
    project.made("east", ["mapping_version", "messages", "transformed_messages"])
    old, old_rows = project.published(), digest_of(project, spark)
    assert old["digest"] == old_rows
    # What is killed would put another version in force.
    (folder / "mapping.conf").write_text(OTHER_WEIGHTS)
    project.made("east", ["mapping_version"])

    with stopped(project, moment) as process:
        process.kill()
        assert process.wait() == -signal.SIGKILL

    killed, killed_rows = project.published(), digest_of(project, spark)
    assert killed["digest"] == killed_rows
    assert (killed == old) is not survives
    (run,) = project.instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED]))
    assert killed["run-id"] == (run.run_id if survives else old["run-id"])

    retried = project.made("east", ["transformed_messages"])
    now = project.published()
    assert now["run-id"] == retried.run_id
    assert now["mapping-version"] != old["mapping-version"]
    assert now["digest"] == digest_of(project, spark) == in_peace(project, spark)
    if survives:
        assert now["digest"] == killed["digest"]


def in_peace(project: Project, spark: SparkSession) -> str:
    """The digest of what the messages become under the mapping file."""
    mappings = load_mappings(project.defs_folder / "east" / "mapping.conf")
    version = mapping_version(mappings, seed=7)
    rows = apply(mappings, project.rows(spark, specs.MESSAGES), seed=7)
    rows = rows.withColumn("mapping_version", F.lit(version))
    return str(digest.digest(rows, specs.TRANSFORMED.rows.names))


@pytest.mark.parametrize("victim", ["jvm", "worker"])
def test_a_run_whose_spark_is_killed_fails_with_one_line(
    project: Project, spark: SparkSession, victim: str
) -> None:
    project.add("east", count=60)
    project.made("east", ["mapping_version", "messages", "transformed_messages"])
    old = project.published()

    with stopped(project, "half_written") as process:
        worker = int((project.root / "marker").read_text())
        os.kill(worker if victim == "worker" else _parent(_parent(worker)), signal.SIGKILL)
        assert process.wait() not in (0, -signal.SIGKILL)  # pytest's timeout ends it

    (run,) = project.instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE]))
    (failure,) = project.instance.all_logs(run.run_id, of_type=dg.DagsterEventType.STEP_FAILURE)
    data = failure.dagster_event.step_failure_data
    assert data.user_failure_data is not None, data.error
    assert "\n" not in str(data.user_failure_data.description)
    assert project.published() == old
    project.made("east", ["transformed_messages"])
    assert project.published()["digest"] == old["digest"] == digest_of(project, spark)


def _parent(pid: int) -> int:
    """The process that started another; a Python worker's is a daemon, whose is the JVM."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])


@pytest.mark.parametrize("bare_project", [NO_QUEUE + ONE_WRITER], indirect=True, ids=["one-writer"])
def test_a_killed_run_is_seen_and_can_be_retried(bare_project: Project) -> None:
    """The process of a run that a code server started, killed while it transforms."""
    bare_project.add("east", count=60)
    bare_project.made("east", ["mapping_version"])
    instance = bare_project.instance
    assets = [["east", asset] for asset in ("messages", "transformed_messages")]
    with webserver(bare_project) as server:
        run = server.launch(assets, {"dagster/partition": DAY_KEYS[0]})
        starts = partial(instance.all_logs, run, of_type=dg.DagsterEventType.STEP_START)
        while not any(log.step_key == "east__transformed_messages" for log in starts()):
            assert server.status(run) != "FAILURE"
            time.sleep(0.1)
        logs = instance.all_logs(run, of_type=dg.DagsterEventType.ENGINE_EVENT)
        told = [values(log.dagster_event.engine_event_data.metadata) for log in logs]
        (pid,) = {one["pid"] for one in told if "pid" in one}
        os.kill(int(pid), signal.SIGKILL)
        assert server.end(run) == "FAILURE"
        retry = server.retry(run)
        assert server.end(retry) == "SUCCESS"
    assert bare_project.published()["run-id"] == retry
    # What was done before the kill was not done again.
    made = instance.all_logs(retry, of_type=dg.DagsterEventType.STEP_START)
    assert [log.step_key for log in made] == ["east__transformed_messages"]
