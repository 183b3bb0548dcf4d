"""The Spark session of a job: local, on a cluster, or through Spark Connect."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from jobs.errors import SparkUnavailable, text_of
from jobs.progress import step
from jobs.settings.spark import SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Spark: TypeAlias = "SparkSession | Callable[[], SparkSession]"
"""A session, or a function that gives one; every job takes this.

A job asks `jobs.files.engine.session_for` for it after all checks that need no Spark, so that their
errors come before Spark starts.
"""

JAVAS = range(17, 24)  # Java 24 took away `Subject.getSubject`, which Hadoop calls
CONNECT_PATIENCE = 30
"""For how many seconds a Spark Connect server that does not answer is tried; PySpark: ten minutes.

A server that was started again does not know the session any more, so more patience brings nothing.
"""


@dataclass(frozen=True)
class SessionOnDemand:
    """A function that gives a session, and that knows which engine the user wants."""

    settings: SparkSettings

    @property
    def engine(self) -> str:
        """The engine of the settings; `auto` is Spark if one is named or spark-submit runs us."""
        named = self.settings.master or self.settings.remote
        if self.settings.engine == "auto" and (named or "PYSPARK_GATEWAY_PORT" in os.environ):
            return "spark"
        return self.settings.engine

    def __call__(self) -> SparkSession:
        """The session, started now."""
        return spark_session(self.settings)


# What the tables need, whatever runs them: PyIceberg refuses INT96 timestamps, and days are UTC.
TABLE_CONFIG = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "zstd",
    # Rows of several days meet in one task: open one file for each day instead of sorting rows.
    "spark.sql.maxConcurrentOutputFileWriters": "64",
}


def spark_session(settings: SparkSettings) -> SparkSession:
    """The session for these settings; the active one if there is one.

    Raises:
        SparkUnavailable: no Java 17 or newer, or Spark does not start or answer.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from jobs.spark_errors import SPARK_ERRORS

    builder = SparkSession.builder.appName("nats-transform")
    for key, value in TABLE_CONFIG.items():
        builder = builder.config(key, value)
    under_submit = "PYSPARK_GATEWAY_PORT" in os.environ
    where = settings.remote or settings.master or "local[*]"
    if where.startswith("local") and not under_submit:
        # A laptop's own name often does not resolve; nothing outside needs to reach the driver.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault("SPARK_LOCAL_HOSTNAME", "localhost")
        # Workers run what runs us; Spark's own default is whatever `python3` is on PATH.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if settings.remote:
        builder = builder.remote(settings.remote)
    elif not under_submit:
        if SparkContext._active_spark_context is None:
            _check_java()
        builder = _local(builder, settings)
    for key, value in settings.config.items():
        builder = builder.config(key, value)
    # With the remote `local`, PySpark starts a Spark Connect server in a JVM of this process.
    is_here = not settings.remote or settings.remote.startswith("local")
    launches = is_here and not under_submit and SparkContext._gateway is None
    try:
        with step("starting Spark"), _jvm_of_our_own() if launches else contextlib.nullcontext():
            if settings.remote and not is_here:
                _reach(settings.remote)
            session = builder.getOrCreate()
    except ImportError as error:
        raise SparkUnavailable("connect-needs-packages", reason=text_of(error)) from error
    except (*SPARK_ERRORS, OSError) as error:
        place = where.partition(";")[0]  # no token
        raise SparkUnavailable(
            "spark-does-not-start", place=place, reason=text_of(error)
        ) from error
    if settings.remote:
        _limit_patience(session)
    else:
        # Once the JVM is gone it would print a stack trace, beside the one line of our error.
        server = session.sparkContext._accumulatorServer
        server.handle_error = lambda *_: None  # type: ignore[method-assign]
    if not settings.remote and not under_submit:
        session.sparkContext.setLogLevel("ERROR")
    return session


def _reach(remote: str) -> None:
    """Raises an error if no server listens there; PySpark's own first call would wait too long."""
    import grpc
    from pyspark.errors import PySparkException
    from pyspark.sql.connect.client import DefaultChannelBuilder

    try:
        address = DefaultChannelBuilder(remote)
    except (PySparkException, ValueError):  # its text may have the token
        raise SparkUnavailable("not-a-spark-server", address=remote.partition(";")[0]) from None
    with address.toChannel() as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=CONNECT_PATIENCE)
        except grpc.FutureTimeoutError:
            raise SparkUnavailable(
                "spark-server-silent", address=address.endpoint, seconds=CONNECT_PATIENCE
            ) from None


