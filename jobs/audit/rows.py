"""The rows that an audit counts, batch by batch, and where the counting runs.

Rows are messages, or transformed messages: those of the table, or made from messages on the way.
A count is a function of the rows of a task, and the driver adds up what it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from jobs.files.engine import run
from jobs.files.intact import check_files, not_looked_at
from jobs.files.read import MANY_ROWS, Reader, Task
from jobs.files.scan import Scan
from jobs.progress import step
from jobs.session import Spark
from jobs.warehouse.specs import TableSpec
from jobs.warehouse.staging import new_folder
from nats_transform.audit import Period
from nats_transform.kernel import Program, compile_mappings
from nats_transform.kernel.counting import texts
from nats_transform.kernel.program import outcome_schema
from nats_transform.mappings.subject import encode
from nats_transform.mappings.unseen import Unseen

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

R = TypeVar("R")

Parts = Iterator[tuple[int, pa.RecordBatch]]
"""Rows, each batch with the index of the mapping version that was in force."""

_WORDS = frozenset({"cluster", "mapping_source", "mapping_destination", "fate", "mapping_version"})
"""Columns with few values, read as dictionaries."""
_OUTCOMES = frozenset(outcome_schema(pa.string()).names)
_ALWAYS = (None, None)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Reading:
    """The choice of the rows that count. It can be sent to a task.

    Attributes:
        reader: reads rows with all columns.
        since, until: only messages of this time count; None is no limit.
        cluster: only messages of this cluster count.
        fills: whether messages that name no cluster count for that cluster too.
        version: only transformed messages of this mapping version count.
        times: the time in which each mapping version was in force.
        programs: the compiled mappings of each version, if messages are transformed while they are
            read.
    """

    reader: Reader
    stream: str
    since: datetime | None = None
    until: datetime | None = None
    cluster: str | None = None
    fills: bool = False
    version: str | None = None
    times: tuple[tuple[datetime | None, datetime | None], ...] = (_ALWAYS,)
    programs: tuple[Program, ...] = ()

    def read(self, task: Task, columns: Sequence[str], filled: Sequence[str] = ()) -> Parts:
        """The rows of a task with these columns; columns of few values are dictionaries.

        Row groups in which none of the `filled` columns has a value are left out.

        Raises:
            WarehouseError: a file cannot be read.
        """
        wanted = set(columns)
        replays = bool(self.programs) and bool(wanted & _OUTCOMES)
        if replays:
            wanted = wanted - _OUTCOMES | {"seq", "subject", "cluster"}
        for name, is_needed in (
            ("ts", (self.since, self.until, *self.times) != (None, None, _ALWAYS)),
            ("cluster", self.cluster is not None),
            ("mapping_version", self.version is not None),
        ):
            if is_needed:
                wanted.add(name)
        needed = (name for name in self.reader.columns if name in wanted)
        reader = self.reader.only(needed, filled, MANY_ROWS)
        for stored in reader(task):
            rows = self._chosen(stored)
            for index, (since, until) in enumerate(self.times):
                part = _within(rows, since, until)
                if len(part):
                    yield index, self._replayed(part, index) if replays else part

    def _chosen(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        rows = _within(rows, self.since, self.until)
        if self.version is not None:
            rows = rows.filter(_is_one_of(rows.column("mapping_version"), {self.version}))
        if self.cluster is not None:
            fitting: set[str | None] = {self.cluster, None} if self.fills else {self.cluster}
            rows = rows.filter(_is_one_of(rows.column("cluster"), fitting))
            name = pa.array([encode(self.cluster)], pa.binary()).view(pa.string())
            only = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(rows), np.int32)), name)
            rows = rows.set_column(rows.schema.get_field_index("cluster"), "cluster", only)
        return rows

    def _replayed(self, rows: pa.RecordBatch, index: int) -> pa.RecordBatch:
        """The rows with their outcomes."""
        outcomes = self.programs[index].apply(
            rows.column("subject"),
            cluster=rows.column("cluster"),
            stream=self.stream,
            seq=rows.column("seq"),
            text=pa.string(),
        )
        return pa.RecordBatch.from_arrays(
            [*rows.columns, *outcomes.columns], names=[*rows.schema.names, *outcomes.schema.names]
        )


@dataclass(frozen=True)
class Rows:
    """Rows to count.

    Attributes:
        folder: a folder for temporary files of counts; see `jobs.files.grouped`.
        session: the session that runs the tasks; None is this process.
        not_looked_at: files of which nobody can say whether they changed.
    """

    reading: Reading
    tasks: tuple[Task, ...]
    count: int
    folder: str
    session: SparkSession | None
    not_looked_at: tuple[Unseen, ...]

    @classmethod
    def of(
        cls, spark: Spark, table: Table, spec: TableSpec, files: Sequence[DataFile], stream: str
    ) -> Rows:
        """All rows of some files of a stream, which must be as they were published."""
        check_files(spark, table, files)
        scan = Scan.of(table, spec, files, words=_WORDS)
        reading = Reading(scan.reader, stream)
        unseen = not_looked_at(table, files)
        return cls(reading, scan.tasks, scan.count, new_folder(table), scan.session(spark), unseen)

    def only(self, **which: object) -> Rows:
        """The same rows with other attributes of `reading`."""
        return replace(self, reading=replace(self.reading, **which))  # type: ignore[arg-type]

    def split(self, periods: Sequence[Period]) -> Rows:
        """The same rows, each batch with the index of the mapping version that was in force."""
        return self.only(times=tuple((period.since, period.until) for period in periods))

    def replayed(self, periods: Sequence[Period], seed: int) -> Rows:
        """The same messages, transformed with the mappings that were in force."""
        programs = tuple(compile_mappings(period.mappings, seed) for period in periods)
        return self.split(periods).only(programs=programs)

    def each(self, count: Callable[[Parts], R], columns: Sequence[str]) -> list[R]:
        """The results of a function, which can be pickled, for the rows of each task."""
        with step(f"counting {self.reading.stream}", self.count):
            return run(partial(_counted, self.reading, columns, count), self.tasks, self.session)


def _counted(
    reading: Reading, columns: Sequence[str], count: Callable[[Parts], R], task: Task
) -> R:
    return count(reading.read(task, columns))


def _within(rows: pa.RecordBatch, since: datetime | None, until: datetime | None) -> pa.RecordBatch:
    """The rows of some time; the end is not part of it."""
    for end, is_within in ((since, pc.greater_equal), (until, pc.less)):
        if end is not None:
            micros = (end - _EPOCH) // timedelta(microseconds=1)
            rows = rows.filter(is_within(rows.column("ts").view(pa.int64()), micros))
    return rows


def _is_one_of(column: pa.Array, wanted: Collection[str | None]) -> pa.Array:
    """Whether each text is one of some."""
    coded = texts(column)
    is_wanted = np.array([value in wanted for value in coded.values], np.bool_)
    return pa.array(is_wanted[coded.numbers])
