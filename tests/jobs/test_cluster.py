"""The jobs on a standalone cluster, by spark-submit, with the packages shipped as the docs say."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import venv
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from benchmarks.frames import read
from jobs.ingest import ingest
from jobs.settings.ingest import IngestSettings
from jobs.settings.transform import TransformSettings
from jobs.settings.warehouse import Warehouse
from jobs.transform import transform
from jobs.warehouse.specs import MESSAGES, QUARANTINED, TRANSFORMED
from jobs.warehouse.tables import open_table
from nats_transform.errors import sentence
from tests.support.archive import rows_of
from tests.support.dagster_project import empty_project
from tests.support.killing import COUNT as COUNT_OF_WORK
from tests.support.killing import MAPPING, Work, killing
from tests.support.programs import ended, in_python, output_of
from tests.support.saying import says
from tests.support.spark_cluster import (
    SPARK_HOME,
    Cluster,
    connect_server,
    spark_cluster,
    without_python_path,
)

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.slow, pytest.mark.cluster]

ROOT = Path(__file__).parents[2]
COUNT = 4000


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Our packages as one file, made by the command in docs/operations.md."""
    folder = tmp_path_factory.mktemp("shipped")
    text = (ROOT / "docs" / "operations.md").read_text()
    (command,) = re.findall(r"^python -m pip wheel .*$", text, re.MULTILINE)
    source = folder / "source"  # setuptools leaves its own folders beside what it builds
    for name in ("nats_transform", "jobs", "expectations", "orchestration", "cli"):
        shutil.copytree(ROOT / name, source / name)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = [sys.executable, *command.split()[1:], "--quiet"]
    output_of(*build, cwd=source)
    (wheel,) = (source / "build").glob("*.whl")
    return Path(shutil.move(wheel, folder / "nats_transform.zip"))


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has what we depend on, but not our packages."""
    folder = tmp_path_factory.mktemp("python")
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    purelib = folder / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    # A folder named in a .pth file does not get its own .pth files read: not the checkout's.
    (purelib / "base.pth").write_text(sysconfig.get_path("purelib") + "\n")
    probe = "import pyspark, nats\ntry:\n    import jobs\nexcept ImportError:\n    print('bare')"
    said = ended(python, "-c", probe, cwd=folder, env=without_python_path())
    assert said.stdout == "bare\n", said
    return python


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, bare_python: Path) -> Iterator[Cluster]:
    with spark_cluster(tmp_path_factory.mktemp("cluster"), python=str(bare_python)) as running:
        yield running


Submit = Callable[..., subprocess.Popen[str]]


@pytest.fixture(scope="module")
def submit(cluster: Cluster, archive: Path, bare_python: Path) -> Submit:
    """Starts a job with its arguments by spark-submit, away from the checkout."""

    def submitted(
        folder: Path, *job: str, config: Mapping[str, str] = MappingProxyType({})
    ) -> subprocess.Popen[str]:
        config = {
            **config,
            "spark.executor.memory": "512m",
            "spark.driver.memory": "512m",
            "spark.sql.shuffle.partitions": "4",
            "spark.driver.host": "127.0.0.1",
        }
        options = [word for pair in config.items() for word in ("--conf", "=".join(pair))]
        command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", cluster.master, *options]
        command += ["--py-files", str(archive), str(ROOT / "deploy" / "spark_job.py"), *job]
        environment = cluster.environment | {"PYSPARK_DRIVER_PYTHON": str(bare_python)}
        return subprocess.Popen(
            command,
            cwd=folder,
            env=without_python_path() | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )

    return submitted


def events(folder: Path, kind: str) -> list[Any]:
    """The events of a kind in the only event log of a folder."""
    (log,) = folder.glob("**/events_*")
    read = [json.loads(line) for line in log.read_text().splitlines()]
    return [event for event in read if event["Event"] == f"SparkListener{kind}"]


def logging_to(folder: Path) -> dict[str, str]:
    """Settings of Spark for an event log."""
    folder.mkdir()
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": folder.as_uri(),
        "spark.eventLog.compress": "false",
    }


def result_of(process: subprocess.Popen[str]) -> Any:
    output, errors = process.communicate()
    assert process.returncode == 0, errors[-5000:]
    return json.loads(output.splitlines()[-1])


def rows(spark: SparkSession, warehouse: Warehouse, spec: Any) -> list[Any]:
    """What every reader sees, to the bit."""
    return read(spark, open_table(warehouse, spec), spec).orderBy("seq").collect()


def test_as_in_local_mode(
    spark: SparkSession, cluster: Cluster, submit: Submit, stream: Any, tmp_path: Path
) -> None:
    """Both jobs, on two executors and in one process: the same rows and digests."""
    stream.count(COUNT)
    (tmp_path / "mapping.conf").write_text(MAPPING)
    warehouses = {name: tmp_path / name / "warehouse" for name in ("far", "near")}
    server = {"servers": stream.server.url}
    ingested = {"stream": stream.name, "server": server, "readers": 2}
    dir = {name: {"dir": str(folder)} for name, folder in warehouses.items()}
    (tmp_path / "ingest.json").write_text(json.dumps(ingested | {"warehouse": dir["far"]}))

    far_ingest = result_of(submit(tmp_path, "ingest", "ingest.json"))
    given = {"stream": stream.name, "mapping": str(tmp_path / "mapping.conf"), "seed": 5}
    (tmp_path / "transform.json").write_text(json.dumps(given | {"warehouse": dir["far"]}))
    logged = tmp_path / "events"
    far_transform = result_of(
        submit(tmp_path, "transform", "transform.json", config=logging_to(logged))
    )
    said = [job["Properties"]["spark.job.description"] for job in events(logged, "JobStart")]
    folder = warehouses["far"] / "nats" / "messages" / "data"
    (mapped,) = (text for text in said if text.startswith(f"mapping {stream.name}: "))
    assert f"files in file:{folder}" in mapped or f"file in file:{folder}" in mapped

    near_ingest = ingest(
        spark, IngestSettings.model_validate(ingested | {"warehouse": dir["near"]})
    )
    near = TransformSettings.model_validate(given | {"warehouse": dir["near"]})
    near_transform = transform(spark, near)

    assert far_ingest["messages"] == near_ingest.messages == COUNT
    assert far_ingest["digest"] == near_ingest.digest
    assert far_transform["digest"] == near_transform.digest
    assert far_transform["fates"] == near_transform.fates
    assert near_transform.fates["mapped"] > COUNT / 2
    one, other = (Warehouse(dir=folder) for folder in warehouses.values())
    for spec in (MESSAGES, TRANSFORMED):
        assert rows(spark, one, spec) == rows(spark, other, spec)
    # Work was really done on both workers.
    logs = [worker.log.read_text() for worker in cluster.workers]
    assert all("Launch" in log or "executor" in log for log in logs), logs


SUBMITTED = """type: nats_transform.dagster.SubmittedJob