def _limit_patience(session: Any) -> None:
    """Ends calls to a Spark Connect server that is gone, whose end is told as an error of ours."""
    from pyspark.sql.connect.client.retries import DefaultPolicy

    # Waits of 0.05, 0.2, 0.8 and 3.2 seconds, then five of 5 seconds.
    session.client.set_retry_policies([DefaultPolicy(max_retries=9, max_backoff=5000)])
    warnings.filterwarnings("ignore", r"\[RETRIES_EXCEEDED\]")


def _local(builder: SparkSession.Builder, settings: SparkSettings) -> SparkSession.Builder:
    master = settings.master or "local[*]"
    defaults = {
        "spark.master": master,
        "spark.driver.memory": settings.driver_memory,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.catalogImplementation": "in-memory",
        # PySpark would note the line of every Column, in several calls to the JVM for each.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
    }
    if master.startswith("local"):
        cores = os.cpu_count() or 1
        errors_only = Path(str(files(__package__).joinpath("log4j2.properties")))
        defaults |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(2 * cores),
            "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={errors_only.as_uri()}",
        }
    for key, value in defaults.items():
        builder = builder.config(key, value)
    return builder


@contextlib.contextmanager
def _jvm_of_our_own() -> Iterator[None]:
    """Makes a JVM that is started within this context keep other users of the host out.

    Spark makes its scratch folders readable for all, and they can hold messages. So each of them is
    made in a new folder with the mode 0700, which the JVM removes when it ends.

    PySpark takes the folder above the current one for Spark's own if it looks like it, and the
    Python workers of Spark import modules of the current folder before any other. Somebody else
    may have written these folders, so their code is not run.
    """
    import pyspark
    from pyspark import SparkContext

    names = ("SPARK_HOME", "PYTHONSAFEPATH", "SPARK_LOCAL_DIRS", "SPARK_SUBMIT_OPTS")
    given = {name: os.environ.get(name) for name in names}
    wanted, options = given["SPARK_LOCAL_DIRS"], given["SPARK_SUBMIT_OPTS"]
    folders: list[str] = []
    try:
        os.environ["PYTHONSAFEPATH"] = "1"
        package = Path(pyspark.__file__).parent
        downloaded = package / "spark-distribution"  # Spark's, when the package was installed
        os.environ.setdefault("SPARK_HOME", str(downloaded if downloaded.is_dir() else package))
        for above in wanted.split(",") if wanted else [tempfile.gettempdir()]:
            os.makedirs(above, exist_ok=True)  # as Spark does
            folders.append(tempfile.mkdtemp(prefix="nats-transform-spark-", dir=above))
        # Without SPARK_LOCAL_DIRS, and without the setting spark.local.dir, Spark takes this one.
        os.environ["SPARK_SUBMIT_OPTS"] = f'"-Djava.io.tmpdir={folders[0]}" {options or ""}'
        if wanted:
            os.environ["SPARK_LOCAL_DIRS"] = ",".join(folders)
        yield
        jvm: Any = SparkContext._jvm
        for folder in folders:
            jvm.org.apache.spark.util.ShutdownHookManager.registerShutdownDeleteDir(
                jvm.java.io.File(folder)
            )
    except BaseException:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        for name, value in given.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    cure = "install a Java runtime 17 or 21, point JAVA_HOME at one, or take the engine process"
    if java is None:
        raise SparkUnavailable("no-java", cure=cure)
    try:
        shown = subprocess.run(  # noqa: S603 - the user's own Java
            [java, "-version"], capture_output=True, text=True, timeout=60, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise SparkUnavailable(
            "java-does-not-run", java=java, reason=text_of(error), cure=cure
        ) from error
    version = re.search(r'version "(?:1\.)?(\d+)', shown)
    if version is None or int(version[1]) not in JAVAS:
        raise SparkUnavailable(
            "java-version", java=java, version=version[1] if version else "?", cure=cure
        )
