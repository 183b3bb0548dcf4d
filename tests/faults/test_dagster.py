"""Faults of what is around Dagster's runs: its daemon, and the Postgres that remembers for it."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from datetime import date
from pathlib import Path

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from jobs.warehouse import specs, tables
from nats_transform.spark import digest
from tests.support.dagster_processes import BIN, ONE_WRITER, Webserver, environment, webserver
from tests.support.dagster_project import DAYS, Project, empty_project
from tests.support.files import written
from tests.support.postgres import postgres
from tests.support.spark_cluster import Daemon, daemon, family, free_port

pytestmark = [pytest.mark.dagster, pytest.mark.spark, pytest.mark.slow]

# 127.0.0.1 as /proc/net writes it: of Dagster, and of a JVM that an earlier test started here.
IPV4_LOOPBACK, MAPPED_LOOPBACK = "0100007F", "0000000000000000FFFF00000100007F"

# As deploy/production has it, but it looks more often.
MONITORED = (
    ONE_WRITER
    + """run_coordinator:
  module: dagster.core.run_coordinator
  class: QueuedRunCoordinator
  config:
    max_user_code_failure_retries: 500
    user_code_failure_retry_delay: 2
run_monitoring:
  enabled: true
  start_timeout_seconds: 120
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


LOCATIONS = (
    "{ repositoriesOrError { ... on RepositoryConnection { nodes { location { name } } } } }"
)
ASSETS = [["east", asset] for asset in ("messages", "transformed_messages")]


def reached(paths: Sequence[str]) -> list[str]:
    """The files that another user may read, and the sockets that he can connect to."""
    answer, told = os.pipe()
    if (child := os.fork()) == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        found = [path for path in paths if os.access(path, os.R_OK) and os.path.isfile(path)]
        for path in paths:
            with suppress(OSError), socket.socket(socket.AF_UNIX) as one:
                one.connect(path)
                found.append(path)
        os.write(told, json.dumps(found).encode())
        os._exit(0)
    os.close(told)
    with open(answer) as text:
        found = json.load(text)
    os.waitpid(child, 0)
    return list(found)


def listening(top: int) -> tuple[list[str], list[str]]:
    """The addresses (in hexadecimal) and the sockets of a process and of all that it started."""
    inodes = set()
    for one in family(top):
        with suppress(OSError):  # it has just ended
            links = [os.readlink(link) for link in Path(f"/proc/{one}/fd").iterdir()]
            inodes |= {link[8:-1] for link in links if link.startswith("socket:[")}
    tables = [
        line.split()
        for name in ("tcp", "tcp6", "unix")
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
    ]
    addresses = [row[1] for row in tables if row[3] == "0A" and row[9:10] and row[9] in inodes]
    return addresses, [row[7] for row in tables if len(row) == 8 and row[6] in inodes]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # the child does next to nothing
def test_what_another_user_reaches_of_dagster(monkeypatch: pytest.MonkeyPatch) -> None:
    """No address but loopback, no socket, and no file of a DAGSTER_HOME of mode 0700."""
    if os.getuid() != 0:
        pytest.skip("to become another user takes the rights of root")
    with ExitStack() as running:
        root = Path(running.enter_context(tempfile.TemporaryDirectory()))
        root.chmod(0o755)
        project = running.enter_context(empty_project(root, monkeypatch, ONE_WRITER))
        (root / "dagster").chmod(0o700)
        (root / "open").write_text("all may read this")
        project.add("east", count=COUNT)
        running.enter_context(webserver(project))
        addresses, sockets = listening(os.getpid())
        files = [str(file) for file in (root / "dagster").rglob("*") if file.is_file()]
        assert files
        assert sockets
        found = reached([*files, *sockets, str(root / "open")])
        assert found == [str(root / "open")]
        hosts = {address.partition(":")[0] for address in addresses}
        assert IPV4_LOOPBACK in hosts
        assert hosts <= {IPV4_LOOPBACK, MAPPED_LOOPBACK}


class Service:
    """A process that is started again: all that it left behind ends with the test."""

    def __init__(self, project: Project, running: ExitStack, *command: str) -> None:
        self.project = project
        self.running = running
        self.command = [str(BIN / command[0]), *command[1:]]
        self.log = project.root / f"{command[0]}-service.log"
        self.now: Daemon | None = None

    def keep(self) -> Daemon:
        """The one that runs; a new one if there is none."""
        if self.now is None or self.now.process.poll() is not None:
            started = daemon(self.command, self.log, environment(self.project), self.project.root)
            self.now = self.running.enter_context(started)
        return self.now

    def kill(self, group: bool = False) -> None:
        """kill -9 of the process alone, or of all that it has started too, as of a container."""
        if self.now is not None:
            if group:
                os.killpg(self.now.process.pid, signal.SIGKILL)
            self.now.process.kill()
            self.now.process.wait()


def the_daemon(project: Project, running: ExitStack) -> Service:
    """Dagster's daemon, with a code server of its own."""
    return Service(project, running, "dagster-daemon", "run", "-m", f"{project.name}.definitions")


def last_of(instance: dg.DagsterInstance, run: str) -> dg.DagsterRunStatus:
    """How a run stands, or the one that was started in its place."""
    group = instance.get_run_group(run)
    assert group is not None
    (*_, last) = sorted(group[1], key=lambda one: one.run_id != run)
    assert last.run_id == run or last.status is not dg.DagsterRunStatus.FAILURE
    return last.status


