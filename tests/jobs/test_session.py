"""The session: what the tables need of it, and one line where Java is missing."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from jobs.errors import SparkUnavailable
from jobs.session import spark_session
from jobs.settings.spark import SparkSettings
from nats_transform.errors import sentence
from tests.support.programs import in_python
from tests.support.refused import refused
from tests.support.spark_cluster import free_port


@pytest.mark.spark
def test_what_the_tables_need(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.parquet.outputTimestampType") == "TIMESTAMP_MICROS"
    assert spark.conf.get("spark.ui.enabled") == "false"


def program(path: Path, code: str) -> None:
    """A program of the shell."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{code}\n")
    path.chmod(0o755)


JAVAS = [
    (None, "java-does-not-run", {}),
    ('openjdk version "11.0.2" 2019-01-15', "java-version", {"version": 11}),
    ('java version "1.8.0_291"', "java-version", {"version": 8}),
    ('openjdk version "25" 2025-09-16', "java-version", {"version": 25}),
    ("hello", "java-version", {"version": "?"}),
]


@pytest.mark.parametrize(("says", "code", "fields"), JAVAS)
def test_java_is_checked(
    says: str | None, code: str, fields: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if says is not None:
        program(tmp_path / "bin" / "java", f"echo '{says}' >&2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)  # else it has its Java
    with refused(SparkUnavailable, code, **fields):
        spark_session(SparkSettings())


def test_no_java_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    with refused(SparkUnavailable, "no-java"):
        spark_session(SparkSettings())


def test_master_and_remote_exclude_each_other() -> None:
    with refused(ValidationError, "not-both", options="--master or --remote"):
        SparkSettings(master="local", remote="sc://somewhere")


@pytest.mark.parametrize(
    "remote",
    [
        "host:15002",
        "sc://",
        "sc:///;token=hush",
        "sc://host:port/;token=hush",
        "sc://host/path;token=hush",
        "sc://host/;token=hush=",
    ],
)
def test_an_address_that_is_none_of_spark_connect(remote: str) -> None:
    """The cure is told, and the token is not."""
    with refused(SparkUnavailable, "not-a-spark-server") as told:
        spark_session(SparkSettings(remote=remote))
    assert "hush" not in str(told.value)


def test_a_connect_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.session.CONNECT_PATIENCE", 0.1)
    where = f"127.0.0.1:{free_port()}"
    with refused(SparkUnavailable, "spark-server-silent", address=where, seconds="0.1"):
        spark_session(SparkSettings(remote=f"sc://{where}/;token=hush"))


# Asks a JVM that is no longer there, again and again: py4j says something else each time.
KILLED = """
from jobs.spark_errors import SPARK_ERRORS, job_error
from jobs.session import spark_session
from jobs.settings.spark import SparkSettings

spark = spark_session(SparkSettings(master="local[1]"))
try:
    spark.sql("SELECT raise_error('planted')").collect()
except SPARK_ERRORS as error:
    raised = error
try:
    spark._jvm.java.lang.Integer.parseInt("planted")
except SPARK_ERRORS as error:
    in_the_jvm = error
jvm = spark.sparkContext._gateway.proc
jvm.kill()
jvm.wait()
errors = [raised, in_the_jvm]
for _ in range(4):
    try:
        spark.range(9).count()
    except SPARK_ERRORS as error:
        errors.append(error)
for error in errors:
    print(str(job_error(error)))
"""


@pytest.mark.slow
@pytest.mark.spark
def test_a_killed_jvm_is_told_on_one_line() -> None:
    child = in_python(KILLED)
    told = child.stdout.splitlines()
    assert len(told) == 6, child.stderr
    assert all("planted" in line for line in told[:2]), told
    assert {*told[2:]} == {sentence("spark-gone")}


def others_may_read(path: Path) -> bool:
    """Whether any user of the host may read a file: its own mode, and those of its folders."""
    with contextlib.suppress(FileNotFoundError):
        readable = path.stat().st_mode & stat.S_IROTH
        return bool(readable) and all(p.stat().st_mode & stat.S_IXOTH for p in path.parents)
    return False  # it is deleted already


@pytest.mark.spark
def test_nobody_else_reads_the_scratch_folders(spark: SparkSession) -> None:
    """While Spark works: neither its folders nor any temporary file that it has open."""
    shuffled = spark.range(1000).repartition(3)
    assert shuffled.select(F.udf(lambda number: number)("id")).distinct().count() == 1000
    jvm: Any = spark.sparkContext._jvm
    top = Path(jvm.java.lang.System.getProperty("java.io.tmpdir"))
    assert (top.stat().st_mode & 0o777, top.stat().st_uid) == (0o700, os.getuid())
    blocks = spark.sparkContext._jsc.sc().env().blockManager().diskBlockManager().localDirs()
    scratch = [Path(folder.getPath()) for folder in blocks]
    assert scratch
    assert all(folder.is_relative_to(top) for folder in scratch)
    files = [file for folder in scratch for file in folder.rglob("*") if file.is_file()]
    assert files  # of the shuffle
    process = Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}")
    opened = {Path(os.path.realpath(link)) for link in (process / "fd").iterdir()}
    maps = (process / "maps").read_text().splitlines()
    mapped = {Path(line.split(maxsplit=5)[5]) for line in maps if "/" in line}
    temporary = Path(tempfile.gettempdir())
    # What is installed is no scratch file, also where the checkout itself is a temporary folder.
    made = {path for path in opened | mapped if not path.is_relative_to(sys.prefix)} | {*files}
    held = {path for path in made if path.is_relative_to(temporary)}
    assert [path for path in held if others_may_read(path)] == []


def planted(folder: Path) -> Path:
    """A folder of somebody else's, with code that PySpark by itself would run, and its trace."""
    trace = folder / "trace"
    below = folder / "below"
    for name in ("jars", "below"):
        (folder / name).mkdir()
    program(folder / "bin" / "spark-submit", f"echo Spark >> '{trace}'\nexit 1")
    # One of the modules that Spark's daemon for Python workers imports first.
    (below / "faulthandler.py").write_text(f"open({str(trace)!r}, 'a').write('worker')\n")
    return below


STARTS = """
from jobs.errors import SparkUnavailable
from jobs.session import spark_session
from jobs.settings.spark import SparkSettings

try:
    spark_session(SparkSettings(master="local[1]"))
except SparkUnavailable as error:
    print(error.code)
"""


def test_the_folder_above_is_not_taken_for_spark(tmp_path: Path) -> None:
    """With a Java that only says its version, so that it is Spark's own launcher that fails."""
    says = "echo 'version \"17.0.1\"' >&2\n[ $1 = -version ]"
    program(tmp_path / "java" / "bin" / "java", says)
    below = planted(tmp_path)
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
    environment["JAVA_HOME"] = str(tmp_path / "java")
    done = in_python(STARTS, flags=["-P"], env=environment, cwd=below)
    assert done.stdout == "spark-does-not-start\n", done.stderr
    assert not (tmp_path / "trace").exists()


SCRATCH = """
import os
from pyspark import SparkContext
from jobs.session import spark_session
from jobs.settings.spark import SparkSettings

given = dict(os.environ)
spark = spark_session(SparkSettings({how}="local[1]"))
assert spark.range(3).mapInArrow(lambda batches: batches, "id long").count() == 3
assert given.items() <= os.environ.items()
assert "PYTHONSAFEPATH" not in os.environ
context = SparkContext._active_spark_context
blocks = context._jsc.sc().env().blockManager().diskBlockManager().localDirs()
for folder in [context._jvm.java.lang.System.getProperty("java.io.tmpdir"), blocks[0].getParent()]:
    print(os.path.dirname(folder), oct(os.stat(folder).st_mode), sep="\\n")
print(os.environ["SPARK_LOCAL_DIRS"])
"""


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("how", ["master", "remote"])
def test_scratch_folders_go_with_the_jvm(tmp_path: Path, how: str) -> None:
    """And no code of the folder where it was started is run."""
    scratch = tmp_path / "scratch here"  # Spark makes a folder that is not there
    environment = os.environ | {"SPARK_LOCAL_DIRS": str(scratch)}
    code, below = SCRATCH.format(how=how), planted(tmp_path)
    done = in_python(code, flags=["-P"], env=environment, cwd=below)
    assert not (tmp_path / "trace").exists()
    assert done.stdout.splitlines() == [str(scratch), "0o40700"] * 2 + [str(scratch)], done.stderr
    while list(scratch.iterdir()):  # the JVM ends after us; pytest's timeout ends this
        time.sleep(0.05)
