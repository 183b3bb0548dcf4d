"""Messages as rows of our tables, and archives made of them without an ingest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.files.commit import arrow_schema, data_file
from jobs.files.read import Piece, batches
from jobs.files.storage import Storage
from jobs.files.text import restored_rows, stored
from jobs.files.write import Writer
from jobs.settings.warehouse import Warehouse
from jobs.warehouse.specs import MESSAGES, TRANSFORMED, TableSpec
from jobs.warehouse.staging import Staged, new_folder, publish
from jobs.warehouse.tables import data_files, open_table
from nats_transform.mappings.subject import encode

Row = dict[str, Any]

_SUBJECTS = ("subject", "mapped_subject", "mapping_destination")
_ARROW = {
    field.name: pa.binary() if field.name in _SUBJECTS else field.type for field in TRANSFORMED.rows
}


BYTES_OF = {
    "subject": pa.binary(),
    "headers": pa.list_(pa.struct([("name", pa.binary()), ("value", pa.binary())])),
}
"""Of columns whose text is any bytes, these bytes."""


def message(
    seq: int,
    subject: str | None,
    ts: datetime,
    *,
    stream: str = "S",
    cluster: str | None = None,
    headers: Sequence[tuple[str, str]] | None = None,
    data: bytes | None = b"",
) -> Row:
    """A row of `messages`; bytes of the subject that are not UTF-8 are surrogate escapes."""
    return {
        "stream": stream,
        "seq": seq,
        "ts": ts,
        "ts_ns": (ts - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000,
        "day": ts.date(),
        "subject": subject,
        "cluster": cluster,
        "headers": headers,
        "headers_raw": None,
        "data": data,
    }


def columns(rows: Sequence[Row]) -> dict[str, pa.Array]:
    """The columns of some rows; subjects are binary."""

    def cell(name: str, value: Any) -> Any:
        if name == "headers" and value is not None:
            return [{"name": n, "value": v} for n, v in value]
        if name in _SUBJECTS and value is not None:
            return encode(value)
        return value

    return {
        name: pa.array([cell(name, row[name]) for row in rows], kind)
        for name, kind in _ARROW.items()
        if name in rows[0]
    }


def frame(spark: SparkSession, rows: Sequence[Row]) -> DataFrame:
    """Rows of `messages` or `transformed_messages` in Spark, any bytes in their subjects."""
    made = spark.createDataFrame(pa.table(columns(rows)))
    return made.withColumns(
        {name: F.col(name).cast("string") for name in made.columns if name in _SUBJECTS}
    )


def new_file(table: Table, folder: str, day: date, found: Mapping[str, pa.Array]) -> DataFile:
    """A file with messages of a day, of columns as jobs have them."""
    schema = arrow_schema(table.schema())
    arrays = stored(dict(found), schema.names)
    arrays = [array.cast(field.type) for array, field in zip(arrays, schema, strict=True)]
    with Writer(Storage.of(table), folder, day.isoformat(), schema) as writer:
        writer.write(pa.RecordBatch.from_arrays(arrays, schema=schema))
        return data_file(table, writer.close())


def staged(table: Table, rows: Sequence[Row]) -> Staged:
    """Files with rows of one stream, not yet part of the table."""
    folder, files = new_folder(table), []
    for day in sorted({row["day"] for row in rows}):
        found = columns([row for row in rows if row["day"] == day])
        text = {name: found[name].view(pa.string()) for name in found if name in _SUBJECTS}
        files.append(new_file(table, folder, day, found | text))
    return Staged(folder, tuple(files))


def without_a_row(file: DataFile) -> None:
    """Takes the first row out of a file."""
    path = file.file_path.removeprefix("file://")
    pq.write_table(pq.read_table(path, partitioning=None).slice(1), path)


def lose_a_row(spark: Any, table: Table, staged: Staged, *_: Any) -> None:
    """Takes one out of what comes to the gate."""
    without_a_row(staged.data_files[0])


def archive(warehouse: Warehouse, rows: Sequence[Row], spec: TableSpec = MESSAGES) -> None:
    """Adds rows to a table, each stream in a commit of its own."""
    table = open_table(warehouse, spec, create=True)
    for stream in dict.fromkeys(row["stream"] for row in rows):
        mine = staged(table, [row for row in rows if row["stream"] == stream])
        publish(table, mine, stream, replace=False, properties={})


def rows_of(warehouse: Warehouse, stream: str = "S", spec: TableSpec = MESSAGES) -> list[Any]:
    """The rows of a stream by sequence, read without Spark; subjects and headers are bytes."""
    table = open_table(warehouse, spec)
    schema, storage = arrow_schema(spec.schema), Storage.of(table)
    found = []
    for file in data_files(table, stream):
        for batch in batches(storage, Piece(file.file_path), schema):
            restored = restored_rows(batch, spec.rows.names)
            columns = {
                name: column.cast(BYTES_OF.get(name, column.type)).to_pylist()
                for name, column in zip(restored.schema.names, restored.columns, strict=True)
            }
            rows = zip(*columns.values(), strict=True)
            found += [SimpleNamespace(**dict(zip(columns, row, strict=True))) for row in rows]
    return sorted(found, key=lambda row: row.seq)


def sequences(
    table: Table, stream: str | None = None, days: Sequence[date] | None = None
) -> list[int]:
    """The sequences of a table's messages, in order."""
    schema = pa.schema([("seq", pa.int64())])
    found: list[int] = []
    for file in data_files(table, stream, days):
        for batch in batches(Storage.of(table), Piece(file.file_path), schema):
            found += batch.column("seq").to_pylist()
    return sorted(found)