def until(found: Callable[[], bool], between: Callable[[], object]) -> None:
    """Waits, and does something meanwhile; pytest's timeout ends it."""
    while not found():
        between()
        time.sleep(0.1)


def assert_complete(project: Project, spark: SparkSession, days: Sequence[date]) -> None:
    """Every message is there once in both tables, and the rows are those the commits speak of."""
    wanted = list(range(1, COUNT // len(DAYS) * len(days) + 1))
    for spec in (specs.MESSAGES, specs.TRANSFORMED):
        rows = project.rows(spark, spec)
        assert sorted(row.seq for row in rows.select("seq").collect()) == wanted
    assert rows.select("mapping_version").distinct().count() == 1
    snapshots = tables.open_table(project.warehouse, specs.TRANSFORMED).metadata.snapshots
    published = [tables.properties_of(one).get("digest") for one in snapshots]
    for day in days:
        assert str(digest.digest(project.rows(spark, days=[day]))) in published


def test_a_daemon_that_is_killed_again_and_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """As a run is being launched, then at any moment: each run that was asked for ends well."""
    chance = random.Random(seed)
    with empty_project(tmp_path, monkeypatch, MONITORED) as project, ExitStack() as running:
        project.add("east", count=COUNT)
        project.made("east", ["mapping_version"])
        instance, service = project.instance, the_daemon(project, running)
        with webserver(project) as server:
            runs = [server.launch(ASSETS, {"dagster/partition": f"{day}"}) for day in DAYS]
        queued, success = dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.SUCCESS
        until(lambda: any(last_of(instance, run) is not queued for run in runs), service.keep)
        kills, moment = 0, 0.0
        while not all(last_of(instance, run) is success for run in runs):
            if kills < 8 and time.monotonic() >= moment:
                service.kill()
                kills += 1
                moment = time.monotonic() + chance.uniform(1, 10)
            service.keep()
            time.sleep(0.1)
        assert kills >= 2  # two runs, one after the other, take longer than the longest pause
        assert_complete(project, spark, DAYS)
        # Nothing was done by two runs.
        succeeded = dg.DagsterEventType.STEP_SUCCESS
        done = [instance.all_logs(one.run_id, of_type=succeeded) for one in instance.get_runs()]
        steps = [log.step_key for logs in done for log in logs]
        assert sorted(filter(None, steps)) == sorted(
            ["east__mapping_version", *[f"east__{asset}" for _, asset in ASSETS] * len(DAYS)]
        )


def test_a_code_server_that_is_killed_with_its_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a container is: runs in the queue wait for the next one, and what it ran runs again."""
    with empty_project(tmp_path, monkeypatch, MONITORED) as project, ExitStack() as running:
        project.add("east", count=COUNT)
        project.made("east", ["mapping_version"])
        instance, location, port = project.instance, f"{project.name}.definitions", free_port()
        where = f"host: 127.0.0.1, port: {port}, location_name: {location}"
        text = f"load_from: [grpc_server: {{{where}}}]"
        workspace = written(project.root / "workspace.yaml", text)
        options = ("-h", "127.0.0.1", "-p", str(port), "-m", location)
        code = Service(project, running, "dagster", "api", "grpc", *options)
        code.keep()
        server = running.enter_context(webserver(project, "-w", str(workspace)))
        until(lambda: location in str(server.ask(LOCATIONS)), code.keep)
        run = server.launch(ASSETS, {"dagster/partition": f"{DAYS[0]}"})
        code.kill(group=True)
        service = Service(project, running, "dagster-daemon", "run", "-w", str(workspace))
        until(lambda: "re-submitting the run" in messages(instance, run), service.keep)
        code.keep()
        started = dg.DagsterEventType.STEP_START
        until(lambda: instance.all_logs(run, of_type=started) != [], service.keep)
        code.kill(group=True)
        time.sleep(10)  # twice the monitor's interval: a server that does not answer is no verdict
        assert last_of(instance, run) is dg.DagsterRunStatus.STARTED
        code.keep()
        success = dg.DagsterRunStatus.SUCCESS
        until(lambda: last_of(instance, run) is success, service.keep)
        assert "was replaced" in messages(instance, run)
        assert_complete(project, spark, DAYS[:1])


def messages(instance: dg.DagsterInstance, run: str) -> str:
    """All that Dagster logged of a run."""
    return "\n".join(log.message for log in instance.all_logs(run))


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
        project.made("east", ["mapping_version"])
        instance, service = project.instance, the_daemon(project, running)
        server = running.enter_context(webserver(project))
        run = server.launch(ASSETS, {"dagster/partition": f"{DAYS[0]}"})
        started = dg.DagsterEventType.STEP_START
        until(lambda: instance.all_logs(run, of_type=started) != [], service.keep)
        database.stop()
        end = time.monotonic() + seconds
        until(lambda: time.monotonic() >= end, service.keep)
        database.start()
        success = dg.DagsterRunStatus.SUCCESS
        until(lambda: last_of(instance, run) is success, service.keep)
        until(lambda: answers(server), service.keep)
        assert_complete(project, spark, DAYS[:1])


def answers(server: Webserver) -> bool:
    """Whether it reads its database; a connection of before is found broken by the first to ask."""
    try:
        return bool(server.ask("{ runsOrError(limit: 1) { ... on Runs { results { status } } } }"))
    except OSError:
        return False
