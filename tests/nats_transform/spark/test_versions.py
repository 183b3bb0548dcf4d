"""The same results on the oldest and the newest PySpark that pyproject.toml allows."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from pyspark.sql import SparkSession

from nats_transform.spark import apply, digest
from tests.nats_transform.spark.test_frames import FUNCTIONS, MIXED, messages
from tests.support.programs import printed_in_python

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parents[3]
SCRIPT = """
import pyspark
from nats_transform.spark import digest
from jobs.session import spark_session
from jobs.settings.spark import SparkSettings
from nats_transform.spark import apply
from tests.nats_transform.spark.test_frames import FUNCTIONS, MIXED, messages

spark = spark_session(SparkSettings(master="local[2]", driver_memory="1g"))
print("version", pyspark.__version__, spark.version)
for mappings in (MIXED, FUNCTIONS):
    print("digest", digest.digest(apply(mappings, messages(spark), seed=5)))
spark.stop()
"""


def pyspark_range() -> Requirement:
    """What pyproject.toml asks for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = map(Requirement, project["optional-dependencies"]["spark"])
    return next(requirement for requirement in wanted if requirement.name == "pyspark")


def oldest() -> str:
    """The lower end of the range, as pip takes it."""
    (low,) = [s.version for s in pyspark_range().specifier if s.operator == ">="]
    return f"pyspark=={low}"


def newest() -> str:
    """The whole range: pip takes the newest version in it."""
    return f"pyspark{pyspark_range().specifier}"


@pytest.mark.parametrize(
    "wanted", [pytest.param(oldest(), id="oldest"), pytest.param(newest(), id="newest")]
)
def test_the_same_digest(spark: SparkSession, tmp_path: Path, wanted: str) -> None:
    """Installs that PySpark into a folder of its own; skipped where pip reaches no index."""
    folder = tmp_path / "packages"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run(
        [*install, "--target", str(folder), wanted], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"pip cannot install {wanted}: {done.stderr.strip().splitlines()[-1]}")
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PYSPARK_") and name != "SPARK_HOME"
    }
    environment["PYTHONPATH"] = os.pathsep.join([str(folder), str(ROOT)])
    ran = printed_in_python(SCRIPT, cwd=tmp_path, env=environment)
    lines = [line.split() for line in ran.splitlines()]
    (versions,) = [line[1:] for line in lines if line[0] == "version"]
    assert versions[0] == versions[1]
    assert pyspark_range().specifier.contains(versions[0])
    assert [line[1] for line in lines if line[0] == "digest"] == [
        str(digest.digest(apply(mappings, messages(spark), seed=5)))
        for mappings in (MIXED, FUNCTIONS)
    ]