attributes:
  name: {name}
  job: {job}
  arguments: {arguments}
  main: {main}
  options:
    - --master={master}
    - --py-files={archive}
    - --conf=spark.executor.memory=512m
    - --conf=spark.driver.memory=512m
    - --conf=spark.driver.host=127.0.0.1
"""


# Pipes of Dagster (1.13) call what Dagster has deprecated, or not finished.
@pytest.mark.filterwarnings("ignore:AssetExecutionContext.* is deprecated")
@pytest.mark.filterwarnings("ignore:.* is currently in preview")
def test_dagster_submits_and_is_told(
    spark: SparkSession,
    cluster: Cluster,
    archive: Path,
    bare_python: Path,
    stream: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By spark-submit, through Pipes: what the job says is metadata, or the one line in the log."""
    stream.count(100)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    given = cluster.environment | {"PYSPARK_DRIVER_PYTHON": str(bare_python)}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    warehouse = tmp_path / "warehouse"
    (tmp_path / "mapping.conf").write_text(MAPPING)
    with empty_project(tmp_path, monkeypatch) as project:

        def define(name: str, job: str, **settings: object) -> None:
            folder: Path = project.defs_folder / name
            folder.mkdir()
            given = {"stream": stream.name, "warehouse": {"dir": str(warehouse)}, **settings}
            (folder / f"{name}.json").write_text(json.dumps(given))
            (folder / "defs.yaml").write_text(
                SUBMITTED.format(
                    name=name,
                    job=job,
                    arguments=json.dumps([f"{name}.json"]),
                    main=ROOT / "deploy" / "spark_job.py",
                    master=cluster.master,
                    archive=archive,
                )
            )

        define("right", "ingest", server={"servers": stream.server.url})
        define("wrong", "ingest", server={"servers": "nats://127.0.0.1:1"})
        define("mapped", "transform", mapping=str(tmp_path / "mapping.conf"))
        define("tried", "dry-run", candidate=str(tmp_path / "mapping.conf"))
        job = project.load().resolve_implicit_global_asset_job_def()

        def make(name: str) -> dg.ExecuteInProcessResult:
            return job.execute_in_process(
                instance=project.instance,
                asset_selection=[dg.AssetKey(name)],
                raise_on_error=False,
            )

        right, mapped, tried, wrong = make("right"), make("mapped"), make("tried"), make("wrong")
        assert right.success
        (made,) = right.asset_materializations_for_node("right")
        found = rows(spark, Warehouse(dir=warehouse), MESSAGES)
        assert made.metadata["messages"].value == len(found) == 100
        assert made.metadata["stream"].value == stream.name
        told = [log.user_message for log in project.instance.all_logs(right.run_id)]
        assert "job ingest: right.json" in told
        assert any(text and text.startswith(f"archiving {stream.name}") for text in told), told
        (made,) = mapped.asset_materializations_for_node("mapped")
        found = rows(spark, Warehouse(dir=warehouse), TRANSFORMED)
        assert made.metadata["messages"].value == len(found) == 100
        fates = Counter(row["fate"] for row in found)
        checks = mapped.get_asset_check_evaluations()
        assert {check.check_name: check.passed for check in checks}["same_result_twice"]
        counted = made.metadata["fates"].value
        assert isinstance(counted, dict)
        assert {fate: count for fate, count in counted.items() if count} == dict(fates)
        (made,) = tried.asset_materializations_for_node("tried")
        summary = made.metadata["summary"].value
        assert isinstance(summary, dict)
        assert summary["messages"] == 100
        assert not wrong.success
        told = [log.user_message for log in project.instance.all_logs(wrong.run_id)]
        assert any(says(one, "server-not-reached", where="127.0.0.1:1") for one in told)


