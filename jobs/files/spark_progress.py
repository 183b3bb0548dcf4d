"""What Spark shows of a job of ours, and what a step of ours knows of Spark's progress."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark import Accumulator
from pyspark.sql import SparkSession

from jobs.ending import TOLD
from jobs.files.read import Task
from jobs.progress import current
from nats_transform.words import plural

_EVERY = 0.5  # seconds


def description(tasks: Sequence[Any]) -> str:
    """What the tasks of the innermost step do, in one line for Spark's UI and event log.

    Of tasks that read files it names the days, the number of files and their folder, in which the
    name of the table stands.
    """
    step = current()
    text = f"{step.what if step else 'nats-transform'}: {plural(len(tasks), 'task')}"
    read = [task for task in tasks if isinstance(task, Task)]
    if read:
        days = sorted({task.day.isoformat() for task in read})
        paths = {piece.path for task in read for piece in task.pieces}
        try:
            folder = os.path.commonpath(map(os.path.dirname, paths))
        except ValueError:  # a path and a URI
            folder = "several places"
        span = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
        text += f", {span}, {plural(len(paths), 'file')} in {folder}"
    return text.replace("<", "(")  # Spark's UI would make links of tags


@contextlib.contextmanager
def shown(spark: SparkSession, tasks: Sequence[Any]) -> Iterator[Accumulator[int] | None]:
    """While it lasts, Spark shows what its job does, and the innermost step counts messages.

    Gives the accumulator that tasks add their messages to. Spark Connect has neither descriptions
    nor accumulators; there the share of the tasks that are done stands for that of the messages.

    A signal that ends the program also cancels the jobs of Spark. Else PySpark waits for them: what
    it does after an interrupted `collect` goes over the connection on which the JVM is still busy.
    """
    step = current()
    if type(spark).__module__.startswith("pyspark.sql.connect"):

        def follow(*, stages: Any, **_: object) -> None:
            count = sum(stage.num_tasks for stage in stages or ())
            if step and step.total and count:
                done = sum(stage.num_completed_tasks for stage in stages)
                step.done = step.total * done // count

        spark.registerProgressHandler(follow)
        try:
            yield None
        finally:
            spark.removeProgressHandler(follow)
        return
    context, messages = spark.sparkContext, spark.sparkContext.accumulator(0)
    ended, before = threading.Event(), step.done if step else 0

    def look() -> None:
        at_end = False
        while not at_end:
            at_end = ended.wait(_EVERY)
            if step:
                step.done = before + messages.value
            if TOLD.is_set() and not at_end:
                with contextlib.suppress(Exception):  # Spark is gone already
                    context.cancelAllJobs()

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    context.setJobDescription(description(tasks))
    try:
        yield messages
    finally:
        ended.set()
        looking.join()
        with contextlib.suppress(Exception):  # the job says it if Spark is gone
            context.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]
