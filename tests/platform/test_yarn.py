"""Spark on YARN by the commands of the docs; containers are processes of this machine."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import sys
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from jobs.jetstream.process import NatsServer
from tests.support.killing import killing, work_in
from tests.support.programs import BIN, ended, output_of
from tests.support.spark_cluster import QUICK_JAVA, SPARK_HOME
from tests.support.streams import new_stream, settings_of_ingest
from tests.support.yarn import Yarn, java_home, yarn

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
HERE = {
    # Without it Spark packs its own jars, 400 MB, on each submit.
    "spark.yarn.jars": f"local:{quote(str(SPARK_HOME))}/jars/*",
    "spark.driver.host": "127.0.0.1",
    "spark.executor.instances": "2",
    # Nothing starts before both are there, so that each has something to do.
    "spark.scheduler.minRegisteredResourcesRatio": "1",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "250s",
    "spark.executor.memory": "512m",
    "spark.driver.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
}
UTF_8 = {"LC_ALL": "C.UTF-8"}  # the path of a checkout may have any letters
COUNT = 40_000  # two readers take two tasks, one for each executor
# Run by every Python that starts in the environment.
TELL = "import os, sys; open(f'python-{os.getpid()}.prefix', 'w').write(sys.prefix)\n"


def command_of(pattern: str) -> list[str]:
    """The words of the one line in docs/operations.md that is a command of this kind."""
    text = (ROOT / "docs" / "operations.md").read_text()
    (line,) = re.findall(f"^{pattern}.*$", text, re.MULTILINE)
    return shlex.split(line)


def checkout(folder: Path) -> None:
    """What the commands need of a checkout, and `environment`, with our dependencies only."""
    for name in ("nats_transform", "jobs", "expectations", "orchestration", "cli", "deploy"):
        shutil.copytree(ROOT / name, folder / name)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    # Not installed again, which would take minutes: the packages of the tests, by their folder.
    # That folder's own .pth files are not read, so the checkout's packages are not among them.
    venv.create(folder / "environment", symlinks=True)
    minor = f"python3.{sys.version_info.minor}"
    packages = folder / "environment" / "lib" / minor / "site-packages"
    (packages / "base.pth").write_text(sysconfig.get_path("purelib") + "\n" + TELL)


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with the two files that the commands of the docs make to be sent along."""
    folder = tmp_path_factory.mktemp("shipped") / "checkout"
    checkout(folder)
    for pattern in ("python -m pip wheel ", r"tar -czf environment\.tar\.gz "):
        output_of(*command_of(pattern), cwd=folder, env=on_host())
    (wheel,) = (folder / "build").glob("*.whl")
    wheel.rename(folder / "build" / "nats_transform.zip")
    return folder


def on_host() -> dict[str, str]:
    """The environment of the commands."""
    return (
        {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        | {
            "PATH": os.pathsep.join([str(BIN), os.environ["PATH"]]),
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "JDK_JAVA_OPTIONS": QUICK_JAVA,
        }
        | UTF_8
    )


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Yarn]:
    """Nothing of ours is on a node's path, and its own Java is not the one that Spark needs."""
    node = {"PATH": os.defpath, "JAVA_HOME": "/no/such/java", "JDK_JAVA_OPTIONS": QUICK_JAVA}
    node |= UTF_8
    with yarn(tmp_path / "yarn", node) as running:
        yield running


def submit(cluster: Yarn, shipped: Path, folder: Path, job: str) -> Any:
    """What a job says whose settings are in the folder, by the command of the docs."""
    command, *words, _, _ = command_of("spark-submit --master yarn ")
    words = [re.sub(r"(?<=\.JAVA_HOME=).*", java_home(), word) for word in words]
    ours = HERE | {"spark.yarn.stagingDir": str(folder / "staging")}
    options = [word for pair in ours.items() for word in ("--conf", "=".join(pair))]
    done = ended(
        *(command, *options, *words, job, folder / f"{job}.json"),
        cwd=shipped,
        env=on_host() | {"HADOOP_CONF_DIR": str(cluster.conf)},
    )
    logs = "".join(container.log for container in cluster.containers)
    assert done.returncode == 0, f"{cluster.refused}\n{logs[-5000:]}\n{done.stderr[-5000:]}"
    cluster.wait()
    return json.loads(done.stdout.splitlines()[-1])


def test_executors_in_containers(
    cluster: Yarn, shipped: Path, nats_server: NatsServer, tmp_path: Path
) -> None:
    """By the commands of the docs: the archive's Python runs in containers, the ingest is right."""
    stream = new_stream(nats_server)
    stream.count(COUNT)
    settings_of_ingest(tmp_path, nats_server, stream.name, readers=2)
    assert submit(cluster, shipped, tmp_path, "ingest")["messages"] == COUNT
    assert not cluster.refused
    assert cluster.final == "SUCCEEDED"
    master, *executors = cluster.containers
    assert len(executors) == 2
    assert master.code == 0
    assert "Unregistering ApplicationMaster with SUCCEEDED" in master.log
    for executor in executors:
        assert "Successfully registered with driver" in executor.log
        told = {file.read_text() for file in executor.folder.glob("python-*.prefix")}
        assert told == {str(executor.folder / "environment")}
        # Unpacked on the node, and not the folder that the archive was made from.
        assert not (executor.folder / "environment").samefile(shipped / "environment")


def test_a_container_that_is_killed(cluster: Yarn, shipped: Path, tmp_path: Path) -> None:
    """Its tasks are done elsewhere, and the transform is complete; nothing is doubled."""
    work = work_in(tmp_path)
    with killing(work.table, cluster.kill_executor, times=1) as signs:
        result = submit(cluster, shipped, work.folder, "transform")
    assert len(signs) == 1
    assert not cluster.refused
    assert cluster.final == "SUCCEEDED"
    assert -signal.SIGKILL in [container.code for container in cluster.containers[1:]]
    work.assert_made(result)