def test_executors_that_are_killed_in_an_ingest(
    cluster: Cluster, submit: Submit, stream: Any, tmp_path: Path
) -> None:
    """Spark starts others and the ingest is complete; nothing is doubled."""
    stream.count(100_000)
    settings = {
        "stream": stream.name,
        "server": {"servers": stream.server.url},
        "warehouse": {"dir": str(tmp_path / "warehouse")},
        "readers": 5,  # a task each, so that the second kill finds work, too
    }
    (tmp_path / "ingest.json").write_text(json.dumps(settings))
    table = tmp_path / "warehouse" / "nats" / "messages"
    with killing(table, cluster.kill_executor, times=2) as signs:
        result = result_of(submit(tmp_path, "ingest", "ingest.json"))
    assert len(signs) == 2
    assert (result["messages"], result["gaps"]) == (100_000, 0)
    found = rows_of(Warehouse(dir=tmp_path / "warehouse"), stream.name)
    assert [row.seq for row in found] == list(range(1, 100_001))


@pytest.mark.parametrize(
    "kill", [Cluster.kill_executor, Cluster.kill_python], ids=["executor", "python"]
)
def test_workers_that_are_killed_in_a_transform(
    cluster: Cluster, submit: Submit, work: Work, kill: Callable[[Cluster], bool]
) -> None:
    with killing(work.table, lambda: kill(cluster), times=2) as signs:
        result = result_of(submit(work.folder, "transform", "transform.json"))
    assert len(signs) == 2
    work.assert_made(result)


QUARANTINE = """
import sys
from pathlib import Path
from expectations.great import suite_of
from expectations.quarantine import Sieve
from jobs.session import SessionOnDemand
from jobs.settings.spark import SparkSettings
from jobs.settings.transform import TransformSettings
from jobs.transform import transform

folder, master, checkout = sys.argv[1:]
config = {
    "spark.executorEnv.PYTHONPATH": checkout,
    "spark.executor.memory": "512m",
    "spark.driver.host": "127.0.0.1",
}
regex = {"type": "expect_column_values_to_not_match_regex"}
suite = suite_of("threes", [regex | {"kwargs": {"column": "subject", "regex": "3$"}}])
settings = TransformSettings.model_validate_json(Path(folder, "transform.json").read_text())
spark = SessionOnDemand(SparkSettings(master=master, config=config))
print(transform(spark, settings, sift=Sieve([suite])).model_dump_json())
"""


def test_a_quarantine_on_a_cluster(cluster: Cluster, work: Work) -> None:
    """An executor is killed meanwhile; each message is in one of both tables all the same."""
    with killing(work.table, cluster.kill_executor, times=1) as signs:
        environment = cluster.environment | {"PYSPARK_DRIVER_PYTHON": sys.executable}
        run = in_python(QUARANTINE, work.folder, cluster.master, ROOT, env=os.environ | environment)
    assert run.returncode == 0, run.stderr
    assert len(signs) == 1
    result = json.loads(run.stdout)
    assert (result["engine"], result["refused"]) == ("spark", None)
    kept, apart = (
        rows_of(Warehouse(dir=work.folder / "far"), spec=spec)
        for spec in (TRANSFORMED, QUARANTINED)
    )
    assert {row.subject for row in apart} == {b"S.n.3"}
    assert sorted(row.seq for row in (*kept, *apart)) == [*range(1, COUNT_OF_WORK + 1)]
    assert result["quarantined"] == {"threes: expect_column_values_to_not_match_regex": len(apart)}


