"""A Spark standalone cluster for tests: a master and workers, each a process of its own."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

SPARK_HOME = Path(pyspark.__file__).parent
# As for the session of the tests: the second compiler costs more than it brings.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@dataclass
class Daemon:
    """A process with a log of its own."""

    process: subprocess.Popen[bytes]
    log: Path

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Where the log says something; fails once the process is gone."""
        while True:
            text = self.log.read_text(errors="replace")
            if (found := re.search(pattern, text)) is not None:
                return found
            assert self.process.poll() is None, text
            time.sleep(0.2)  # pytest's timeout ends it

    def kill(self) -> None:
        """Ends it, and all that it has started, at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


@contextmanager
def daemon(
    command: list[str], log: Path, environment: Mapping[str, str], cwd: Path | None = None
) -> Iterator[Daemon]:
    """A process that is stopped at the end, and all that it has started then too."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            env=dict(environment),
            cwd=cwd,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    made = Daemon(process, log)
    try:
        yield made
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)
        made.kill()
        process.wait()


@dataclass
class Cluster:
    """A running cluster.

    Attributes:
        master: the URL for `--master`.
        workers: their processes, for tests that kill one.
        environment: what a driver needs beside its own.
    """

    master: str
    workers: list[Daemon]
    environment: dict[str, str]

    def executors(self) -> list[int]:
        """The processes of the executors that run now."""
        workers = {worker.process.pid for worker in self.workers}
        return children(workers, b"CoarseGrainedExecutorBackend")

    def kill_executor(self) -> bool:
        """kill -9 of an executor, if there is one."""
        return _kill_one(self.executors())

    def pythons(self) -> list[int]:
        """The Python processes in which executors run tasks now."""
        return children({*children({*self.executors()}, b"pyspark.daemon")}, b"pyspark.daemon")

    def kill_python(self) -> bool:
        """kill -9 of a Python process in which an executor runs a task, if there is one."""
        return _kill_one(self.pythons())


def children(parents: set[int], word: bytes = b"") -> list[int]:
    """The processes that these have started, with this word in their command."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # ended just now
            command = (entry / "cmdline").read_bytes()
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if word in command and parent in parents:
                found.append(int(entry.name))
    return found


def family(top: int) -> set[int]:
    """A process, and all that it and what it started have started."""
    found = more = {top}
    while more:
        more = {*children(more)}
        found = found | more
    return found


def _kill_one(processes: list[int]) -> bool:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
            return True
    return False


def without_python_path() -> dict[str, str]:
    """The environment, where Python does not find the packages of the checkout."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


@contextmanager
def spark_cluster(
    folder: Path,
    workers: int = 2,
    python: str = sys.executable,
    memory: str = "1g",
    java: str = QUICK_JAVA,
) -> Iterator[Cluster]:
    """A cluster on loopback.

    Args:
        folder: of logs and scratch files.
        workers: how many, with one core each.
        python: the interpreter of executors.
        memory: of each worker.
        java: options of every JVM.
    """
    folder.mkdir(parents=True, exist_ok=True)
    scratch = {
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_HOSTNAME": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_WORKER_DIR": str(folder / "work"),
        "PYSPARK_PYTHON": python,
        "JDK_JAVA_OPTIONS": java,
    }
    # The master must not see the Python path of the tests: what is shipped has to be enough.
    environment = without_python_path() | scratch
    spark_class = str(SPARK_HOME / "bin" / "spark-class")
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    with ExitStack() as running:
        arguments = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
        command = [spark_class, "org.apache.spark.deploy.master.Master", *arguments]
        started = daemon(command, folder / "master.log", environment, folder)
        running.enter_context(started).wait_for("I have been elected leader")
        found = []
        for n in range(workers):
            # Each on a host of its own: Spark starts no second attempt of a task on the same one.
            host = f"127.0.0.{n + 1}"
            arguments = ["--host", host, "--webui-port", "0", "--cores", "1", "--memory", memory]
            own = {"SPARK_LOCAL_IP": host, "SPARK_LOCAL_HOSTNAME": host}
            command = [spark_class, "org.apache.spark.deploy.worker.Worker", *arguments, url]
            worker = daemon(command, folder / f"worker-{n}.log", environment | own, folder)
            found.append(running.enter_context(worker))
        for worker in found:
            worker.wait_for("Successfully registered with master")
        yield Cluster(url, found, scratch)


@contextmanager
def connect_server(
    cluster: Cluster, folder: Path, settings: Mapping[str, str]
) -> Iterator[tuple[str, Daemon]]:
    """A Spark Connect server whose executors are on a cluster: its URL, and its process.

    Args:
        cluster: where executors run.
        folder: of its log.
        settings: more of Spark's.
    """
    port = free_port()
    given = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": "127.0.0.1",
        **settings,
    }
    options = [word for pair in given.items() for word in ("--conf", "=".join(pair))]
    command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", cluster.master, *options]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    command.append("spark-internal")
    environment = without_python_path() | cluster.environment
    with daemon(command, folder / "connect.log", environment, folder) as server:
        server.wait_for("Spark Connect server started at")
        yield f"sc://127.0.0.1:{port}", server
