"""A scan: some columns of the rows of some files, in this process or folded over tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from jobs.files.commit import arrow_schema
from jobs.files.division import plan
from jobs.files.engine import run, session_for
from jobs.files.read import Reader, Task
from jobs.files.storage import Storage
from jobs.progress import step
from jobs.session import Spark
from jobs.warehouse.specs import TableSpec
from nats_transform.digest import Digest
from nats_transform.kernel.digest import digest_batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

M = TypeVar("M")


@dataclass(frozen=True)
class Scan:
    """Rows of files of a stream, by day and sequence."""

    reader: Reader
    tasks: tuple[Task, ...]
    count: int

    @classmethod
    def of(
        cls,
        table: Table,
        spec: TableSpec,
        files: Sequence[DataFile],
        columns: Iterable[str] | None = None,
        *,
        words: frozenset[str] = frozenset(),
        most: int | None = None,
    ) -> Scan:
        """A scan of some files.

        Args:
            table: the table that has the files, or will have them.
            columns: the columns of the rows; None is all.
            words: text columns with few values, which are read as dictionaries.
            most: as of `jobs.files.read.batches`.
        """
        every = Reader(Storage.of(table), arrow_schema(spec.schema, words), (), most=most)
        reader = every.only(spec.rows.names if columns is None else columns)
        return cls(reader, tuple(plan(table, files)), sum(file.record_count for file in files))

    def session(self, spark: Spark) -> SparkSession | None:
        """The session that does the work; None if this process does it."""
        return session_for(spark, sum(task.size for task in self.tasks))

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """All rows, read in this process."""
        for task in self.tasks:
            yield from self.reader(task)

    def fold(
        self, session: SparkSession | None, work: Callable[[Iterable[pa.RecordBatch]], M], what: str
    ) -> list[M]:
        """What a function returns for the rows of each task.

        Args:
            work: the function. It can be pickled.
            what: what is done, for people who wait.

        Raises:
            WarehouseError: a file cannot be read.
        """
        with step(what, self.count):
            return run(partial(_folded, self.reader, work), self.tasks, session)

    def sum(self, spark: Spark, work: Callable[[Iterable[pa.RecordBatch]], M], what: str) -> M:
        """The sum of what a function returns; for no rows it returns the zero of that sum."""
        results = self.fold(self.session(spark), work, what)
        return sum(results, start=work(()))  # type: ignore[call-overload, no-any-return]


def _folded(reader: Reader, work: Callable[[Iterable[pa.RecordBatch]], M], task: Task) -> M:
    return work(reader(task))


def digested(batches: Iterable[pa.RecordBatch], columns: Sequence[str] | None = None) -> Digest:
    """The digest of rows, over some columns or all of them: something for `Scan.sum`."""
    return sum((digest_batch(batch, columns) for batch in batches), Digest())
