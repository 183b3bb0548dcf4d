"""The rows of a table for other tools: in pandas, in Spark where there are many, or in Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from jobs.files.commit import arrow_schema
from jobs.files.division import plan
from jobs.files.engine import session_for
from jobs.files.read import Piece, Task, batches
from jobs.files.storage import Storage
from jobs.files.text import restored_rows
from jobs.files.transform import WORDS
from jobs.session import Spark
from jobs.warehouse.specs import MESSAGES, TRANSFORMED

PROCESS_BYTES = 2**29
"""Up to so many bytes of Parquet are held in pandas, which takes several times as much."""


def frame_of(spark: Spark, table: Table, files: Sequence[DataFile]) -> Any:
    """The rows of some files with the columns that the table stores; see `jobs.warehouse.raw`.

    Raises:
        WarehouseError: a file cannot be read.
    """
    tasks, schema = plan(table, files), arrow_schema(table.schema())
    read = partial(_rows, Storage.of(table), schema)
    session = session_for(spark, sum(task.size for task in tasks), PROCESS_BYTES)
    if session is None:
        parts = [rows for task in tasks for rows in read(task)]
        return pa.Table.from_batches(parts, schema).to_pandas()
    from pyspark.sql.pandas.types import from_arrow_schema

    rows = session.range(0, len(tasks), 1, max(1, len(tasks)))
    work = partial(_of_tasks, read, tasks)
    return rows.mapInArrow(work, from_arrow_schema(schema))


def _rows(storage: Storage, schema: pa.Schema, task: Task) -> Iterator[pa.RecordBatch]:
    for piece in task.pieces:
        yield from batches(storage, piece, schema)


def _of_tasks(
    read: Any, tasks: Sequence[Task], numbers: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            yield from read(tasks[number])


def read_files(table: str, paths: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of some files of `messages` or `transformed_messages`.

    Raises:
        WarehouseError: a file cannot be read.
    """
    (spec,) = (spec for spec in (MESSAGES, TRANSFORMED) if spec.name == table)
    schema = arrow_schema(spec.schema, WORDS | {"stream", "cluster"})
    for path in paths:
        for batch in batches(Storage(), Piece(path), schema):
            yield restored_rows(batch, spec.rows.names)
