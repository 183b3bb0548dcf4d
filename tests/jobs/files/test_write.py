"""Files as tasks write and read them."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import parquet_files_to_data_files
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from jobs.errors import WarehouseError
from jobs.files import read, write
from jobs.files.commit import arrow_schema, data_file
from jobs.files.read import Piece
from jobs.files.storage import Storage
from jobs.files.write import Writer, Written
from jobs.warehouse import staging
from tests.support.refused import refused

DAY = date(2026, 3, 1)
ROWS = 5000


def rows(schema: pa.Schema, first: int = 1, count: int = ROWS, size: int = 20) -> pa.RecordBatch:
    start = datetime(2026, 3, 1, tzinfo=UTC)
    found: list[dict[str, Any]] = [
        {
            "stream": "S",
            "seq": seq,
            "ts": start + timedelta(milliseconds=seq),
            "ts_ns": int(start.timestamp()) * 10**9 + seq * 10**6,
            "day": DAY,
            "subject": f"shop.{seq % 7}.é" if seq % 11 else None,
            "cluster": ("east", None)[seq % 2],
            "headers": [None, [], [{"name": "a", "value": "b"}, {"name": "c", "value": None}]][
                seq % 3
            ],
            "data": bytes([seq % 256]) * (seq % size) if seq % 5 else None,
        }
        for seq in range(first, first + count)
    ]
    return pa.RecordBatch.from_pylist(found, schema=schema)


def written(table: Table, *batches: pa.RecordBatch) -> Written:
    schema, folder = batches[0].schema, f"{table.location()}/data/x"
    with Writer(Storage.of(table), folder, "f", schema) as writer:
        for batch in batches:
            writer.write(batch)
        return writer.close()


def column_of(table: Table, rows: list[dict[str, Any]], name: str) -> Any:
    """What the file of these rows says of a column."""
    schema = arrow_schema(table.schema())
    file = written(table, pa.RecordBatch.from_pylist(rows, schema=schema))
    group = pq.read_metadata(file.path.removeprefix("file://")).row_group(0)
    columns = [group.column(n) for n in range(group.num_columns)]
    (column,) = [column for column in columns if column.path_in_schema == name]
    return column


@pytest.mark.spark
def test_every_engine_reads_what_was_written(
    spark: SparkSession, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "GROUP_BYTES", 200_000)
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    schema = arrow_schema(table.schema())
    given = [rows(schema), rows(schema, ROWS + 1)]
    file = written(table, *given)
    wanted = pa.Table.from_batches(given).to_pylist()
    path = file.path.removeprefix("file://")
    assert file.rows == 2 * ROWS
    assert file.size == Path(path).stat().st_size
    assert pq.read_metadata(path).num_row_groups == 2
    staged = staging.Staged("x", (data_file(table, file),))
    staging.publish(table, staged, "S", replace=False, properties={})

    def same(found: list[dict[str, Any]]) -> None:
        found.sort(key=lambda row: row["seq"])
        for row in found:
            row["data"] = None if row["data"] is None else bytes(row["data"])
            row["ts"] = row["ts"].replace(tzinfo=UTC)
        assert [{name: row[name] for name in schema.names} for row in found] == wanted

    in_iceberg = table.scan().to_arrow().to_pylist()
    for row in in_iceberg:  # PyIceberg makes an empty list of one that is missing
        row["headers"] = row["headers"] or wanted[row["seq"] - 1]["headers"]
    same(in_iceberg)
    same(pl.scan_iceberg(table).collect().to_dicts())
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        same(db.read_parquet(path).to_arrow_table().to_pylist())
    same(spark.read.parquet(path).toArrow().to_pylist())
    again = read.batches(Storage.of(table), Piece(file.path), schema)
    same([row for batch in again for row in batch.to_pylist()])
    part = read.batches(Storage.of(table), Piece(file.path, 1, 2, 2), schema)
    assert [row["seq"] for batch in part for row in batch.to_pylist()] == [
        row["seq"] for row in wanted[ROWS:]
    ]


def test_what_a_commit_gets_is_what_pyiceberg_would_find(table: Table) -> None:
    """Of the same columns without numbers, which is what it looks into files for."""
    schema = arrow_schema(table.schema())
    batch = rows(schema)
    file = written(table, batch)
    ours = data_file(table, file)
    plain = pa.Table.from_batches([batch]).replace_schema_metadata(None)
    plain = plain.cast(_without_numbers(schema))
    path = f"{table.location()}/data/plain.parquet"
    pq.write_table(plain, path.removeprefix("file://"))
    (theirs,) = parquet_files_to_data_files(table.io, table.metadata, iter([path]))
    for name in (
        *("partition", "record_count", "value_counts", "null_value_counts", "nan_value_counts"),
        *("lower_bounds", "upper_bounds", "content"),
    ):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert ours.split_offsets == [4]


def _without_numbers(schema: pa.Schema) -> pa.Schema:
    pairs = pa.struct([pa.field("name", pa.string()), pa.field("value", pa.string())])
    return pa.schema(
        [pa.field(f.name, pa.list_(pairs) if f.name == "headers" else f.type) for f in schema]
    )


@pytest.mark.parametrize(
    ("payload", "compression", "encoding"),
    [
        (lambda size: bytes(size), "ZSTD", "DELTA_LENGTH_BYTE_ARRAY"),
        (random.Random(7).randbytes, "UNCOMPRESSED", "PLAIN"),
    ],
    ids=["text", "random"],
)
@pytest.mark.parametrize("size", [64, 1024])
def test_payloads_that_zstd_makes_no_smaller(
    table: Table, payload: Any, compression: str, encoding: str, size: int
) -> None:
    schema = arrow_schema(table.schema())
    made = [row | {"data": payload(size)} for row in rows(schema, count=500).to_pylist()]
    data = column_of(table, made, "data")
    small = "DELTA_LENGTH_BYTE_ARRAY"
    assert data.compression == compression
    assert (encoding if size > 256 else small) in data.encodings


@pytest.mark.parametrize(
    ("subject", "most"),
    [(lambda n: f"orders.{n % 7:0100}", 1), (lambda n: f"orders.{n:0100}", 115)],
    ids=["few", "all different"],
)
def test_subjects_are_written_once_where_they_repeat(
    table: Table, subject: Callable[[int], str], most: int
) -> None:
    schema = arrow_schema(table.schema())
    made = [row | {"subject": subject(n)} for n, row in enumerate(rows(schema).to_pylist())]
    column = column_of(table, made, "subject")
    assert column.total_uncompressed_size <= most * ROWS


def test_texts_that_are_dictionaries(table: Table) -> None:
    schema = arrow_schema(table.schema(), frozenset({"cluster", "subject"}))
    words = pa.DictionaryArray.from_arrays(pa.array([0, None, 1], pa.int32()), ["a", "b"])
    arrays = [words if n in ("cluster", "subject") else pa.nulls(3, t.type)
              for n, t in zip(schema.names, schema, strict=True)]  # fmt: skip
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    file = written(table, batch, batch)
    found = pq.read_table(file.path.removeprefix("file://"))
    assert found.schema.field("cluster").type == pa.string()
    assert found["subject"].to_pylist() == ["a", None, "b"] * 2


def test_batches_are_bounded(table: Table) -> None:
    schema = arrow_schema(table.schema())
    data = pa.array([b"x" * 2**20] * 64)
    arrays = [data if field.name == "data" else pa.nulls(64, field.type) for field in schema]
    file = written(table, pa.RecordBatch.from_arrays(arrays, schema=schema))
    found = [*read.batches(Storage.of(table), Piece(file.path), schema)]
    # The bytes in a file say little of those in memory here: rows of the same bytes pack well.
    assert sum(len(batch) for batch in found) == 64


def test_a_file_that_is_not_finished_is_deleted(table: Table) -> None:
    schema = arrow_schema(table.schema())
    folder = f"{table.location()}/data/x"
    there = Path(folder.removeprefix("file://"))

    def fail() -> None:
        with Writer(Storage(), folder, "f", schema) as writer:
            writer.write(rows(schema))
            writer.flush()
            assert [*there.iterdir()]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert [*there.iterdir()] == []


def test_attempts_never_share_a_file(table: Table) -> None:
    batch = rows(arrow_schema(table.schema()))
    assert written(table, batch).path != written(table, batch).path


def _flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    "harm",
    [
        pytest.param(lambda path: path.write_bytes(path.read_bytes()[:-30]), id="cut off"),
        pytest.param(lambda path: path.write_bytes(b""), id="empty"),
        pytest.param(lambda path: path.unlink(), id="gone"),
        pytest.param(lambda path: _flip(path, path.stat().st_size // 2), id="a bit of a page"),
        pytest.param(lambda path: pq.write_table(pa.table({"x": [1]}), path, row_group_size=1),
                     id="another file"),
    ],
)  # fmt: skip
def test_a_damaged_file(table: Table, harm: Any) -> None:
    schema = arrow_schema(table.schema())
    chance = np.random.default_rng(7)
    noise = pa.array([chance.bytes(200) for _ in range(ROWS)], pa.binary())
    batch = rows(schema).set_column(schema.get_field_index("data"), schema.field("data"), noise)
    file = written(table, batch)
    harm(Path(file.path.removeprefix("file://")))
    with pytest.raises(WarehouseError) as told:
        for _ in read.batches(Storage(), Piece(file.path, 0, 1, 9), schema):
            pass
    assert file.path in str(told.value)


def test_a_place_that_cannot_be_written(table: Table, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    writer = Writer(Storage(), f"{tmp_path}/file/x", "f", arrow_schema(table.schema()))
    with refused(WarehouseError, "write-failed"):
        writer.close()
