"""How many tasks of Spark are done, counted in the step of a job."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession

from jobs.progress import Step, current

_EVERY = 0.5  # seconds


@contextlib.contextmanager
def counted(spark: SparkSession) -> Iterator[None]:
    """While it lasts, the innermost step has the share of Spark's tasks that are done."""
    step = current()
    if step is None or step.total is None:
        yield
    elif type(spark).__module__.startswith("pyspark.sql.connect"):

        def told(*, stages: Any, **_: object) -> None:
            _count(step, [(one.num_completed_tasks, one.num_tasks) for one in stages or ()])

        spark.registerProgressHandler(told)
        try:
            yield
        finally:
            spark.removeProgressHandler(told)
    else:
        ended = threading.Event()
        looking = threading.Thread(target=_look, args=(spark, step, ended), daemon=True)
        looking.start()
        try:
            yield
        finally:
            ended.set()


def _look(spark: SparkSession, step: Step, ended: threading.Event) -> None:
    with contextlib.suppress(Exception):  # the job says it if Spark is gone
        tracker = spark.sparkContext.statusTracker()
        while not ended.wait(_EVERY):
            stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
            _count(step, [(stage.numCompletedTasks, stage.numTasks) for stage in stages if stage])


def _count(step: Step, stages: list[tuple[int, int]]) -> None:
    tasks = sum(total for _, total in stages)
    if tasks and step.total:
        step.done = step.total * sum(done for done, _ in stages) // tasks
