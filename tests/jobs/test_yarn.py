"""Spark on YARN by the commands of the docs; containers are processes of this machine."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any

import pytest

from tests.support.spark_cluster import QUICK_JAVA, SPARK_HOME
from tests.support.yarn import java_home, yarn

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
HERE = {
    # Without it Spark packs its own jars, 400 MB, on each submit.
    "spark.yarn.jars": f"local:{SPARK_HOME}/jars/*",
    "spark.driver.host": "127.0.0.1",
    "spark.executor.instances": "2",
    # Nothing starts before both are there, so that each has something to do.
    "spark.scheduler.minRegisteredResourcesRatio": "1",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "250s",
    "spark.executor.memory": "512m",
    "spark.driver.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
}
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


def test_executors_in_containers(stream: Any, tmp_path: Path) -> None:
    """By the commands of the docs: the archive's Python runs in containers, the ingest is right."""
    stream.count(COUNT)
    folder = tmp_path / "checkout"
    checkout(folder)
    settings = {
        "stream": stream.name,
        "server": {"servers": stream.server.url},
        "warehouse": {"dir": str(tmp_path / "warehouse")},
        "readers": 2,
    }
    (folder / "ingest.json").write_text(json.dumps(settings))
    # Nothing of ours is on a node's path, and its own Java is not the one that Spark needs.
    node = {"PATH": os.defpath, "JAVA_HOME": "/no/such/java", "JDK_JAVA_OPTIONS": QUICK_JAVA}
    here = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    here |= {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JDK_JAVA_OPTIONS": QUICK_JAVA,
    }

    def run(command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=folder, env=here, capture_output=True, text=True)

    for pattern in ("python -m pip wheel ", r"tar -czf environment\.tar\.gz "):
        made = run(command_of(pattern))
        assert made.returncode == 0, made.stderr
    (wheel,) = (folder / "build").glob("*.whl")
    wheel.rename(folder / "build" / "nats_transform.zip")
    submit, *words = command_of("spark-submit --master yarn ")
    words = [re.sub(r"(?<=\.JAVA_HOME=).*", java_home(), word) for word in words]
    ours = HERE | {"spark.yarn.stagingDir": str(tmp_path / "staging")}
    options = [word for pair in ours.items() for word in ("--conf", "=".join(pair))]

    with yarn(tmp_path / "yarn", node) as cluster:
        here["HADOOP_CONF_DIR"] = str(cluster.conf)
        done = run([submit, *options, *words])
        logs = "".join(container.log for container in cluster.containers)
        assert done.returncode == 0, f"{cluster.refused}\n{logs[-5000:]}\n{done.stderr[-5000:]}"
        cluster.wait()
    assert json.loads(done.stdout.splitlines()[-1])["messages"] == COUNT
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
        assert not (executor.folder / "environment").samefile(folder / "environment")
