"""Bytes that are not UTF-8: kept to the last one, and no table that other engines refuse."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jobs.audit.run import audit
from jobs.census import CENSUS
from jobs.dry_run.simulate import SIMULATED
from jobs.files.scan import Scan, digested
from jobs.jetstream.headers import format_headers, header_columns
from jobs.session import spark_session
from jobs.settings.audit import AuditSettings
from jobs.settings.spark import SparkSettings
from jobs.settings.warehouse import Warehouse
from jobs.warehouse import raw, versions
from jobs.warehouse.specs import MESSAGES, TRANSFORMED, WEIGHT_AUDIT, TableSpec
from jobs.warehouse.staging import Staged, new_folder, publish
from jobs.warehouse.tables import data_files, open_table
from nats_transform.kernel.digest import digest_batch
from nats_transform.mappings.subject import decode
from tests.support.archive import new_file
from tests.support.jobs import HERE, counted, transformed, tried
from tests.support.rules import mappings

ANY = st.binary(max_size=8) | st.text(r"\xFF80.%+é ", max_size=8).map(str.encode)


def is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


@given(ANY, ANY)
@example(b"\xff", rb"\xFF")
@example(b"\xff\\xFF", b"\\xFF\xff")
def test_bytes_as_text_are_told_apart(one: bytes, other: bytes) -> None:
    text = raw.readable(one)
    assert text == text.encode("utf-8").decode("utf-8")
    if is_text(one):
        assert text.encode() == one
    if is_text(one) == is_text(other):
        assert (text == raw.readable(other)) == (one == other)


VALUES = [
    b"", b"a.b", "é.ü".encode(), b"a.\xff", b"a.\xfe", rb"a.\xFF", b"\\\xff", b"\\\\xFF\xff",
    b"\xc3(", b"a%20+ b\xff", b"%C2%80\x80", b"\x00\x7f\x80\xbf\xc0\xff", "é".encode() + b"\xe9",
    bytes(range(256)),
]  # fmt: skip


def field_of(text: bytes) -> bytes:
    return text.replace(b"\r", b"").replace(b"\n", b"")


BLOCKS: list[bytes | None] = [
    None,
    *(format_headers([(b"K" + field_of(v).replace(b":", b""), field_of(v))]) for v in VALUES),
    b"NATS/1.0\r\nA:no blank\r\nB:  two\r\n\r\n",
    b"NATS/1.0\r\nA:no blank \xff\r\nB:  two\r\nno header\r\n\r\n",
    b"NATS/1.0\r\nA: 1\r\nA: \xff\r\nA: 1\r\n\r\n",
    b"NATS/1.0 503: why\r\nA: \xff\r\n\r\n",
]


@pytest.fixture(scope="module")
def rows() -> pa.RecordBatch:
    """Messages with every kind of bytes, as a stream gives them: text columns with raw bytes."""
    count = max(len(VALUES), len(BLOCKS))
    headers, headers_raw = header_columns([BLOCKS[n % len(BLOCKS)] for n in range(count)])
    values = [VALUES[n % len(VALUES)] for n in range(count)]
    start = datetime(2026, 3, 1, tzinfo=UTC)
    times = [start + timedelta(hours=n) for n in range(count)]
    return pa.RecordBatch.from_pydict(
        {
            "stream": pa.array(["S"] * count),
            "seq": pa.array(range(1, count + 1), pa.int64()),
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "ts_ns": pa.array([int(t.timestamp()) * 10**9 for t in times], pa.int64()),
            "day": pa.array([date(2026, 3, 1)] * count),
            "subject": pa.array([b"x." + v for v in values], pa.binary()).view(pa.string()),
            "cluster": pa.array([v or None for v in values], pa.binary()).view(pa.string()),
            "headers": headers,
            "headers_raw": headers_raw,
            "data": pa.array(values, pa.binary()),
        }
    )


@pytest.fixture(scope="module")
def warehouse(rows: pa.RecordBatch, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """Every table of the product, with such bytes wherever people can put them."""
    folder = tmp_path_factory.mktemp("raw")
    found = Warehouse(dir=folder / "warehouse")
    table = open_table(found, MESSAGES, create=True)
    place = new_folder(table)
    file = new_file(table, place, date(2026, 3, 1), dict(zip(rows.schema.names, rows, strict=True)))
    publish(table, Staged(place, (file,)), "S", replace=False, properties={})
    mapping = folder / "mapping.conf"
    mapping.write_bytes(
        b'mappings { "x.>": [ { destination: "y.\xff.>", weight: 60% },'
        b' { destination: "z.>", weight: 40% } ], "k\xfe.*": "k.$1" }'
    )
    streams = folder / "streams"
    streams.mkdir()
    (streams / "z.json").write_text('{"name": "Z", "subjects": ["z.>"]}')
    transformed(found, mapping)
    counted(found)
    audit(HERE, AuditSettings(stream="S", mapping=mapping, warehouse=found))
    tried(found, mapping, streams=streams, simulate=True)
    config = mappings({"a\udcff": [("b\udcfe", 100, "c\udcfd")]})
    versions.record(found, config, account="$G", seed=0)
    return found


TABLES = [MESSAGES, TRANSFORMED, CENSUS, SIMULATED, WEIGHT_AUDIT, versions.MAPPING_VERSIONS]


ENGINES: dict[str, Callable[[list[str]], int]] = {
    "duckdb": lambda paths: len(duckdb.read_parquet(paths).fetchall()),
    "polars": lambda paths: pl.read_parquet(paths).height,
    "pandas": lambda paths: sum(len(pd.read_parquet(path)) for path in paths),
}


def in_pyarrow(paths: list[str]) -> int:
    found = pa.concat_tables([pq.read_table(path) for path in paths])
    found.validate(full=True)
    return found.num_rows


def in_spark(paths: list[str]) -> int:
    session = spark_session(SparkSettings(master="local[2]"))
    return len(session.read.parquet(*paths).collect())


@pytest.mark.parametrize(
    "engine",
    [
        *(pytest.param(engine, id=name) for name, engine in ENGINES.items()),
        in_pyarrow,
        pytest.param(in_spark, marks=pytest.mark.spark),
    ],
)
@pytest.mark.parametrize("spec", TABLES, ids=lambda spec: spec.name)
def test_every_engine_reads_every_table(
    warehouse: Warehouse, spec: TableSpec, engine: Callable[[list[str]], int]
) -> None:
    files = [task.file for task in open_table(warehouse, spec).scan().plan_files()]
    assert files
    count = engine([file.file_path.removeprefix("file://") for file in files])
    assert count == sum(file.record_count for file in files) > 0


@pytest.mark.parametrize("spec", TABLES, ids=lambda spec: spec.name)
def test_as_iceberg_tables(warehouse: Warehouse, spec: TableSpec) -> None:
    table = open_table(warehouse, spec)
    found = table.scan().to_arrow()
    found.validate(full=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert pl.scan_iceberg(table).collect().height == found.num_rows > 0


def test_rows_come_back_with_all_bytes(rows: pa.RecordBatch, warehouse: Warehouse) -> None:
    table = open_table(warehouse, MESSAGES)
    found_rows = Scan.of(table, MESSAGES, data_files(table)).sum(HERE, digested, "digesting")
    assert found_rows == digest_batch(rows)
    found: list[tuple[Any, ...]] = []
    for batch in Scan.of(table, MESSAGES, data_files(table, "S"), ["seq", "subject", "cluster"]):
        texts = (batch[name].view(pa.binary()).to_pylist() for name in ("subject", "cluster"))
        found += zip(batch["seq"].to_pylist(), *texts, strict=True)
    wanted = [VALUES[n % len(VALUES)] for n in range(len(found))]
    assert sorted(found) == [(n, b"x." + v, v or None) for n, v in enumerate(wanted, 1)]


def test_what_is_stored(warehouse: Warehouse) -> None:
    found = open_table(warehouse, MESSAGES).scan().to_arrow().to_pylist()
    for row in found:
        value = VALUES[(row["seq"] - 1) % len(VALUES)]
        subject = b"x." + value
        block = BLOCKS[(row["seq"] - 1) % len(BLOCKS)]
        assert row["subject"] == raw.readable(subject)
        assert row["subject_raw"] == (None if is_text(subject) else subject)
        if block is not None and row["headers_raw"] is None:
            pairs = [(h["name"].encode(), h["value"].encode()) for h in row["headers"]]
            assert format_headers(pairs) == block
        else:
            assert row["headers_raw"] == block


def test_a_census_does_not_merge_what_looks_alike(warehouse: Warehouse) -> None:
    found = open_table(warehouse, CENSUS).scan().to_arrow().to_pylist()
    subjects = {row["subject_raw"] or row["subject"].encode() for row in found}
    assert subjects == {b"x." + value for value in VALUES}


def test_transformed_messages_are_those_of_the_library(warehouse: Warehouse) -> None:
    table = open_table(warehouse, TRANSFORMED)
    found = table.scan().to_arrow().to_pylist()
    config = mappings({"x.>": [("y.\udcff.>", 60), ("z.>", 40)]})
    for row in found:
        subject = row["subject_raw"] or row["subject"].encode()
        mapped = row["mapped_subject_raw"] or (row["mapped_subject"] or "").encode()
        outcome = config.apply(decode(subject), draw=row["draw"] or 0)
        assert decode(mapped) == (outcome.subject or "")
        if row["fate"] == "mapped" and mapped.startswith(b"y"):
            assert row["mapping_destination"] == r"y.\xFF.>"
            assert row["mapping_destination_raw"] == b"y.\xff.>"
