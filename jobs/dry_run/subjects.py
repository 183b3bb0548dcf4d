"""The subjects of a dry run: the census added up where it is small, or by Spark's workers.

Spark adds the `subject_census` up by subject, wherever the archive is, and its workers look at the
sums with `nats_transform.migration`; the driver adds up what they count. A small census the driver
reads and looks at by itself.
"""

from __future__ import annotations

import errno
import pickle
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.census import CENSUS, CensusSettings, census
from jobs.dry_run.settings import DryRunSettings
from jobs.errors import ArchiveError, JobError
from jobs.session import Spark, started
from jobs.warehouse import specs, tables
from nats_transform import spark as spark_mappings
from nats_transform.migration import CensusRow, DryRun, Question, dry_run_of_parts
from nats_transform.subject import decode

_ROWS_AT_ONCE = 50_000
"""Rows of a census in a part; the driver has what was counted of a few parts in memory."""

_ROWS_HERE = 200_000
"""A census of no more rows is looked at by the driver: Spark's first query takes as long."""


def archived_days(settings: DryRunSettings) -> tuple[Table, list[date]]:
    """The archive, and the days on which it has messages."""
    messages = tables.open_table(settings.warehouse, specs.MESSAGES)
    there = tables.days_of(messages, settings.stream)
    if not there:
        raise ArchiveError(
            f"{'.'.join(messages.name())} has no messages of stream {settings.stream!r}; "
            "ingest the stream, or check its name"
        )
    days = [day for day in there if settings.days is None or day in settings.days]
    if not days:
        raise ArchiveError(
            f"stream {settings.stream!r} has no messages on these days; "
            f"it has them from {there[0]} to {there[-1]}"
        )
    return messages, days


def of_census(
    spark: Spark,
    settings: DryRunSettings,
    messages: Table,
    days: Sequence[date],
    question: Question,
) -> tuple[DryRun, Table]:
    """Evaluate the mappings on the subjects of the census; return the result and the table.

    Days whose census is missing, or counts other than `messages` has, are counted first.
    """
    table = _census(spark, settings, messages, days)
    most = _rows(table, settings.stream, days)
    if most <= _ROWS_HERE:
        sums = added_up_here(table, settings.stream, days)
        return dry_run_of_parts(_Here(sums), question), table
    rows = tables.read(started(spark), table, CENSUS, settings.stream, days)
    return _looked_at(rows, most, question), table


def of_replay(
    spark: SparkSession,
    settings: DryRunSettings,
    messages: Table,
    days: Sequence[date],
    question: Question,
) -> DryRun:
    """Evaluate the mappings on every message, each with its own draw."""
    archived = tables.read(spark, messages, specs.MESSAGES, settings.stream, days)
    rows = replayed(archived, question, settings.seed)
    return _looked_at(rows, _rows(messages, settings.stream, days), question)


