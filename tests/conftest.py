"""What tests share: one Spark session, one browser, and real nats-servers."""

from __future__ import annotations

import gc
import os
import secrets
import signal
import sqlite3
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from pyspark.sql import SparkSession

from jobs.jetstream.process import NatsServer
from jobs.jetstream.process import nats_server as run_nats_server
from jobs.session import spark_session
from jobs.settings.spark import SparkSettings
from tests.faults import FAULTS
from tests.support.browser import CHROMIUM, Browser, chromium

# A shell lets what it starts in the background ignore SIGINT, and Dagster gives SIGTERM the handler
# of SIGINT: then no process that a test starts would end by either.
signal.signal(signal.SIGINT, signal.default_int_handler)
# No test reports to the makers of Dagster and Great Expectations, nor does what it starts.
os.environ |= {"DAGSTER_DISABLE_TELEMETRY": "1", "GX_ANALYTICS_ENABLED": "false"}
# No test asks the server that a developer has chosen.
for _name in [name for name in os.environ if name.startswith("NATS_")]:
    del os.environ[_name]
os.environ["XDG_CONFIG_HOME"] = str(Path(__file__).parent / "no contexts")
# Tests make many small Spark jobs: what the JVM's second compiler would gain, it costs twice over.
os.environ["SPARK_SUBMIT_OPTS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


_connect = sqlite3.connect


def _connect_without_disk(*args: Any, **named: Any) -> sqlite3.Connection:
    """A database of a test has to outlive processes that are killed, not the machine."""
    connection = _connect(*args, **named)
    connection.execute("PRAGMA synchronous = OFF")
    return connection


sqlite3.connect = sqlite3.dbapi2.connect = _connect_without_disk
# A busy machine is not a failure; pytest's timeout catches what hangs.
hypothesis.settings.register_profile("nats-transform", deadline=None)
hypothesis.settings.load_profile("nats-transform")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--seed", type=int, default=None, help="repeats the generated cases of tests/conformance"
    )


_OF_FAULTS = {test for fault in FAULTS for test in fault.tests}


def pytest_itemcollected(item: pytest.Item) -> None:
    """Marks the tests that `make faults` runs."""
    if item.nodeid.partition("[")[0] in _OF_FAULTS:
        item.add_marker("fault")


_LONG = {"spark", "server", "dagster"}
"""Marks of modules that start something."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts those of Spark into the first half, and in each half long tests first, short ones last.

    `--dist worksteal` gives each of two workers one half: so only one of them starts Spark. The one
    that is done first takes tests from the end of the other's half: with short tests there, both
    end at about the same time.
    """
    spark: list[pytest.Item] = []
    halves: tuple[list[pytest.Item], list[pytest.Item]] = ([], [])
    short: list[pytest.Item] = []
    for number, (path, module) in enumerate(groupby(items, lambda item: item.path)):
        tests = list(module)
        marks = {mark.name for test in tests for mark in test.iter_markers()}
        is_short = "tests/nats_transform/" in path.as_posix() and not marks & _LONG
        if "spark" in marks:
            spark.extend(tests)
        else:
            # Of the others the second half gets more, or it would be done much earlier.
            (short if is_short else halves[number % 3 > 0]).extend(tests)
    first = max(0, len(items) // 2 - len(spark) - len(halves[0]))
    items[:] = [*spark, *halves[0], *short[:first], *halves[1], *short[first:]]


def pytest_collection_finish() -> None:
    """What was imported stays, so the garbage collector need not look at it again and again."""
    gc.freeze()
    gc.set_threshold(50_000)


def pytest_unconfigure() -> None:
    gc.unfreeze()  # or libraries complain of what is left as Python ends


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The seed of generated cases: a new one each run; a failure shows it."""
    given: int | None = request.config.getoption("--seed")
    value = secrets.randbelow(2**32) if given is None else given
    print(f"seed: {value} (repeat with --seed {value})")
    return value


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session of the test run."""
    with pytest.MonkeyPatch.context() as environment:
        # Spark's workers import nothing from the current folder: here they run functions of tests.
        environment.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
        session = spark_session(
            SparkSettings(
                master="local[2]",
                driver_memory="1g",
                config={"spark.sql.shuffle.partitions": "2", "spark.default.parallelism": "2"},
            )
        )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """The one browser of the test run."""
    if CHROMIUM is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    with chromium(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@pytest.fixture(scope="module")
def nats_server() -> Iterator[NatsServer]:
    """A nats-server with JetStream and an empty store, shared by the tests of a module."""
    with run_nats_server() as server:
        yield server
