"""Runs tasks in this process or on Spark; the function of a task is the same.

For Spark a small DataFrame has one row and one partition for each task, and `mapInArrow` calls the
function. This works on one machine, on any cluster and through Spark Connect. Only the result that
Spark accepts for a task is used. So a task may die and be tried again, or run twice at once.
"""

from __future__ import annotations

import os
import pickle
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from contextvars import copy_context
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from jobs.errors import JobError
from jobs.progress import current, step
from jobs.session import SessionOnDemand, Spark
from jobs.startup import without_pandas
from nats_transform.errors import NatsTransformError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROCESS_BYTES = 16 * 2**30
"""The engine `auto` does work on up to this many bytes of Parquet in this process.

On the same cores Spark was slower wherever both were measured: 2 million messages in 43 s against
20 s, without the time that Spark needs to start. For larger work Spark's own page, log and retries
are worth their price.
"""

_LOOK_SECONDS = 0.5
_MOST_SECONDS = 30  # for tasks of a failed job; Spark kills a worker of Python after 2

T = TypeVar("T")
R = TypeVar("R")


def session_for(spark: Spark, size: int, most: int = PROCESS_BYTES) -> SparkSession | None:
    """The session that does work of some size; None if this process does it.

    A session that already exists is used for any size, and so is one that the user asked for. Where
    PySpark isn't installed, `auto` does any work here: it takes longer, and not more memory.

    Args:
        size: how many bytes the work reads.
        most: this process does work of up to this many bytes.
    """
    engine = spark.engine if isinstance(spark, SessionOnDemand) else "spark"
    is_large = engine == "auto" and size > most and find_spec("pyspark") is not None
    if engine == "spark" or is_large:
        return spark() if callable(spark) else spark
    return None


def engine_of(session: SparkSession | None) -> str:
    """The `engine` in the result of a job: `process` if this process did the work, or `spark`."""
    return "process" if session is None else "spark"


def run(work: Callable[[T], R], tasks: Sequence[T], spark: SparkSession | None) -> list[R]:
    """Calls a function with each task and returns the results in the order of the tasks.

    Args:
        work: the function, with everything that a task needs. It can be pickled.
        spark: the session that runs the tasks; None is this process, with a thread for each core.

    Raises:
        JobError: what a task raised.
    """
    if not tasks:
        return []
    return _here(work, tasks) if spark is None else _in_spark(work, tasks, spark)


def _reuse_memory() -> None:
    """Makes Arrow use jemalloc if it is built in, unless `ARROW_DEFAULT_MEMORY_POOL` is set.

    Each batch takes and frees some megabytes. Arrow's default allocator gives them back to the
    system after each batch. With jemalloc a transform took a tenth less time and 50 MB less memory.
    """
    chosen = os.environ.get("ARROW_DEFAULT_MEMORY_POOL")
    if not chosen and "jemalloc" in pa.supported_memory_backends():
        pa.set_memory_pool(pa.jemalloc_memory_pool())


def _here(work: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
    _reuse_memory()
    ended = threading.Event()
    # Threads are enough: reading, mapping and writing do not hold Python's lock.
    with ThreadPoolExecutor(
        min(len(tasks), cores()), initializer=setattr, initargs=(_LOCAL, "ended", ended)
    ) as pool:
        # The context is that of the job, so the progress of tasks counts for its step.
        waiting = [pool.submit(copy_context().run, work, task) for task in tasks]
        try:
            wait(waiting, return_when=FIRST_EXCEPTION)
            failed = next(
                (future for future in waiting if future.done() and future.exception()), None
            )
            return [future.result() for future in ([failed] if failed else waiting)]
        except BaseException:
            ended.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


_LOCAL = threading.local()


def end_if_told() -> None:
    """Ends the task of this thread if another task failed or the program ends.

    Long tasks call this for every batch, because nothing else can end a thread.
    """
    ended: threading.Event | None = getattr(_LOCAL, "ended", None)
    if ended is not None and ended.is_set():
        raise JobError("canceled")


def cores() -> int:
    """How many threads this process can really run at once."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _wait_for_tasks(spark: SparkSession) -> None:
    """Waits until no task of a failed job runs any more.

    Spark says that a job failed while other tasks of it still work, and these could write a file
    after the caller has removed what the job wrote. A worker that does not end is killed by Spark.
    """
    end = time.monotonic() + _MOST_SECONDS
    with suppress(Exception):  # Spark Connect does not tell; or Spark is gone
        tracker = spark.sparkContext._jsc.sc().statusTracker()
        while time.monotonic() < end and any(
            executor.numRunningTasks() for executor in tracker.getExecutorInfos()
        ):
            time.sleep(_LOOK_SECONDS)


def _in_spark(work: Callable[[T], R], tasks: Sequence[T], spark: SparkSession) -> list[R]:
    from jobs.files.spark_progress import shown
    from jobs.spark_errors import SPARK_ERRORS, job_error, note_fields

    def each(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        without_pandas()  # importing it would take most of the time that a new worker needs
        _reuse_memory()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                with step("a task of Spark"):
                    try:
                        result = pickle.dumps(work(tasks[number]))
                    except NatsTransformError as error:
                        note_fields(error)
                        raise
                    if messages is not None and (counted := current()):
                        messages.add(counted.done)
                yield pa.record_batch({"number": [number], "result": [result]})

    rows = spark.range(0, len(tasks), 1, len(tasks))
    try:
        with shown(spark, tasks) as messages:
            collected = rows.mapInArrow(each, "number long, result binary").collect()
    except SPARK_ERRORS as error:
        _wait_for_tasks(spark)
        raise job_error(error) from error
    # The bytes come from our own tasks.
    results = {row["number"]: pickle.loads(row["result"]) for row in collected}  # noqa: S301
    return [results[number] for number in range(len(tasks))]