def _looked_at(rows: DataFrame, most: int, question: Question) -> DryRun:
    """What Spark's workers find in at most so many rows of a census."""
    sums = added_up(rows, 1 + most // _ROWS_AT_ONCE).persist(StorageLevel.DISK_ONLY)
    try:
        with tempfile.TemporaryFile() as overflow:
            return dry_run_of_parts(_Parts(sums), question, overflow)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise JobError(
            f"no room for temporary files in {tempfile.gettempdir()}; "
            "make room there, or set TMPDIR to another folder"
        ) from error
    finally:
        sums.unpersist()


def added_up(rows: DataFrame, parts: int) -> DataFrame:
    """One row for each subject and cluster of a census, over all days.

    Args:
        rows: the rows of the census, or of messages.
        parts: how many to make; in each, the rows of a subject follow one another.
    """
    keys = [name for name in _KEYS if name in rows.columns]
    return (
        # As bytes, because Python would not take text that is not UTF-8.
        rows.withColumns({name: F.col(name).cast("binary") for name in ("subject", *keys)})
        .repartition(parts, "subject")
        .groupBy("subject", *keys)
        .agg(F.sum("messages").alias("messages"), F.sum("bytes").alias("bytes"))
        .sortWithinPartitions("subject", *keys)
    )


_KEYS = ("cluster", "before", "after")


def added_up_here(table: Table, stream: str, days: Sequence[date]) -> pa.Table:
    """One row for each subject and cluster of a small census, in order."""
    read = list(tables.batches(table, stream, days, ["subject", "cluster", "messages", "bytes"]))
    rows = pa.Table.from_batches(read)
    keys = ["subject", "cluster"]
    # As bytes, because Python would not take text that is not UTF-8.
    for position, name in enumerate(keys):
        rows = rows.set_column(position, name, rows[name].cast(pa.binary()))
    sums = (
        rows.group_by(keys)
        .aggregate([("messages", "sum"), ("bytes", "sum")])
        .select([*keys, "messages_sum", "bytes_sum"])
    )
    # Spark sorts null first.
    order = ["subject", "in a cluster", "cluster"]
    sums = sums.append_column(order[1], sums["cluster"].is_valid())
    return sums.sort_by([(key, "ascending") for key in order]).drop_columns(order[1])


def replayed(messages: DataFrame, question: Question, seed: int) -> DataFrame:
    """A census of the messages with the destinations that they draw."""
    for name, mappings in (("before", question.current), ("after", question.candidate)):
        messages = spark_mappings.apply(mappings, messages, seed=seed).select(
            *messages.columns, F.col("mapping_destination").alias(name)
        )
    return messages.groupBy("subject", *_KEYS).agg(
        F.count(F.lit(1)).alias("messages"),
        F.coalesce(F.sum(F.octet_length("data")), F.lit(0)).alias("bytes"),
    )


@dataclass(frozen=True, slots=True)
class _Here:
    """The sums of a small census, in this process."""

    sums: pa.Table

    def each(self, work: Callable[[Iterable[CensusRow]], Any]) -> Iterator[Any]:
        """What some work gives."""
        yield work(_rows_of(self.sums.to_batches(max_chunksize=10_000)))


class _Parts:
    """The sums of a census where Spark has them; work goes there, and what it finds comes here."""

    def __init__(self, sums: DataFrame) -> None:
        self._sums = sums

    def each(self, work: Callable[[Iterable[CensusRow]], Any]) -> Iterator[Any]:
        """What some work gives for each part, a few of them in memory at a time."""

        def found(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
            yield pa.RecordBatch.from_arrays(
                [pa.array([pickle.dumps(work(_rows_of(batches)))], pa.large_binary())], ["found"]
            )

        rows = self._sums.mapInArrow(found, "found binary").persist(StorageLevel.DISK_ONLY)
        try:
            rows.count()  # all workers at once: the iterator would have one part made at a time
            for row in rows.toLocalIterator():
                yield pickle.loads(row["found"])  # noqa: S301 - our own workers wrote it
        finally:
            rows.unpersist()


def _rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[CensusRow]:
    """The rows of a census that was added up."""
    for batch in batches:
        columns = [column.to_pylist() for column in batch.columns]
        for *names, messages, size in zip(*columns, strict=True):
            subject, cluster, *drawn = [None if n is None else decode(n) for n in names]
            chosen = (drawn[0], drawn[1]) if drawn else None
            yield CensusRow(subject, cluster, messages, size, chosen)


def _census(
    spark: Spark,
    settings: DryRunSettings,
    messages: Table,
    days: Sequence[date],
) -> Table:
    """The census table, with all messages of these days counted."""
    table = tables.open_table(settings.warehouse, CENSUS, create=True)
    counted = _by_day(table, settings.stream, days)
    behind = [day for day in days if counted.get(day) != _rows(messages, settings.stream, [day])]
    for first, last in _runs(behind):
        census(
            started(spark),
            CensusSettings(
                stream=settings.stream,
                warehouse=settings.warehouse,
                first_day=first,
                last_day=last,
                run_id=settings.run_id,
            ),
        )
    return tables.open_table(settings.warehouse, CENSUS) if behind else table


def _rows(table: Table, stream: str, days: Sequence[date]) -> int:
    return sum(file.record_count for file in tables.data_files(table, stream, days))


def _by_day(table: Table, stream: str, days: Sequence[date]) -> Counter[date]:
    """The messages that the census has counted on each day."""
    found: Counter[date] = Counter()
    for batch in tables.batches(table, stream, days, ["day", "messages"]):
        # A file has rows of one day.
        found[batch["day"][0].as_py()] += pc.sum(batch["messages"]).as_py()
    return found


def _runs(days: Sequence[date]) -> Iterator[tuple[date, date]]:
    """First and last of the days that follow one another."""
    start = 0
    for n, day in enumerate(days, 1):
        if n == len(days) or days[n] - day != timedelta(days=1):
            yield days[start], day
            start = n