def test_a_slow_task_that_runs_twice(
    cluster: Cluster, submit: Submit, work: Work, tmp_path: Path
) -> None:
    """Spark starts it again elsewhere while the first attempt is asleep: one file counts."""
    logged, stopped = tmp_path / "events", list[int]()
    config = logging_to(logged) | {
        "spark.speculation": "true",
        "spark.speculation.quantile": "0.1",
        "spark.speculation.multiplier": "1.01",
        "spark.speculation.minTaskRuntime": "100ms",
    }

    def stop() -> bool:
        for process in cluster.pythons()[:1]:
            os.kill(process, signal.SIGSTOP)
            stopped.append(process)
        return bool(stopped)

    try:
        with killing(work.table, stop, times=1):
            result = result_of(submit(work.folder, "transform", "transform.json", config=config))
    finally:
        for process in stopped:
            with suppress(ProcessLookupError):  # Spark has killed it
                os.kill(process, signal.SIGKILL)
    assert any(event["Task Info"]["Speculative"] for event in events(logged, "TaskStart"))
    work.assert_made(result)


def test_a_driver_that_is_killed_on_a_cluster(cluster: Cluster, submit: Submit, work: Work) -> None:
    """Its executors end, and nothing is published; the next run does it all."""
    process = submit(work.folder, "transform", "transform.json")

    def kill() -> bool:
        os.killpg(process.pid, signal.SIGKILL)
        return True

    with killing(work.table, kill, times=1) as signs:
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert len(signs) == 1
    while cluster.executors():  # pytest's timeout ends it
        time.sleep(0.1)
    table = open_table(Warehouse(dir=work.folder / "far"), TRANSFORMED)
    assert table.current_snapshot() is None
    work.assert_made(result_of(submit(work.folder, "transform", "transform.json")))


def connect_settings(archive: Path) -> dict[str, str]:
    """Those of a Spark Connect server whose executors have the packages of its client."""
    return {
        "spark.executor.memory": "512m",
        "spark.driver.memory": "512m",
        "spark.executorEnv.PYTHONPATH": str(archive),
    }


def by_connect(
    python: Path, archive: Path, work: Work, url: str
) -> subprocess.CompletedProcess[str]:
    """A transform by a Spark Connect server."""
    line = ("-m", "nats_transform.jobs", "transform", "transform.json", "--remote", url)
    return ended(python, *line, cwd=work.folder, env=os.environ | {"PYTHONPATH": str(archive)})


def test_executors_of_a_connect_server_that_are_killed(
    cluster: Cluster, archive: Path, bare_python: Path, work: Work
) -> None:
    """The client and the executors have the same packages, from the same file."""
    with (
        connect_server(cluster, work.folder, connect_settings(archive)) as (url, server),
        killing(work.table, cluster.kill_executor, times=2) as signs,
    ):
        done = by_connect(bare_python, archive, work, url)
    assert done.returncode == 0, done.stderr[-3000:] + server.log.read_text()[-3000:]
    assert len(signs) == 2
    work.assert_made(json.loads(done.stdout))


def test_a_connect_server_that_is_killed(
    cluster: Cluster, archive: Path, bare_python: Path, work: Work
) -> None:
    """Exit code 2, one line and nothing published; with another server the next run does it all."""
    with connect_server(cluster, work.folder, connect_settings(archive)) as (url, server):

        def kill() -> bool:
            server.process.kill()
            return True

        with killing(work.table, kill, times=1) as signs:
            done = by_connect(bare_python, archive, work, url)
    assert len(signs) == 1
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: {sentence('spark-connect-gone')}\n"
    table = open_table(Warehouse(dir=work.folder / "far"), TRANSFORMED)
    assert table.current_snapshot() is None
    while cluster.executors():  # pytest's timeout ends it
        time.sleep(0.1)
    (again := work.folder / "again").mkdir()
    with connect_server(cluster, again, connect_settings(archive)) as (url, server):
        done = by_connect(bare_python, archive, work, url)
    assert done.returncode == 0, done.stderr[-3000:] + server.log.read_text()[-3000:]
    work.assert_made(json.loads(done.stdout))
