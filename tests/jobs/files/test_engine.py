"""The same function in this process and under Spark."""

from __future__ import annotations

import fcntl
import os
import sys
import time
from datetime import date
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from jobs.errors import WarehouseError
from jobs.files.engine import PROCESS_BYTES, run, session_for
from jobs.files.read import Piece, Task
from jobs.files.spark_progress import description
from jobs.progress import advance, step, watched
from jobs.session import SessionOnDemand
from jobs.settings.spark import SparkSettings
from tests.support.refused import refused

pytestmark = pytest.mark.spark


@pytest.fixture(params=["process", "spark"])
def session(request: pytest.FixtureRequest, spark: SparkSession) -> SparkSession | None:
    return None if request.param == "process" else spark


def test_results_come_in_the_order_of_the_tasks(session: SparkSession | None) -> None:
    base = 100
    assert run(lambda task: task + base, [3, 1, 2, 1, 0], session) == [103, 101, 102, 101, 100]
    assert run(lambda task: task, [], session) == []


def test_where_they_run(session: SparkSession | None) -> None:
    (there,) = run(lambda task: os.getpid(), [0], session)
    assert (there == os.getpid()) == (session is None)


def test_a_task_that_fails(session: SparkSession | None, tmp_path: Path) -> None:
    def work(task: int) -> int:
        if task == 1:
            raise WarehouseError("row-groups-differ", path=tmp_path, count=np.int64(3), groups=2)
        return task

    with refused(WarehouseError, "row-groups-differ", path=tmp_path, count=3, groups=2):
        run(work, [0, 1, 2, 3], session)


def test_no_task_works_on_once_one_has_failed(session: SparkSession | None, tmp_path: Path) -> None:
    lock, begun = tmp_path / "lock", tmp_path / "begun"

    def work(task: int) -> int:
        if task == 1:
            while not begun.exists():
                time.sleep(0.01)
            raise WarehouseError("refused", reason="no room")
        with lock.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            begun.touch()
            time.sleep(1)  # as one that writes a large file
        return task

    with pytest.raises(WarehouseError):
        run(work, [0, 1], session)
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_session_starts_for_large_work_or_because_somebody_asked(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_demand = SessionOnDemand(SparkSettings())
    assert session_for(on_demand, PROCESS_BYTES) is None
    assert session_for(on_demand, PROCESS_BYTES + 1) is spark
    assert session_for(SessionOnDemand(SparkSettings(engine="spark")), 0) is spark
    here = SessionOnDemand(SparkSettings(engine="process", master="local[2]"))
    assert session_for(here, PROCESS_BYTES + 1) is None
    assert session_for(lambda: spark, 0) is spark
    assert session_for(spark, 0) is spark
    assert session_for(SessionOnDemand(SparkSettings(master="local[2]")), 0) is spark
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert session_for(on_demand, 0) is spark


def test_work_of_any_size_is_done_here_without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """`pip install 'nats-transform[archive]'` brings none, and the work needs none."""
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert session_for(SessionOnDemand(SparkSettings()), 2**50) is None
    with pytest.raises(ModuleNotFoundError):
        session_for(SessionOnDemand(SparkSettings(engine="spark")), 0)


def test_spark_shows_what_its_tasks_do(spark: SparkSession) -> None:
    file = "/warehouse/nats/messages/data/stream=ORDERS/day={}/{}.parquet"
    days = [date(2026, 1, 1), date(2026, 1, 2)]
    tasks = [
        Task(number, day, tuple(Piece(file.format(day, name)) for name in "ab"), 10)
        for number, day in enumerate(days)
    ]
    with watched() as steps, step("mapping <a href='/'>", 30):
        run(lambda task: advance(10 + 10 * task.number), tasks, spark)
        assert steps[0].done == 30
    assert _latest(spark) == (
        "mapping (a href='/'>: 2 tasks, 2026-01-01 to 2026-01-02, "
        "4 files in /warehouse/nats/messages/data/stream=ORDERS"
    )
    spark.range(1).collect()
    assert _latest(spark) is None, "the next job of the session is not ours"


def test_a_table_whose_files_are_named_in_two_ways() -> None:
    """Readers of Iceberg take both, so a description must not fail on them."""
    paths = ("/w/data/a.parquet", "file:///w/data/b.parquet")
    task = Task(0, date(2026, 1, 1), tuple(map(Piece, paths)), 10)
    with step("mapping ORDERS"):
        assert (
            description([task]) == "mapping ORDERS: 1 task, 2026-01-01, 2 files in several places"
        )


def _latest(spark: SparkSession) -> str | None:
    """The description that Spark's UI has of the last job."""
    context = spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()  # what happens in jobs is told behind them
    described = context.statusStore().jobsList(None).apply(0).description()
    return str(described.get()) if described.isDefined() else None
