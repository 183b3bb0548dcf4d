"""A function applied to all rows and columns of some files. The checks read tables in this way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from jobs.files.commit import arrow_schema
from jobs.files.plan import plan
from jobs.files.read import concatenated
from jobs.files.run import run, session_for
from jobs.files.storage import Storage
from jobs.files.task import Task
from jobs.files.text import restored_rows
from jobs.files.transform import WORDS
from jobs.progress import step
from jobs.session import Spark
from jobs.warehouse.specs import TableSpec
from nats_transform.digest import Digest
from nats_transform.kernel.digest import digest_batch

M = TypeVar("M")


def measured(
    spark: Spark,
    table: Table,
    spec: TableSpec,
    files: Sequence[DataFile],
    measure: Callable[[Iterable[pa.RecordBatch]], M],
) -> M:
    """The sum of what a function returns for the rows of some files of a stream.

    Args:
        spark: a session, or a function that gives one and is called only if the work is large.
        table: the table that has the files, or will have them.
        spec: the definition of the table.
        files: the files.
        measure: a function that takes the rows of a task. Its results can be added up, and for no
            rows it returns the zero of that sum. It can be pickled.

    Raises:
        WarehouseError: a file cannot be read.
    """
    tasks = plan(table, files)
    schema = arrow_schema(spec.schema, WORDS | {"stream", "cluster"})
    work = _Measure(Storage.of(table), schema, tuple(spec.rows.names), measure)
    session = session_for(spark, sum(task.size for task in tasks))
    with step(f"checking {spec.name}", sum(file.record_count for file in files)):
        found = run(work, tasks, session)
    return sum(found, start=measure(()))  # type: ignore[call-overload, no-any-return]


def digested(batches: Iterable[pa.RecordBatch], columns: Sequence[str] | None = None) -> Digest:
    """The digest of rows, over some columns or all of them. `measured` takes this function."""
    return sum((Digest(*digest_batch(batch, columns)) for batch in batches), Digest())


@dataclass(frozen=True)
class _Measure(Generic[M]):
    """The function of a task.

    Attributes:
        storage: the file systems of the table.
        schema: the columns as the table stores them.
        names: the columns of the rows that jobs see; `jobs.warehouse.raw` explains the difference.
        measure: the function that takes the rows.
    """

    storage: Storage
    schema: pa.Schema
    names: tuple[str, ...]
    measure: Callable[[Iterable[pa.RecordBatch]], M]

    def __call__(self, task: Task) -> M:
        stored = concatenated(self.storage, task.pieces, self.schema)
        return self.measure(restored_rows(batch, self.names) for batch in stored)
