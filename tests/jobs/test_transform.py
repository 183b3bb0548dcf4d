"""The transform job on real tables."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pydantic import ValidationError
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform, MonthTransform
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks.frames import read
from jobs.errors import ArchiveError, ConcurrentWrite
from jobs.files.division import plan
from jobs.session import Spark
from jobs.settings.transform import TransformSettings
from jobs.settings.warehouse import Warehouse
from jobs.transform import transform
from jobs.warehouse import specs, tables
from jobs.warehouse.paths import NAMESPACE
from nats_transform import Fate
from nats_transform.config import mapping_version
from nats_transform.mappings.subject import encode
from nats_transform.spark import digest
from tests.support.archive import Row, archive, message
from tests.support.jobs import HERE
from tests.support.meanwhile import just_before
from tests.support.refused import refused
from tests.support.rules import mappings as account

pytestmark = pytest.mark.spark

DAY = date(2026, 3, 1)
SUBJECTS = ["shop.eu.42", "shop.us.7", "drop.x", "other", "a..b", None]
MAPPINGS = account(
    {
        "shop.*.*": [("v1.$2.$1", 60), ("v2.{{partition(4,2)}}", 40)],
        "drop.>": [("kept.>", 50), ("drop.>", 0)],
    }
)


def messages(count: int = 300) -> list[Row]:
    """Messages of three days that cycle through the subjects."""
    return [
        message(
            seq,
            SUBJECTS[seq % len(SUBJECTS)],
            datetime(2026, 3, 1 + seq * 3 // (count + 1), tzinfo=UTC),
            cluster=("east", None)[seq % 2],
            headers=[("a", "b")] if seq % 3 else None,
            data=b"payload %d" % seq,
        )
        for seq in range(1, count + 1)
    ]


def settings(warehouse: Warehouse, **more: Any) -> TransformSettings:
    return TransformSettings(stream="S", mapping=Path("unused"), warehouse=warehouse, **more)


@pytest.fixture(params=["process", "spark"])
def engine(request: pytest.FixtureRequest, spark: SparkSession) -> Spark:
    """What does the work: this process, or the session of the tests."""
    return HERE if request.param == "process" else spark


def published(spark: SparkSession, warehouse: Warehouse) -> list[Row]:
    table = tables.open_table(warehouse, specs.TRANSFORMED)
    return [r.asDict() for r in read(spark, table, specs.TRANSFORMED).collect()]


def test_rows_counts_digest_and_properties(
    spark: SparkSession, engine: Spark, warehouse: Warehouse
) -> None:
    rows = messages()
    archive(warehouse, rows)
    result = transform(engine, settings(warehouse, seed=7, run_id="r1"), MAPPINGS)
    there = published(spark, warehouse)

    wanted = {
        r["seq"]: MAPPINGS.replay(r["subject"], r["cluster"], stream="S", seq=r["seq"], seed=7)
        for r in rows
    }
    assert {r["seq"]: (r["mapped_subject"], r["fate"], r["reason"], r["draw"]) for r in there} == {
        seq: (o.subject, o.fate.value, o.reason, o.draw) for seq, o in wanted.items()
    }
    kept = [name for name in specs.MESSAGES.rows.names if name not in ("ts", "headers")]
    assert sorted(([r[n] for n in kept] for r in there), key=lambda r: r[1]) == [
        [r[n] for n in kept] for r in rows
    ]
    fates = Counter(o.fate.value for o in wanted.values())
    assert result.fates == {fate.value: fates[fate.value] for fate in Fate}
    assert min(result.fates[name] for name in ("mapped", "unmatched", "lost", "invalid")) > 0
    assert result.messages == len(rows)
    assert result.days == (DAY, DAY + timedelta(days=1), DAY + timedelta(days=2))

    table = tables.open_table(warehouse, specs.TRANSFORMED)
    assert result.snapshot_id == tables.snapshot_id(table)
    assert str(digest.digest(read(spark, table, specs.TRANSFORMED))) == result.digest
    told = {
        "mapping-version": mapping_version(MAPPINGS, 7),
        "checks": str(result.report),
        "run-id": "r1",
        "seed": "7",
        "digest": result.digest,
        "mapped": str(result.fates["mapped"]),
        "input-snapshot": str(result.input_snapshot),
    }
    assert tables.snapshot_properties(table).items() >= told.items()
    source = tables.open_table(warehouse, specs.MESSAGES)
    assert result.input_snapshot == tables.snapshot_id(source)


def test_a_rerun_replaces_only_its_days(
    spark: SparkSession, engine: Spark, warehouse: Warehouse
) -> None:
    archive(warehouse, messages())
    old = transform(engine, settings(warehouse), MAPPINGS).mapping_version
    second = DAY + timedelta(days=1)
    result = transform(engine, settings(warehouse, first_day=second, seed=2), MAPPINGS)
    new = result.mapping_version
    assert result.days == (second,)
    there = published(spark, warehouse)
    assert len(there) == 300
    assert {r["day"] for r in there if r["mapping_version"] == new} == {second}
    assert {r["mapping_version"] for r in there if r["day"] != second} == {old}


def test_a_day_without_messages(spark: SparkSession, engine: Spark, warehouse: Warehouse) -> None:
    archive(warehouse, messages())
    result = transform(engine, settings(warehouse, first_day=date(2020, 1, 1)), MAPPINGS)
    assert (result.messages, result.days, result.digest) == (0, (), "0" * 16)
    assert published(spark, warehouse) == []


def test_days_that_someone_else_changed(
    spark: SparkSession, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive(warehouse, messages())
    other = settings(warehouse, seed=2)
    just_before(monkeypatch, "jobs.gate.publish", lambda *_: transform(spark, other, MAPPINGS))
    with pytest.raises(ConcurrentWrite):
        transform(spark, settings(warehouse), MAPPINGS)
    versions = {r["mapping_version"] for r in published(spark, warehouse)}
    assert versions == {mapping_version(MAPPINGS, 2)}


@pytest.mark.parametrize(
    ("place", "change", "what"),
    [
        pytest.param(100, {}, "sequence 101 more than once", id="twice"),
        pytest.param(0, {"day": DAY + timedelta(days=2)}, "sequence 1 more than once", id="2 days"),
        pytest.param(100, {"seq": None}, "a message without a sequence", id="none"),
    ],
)
def test_sequences_that_cannot_be(
    engine: Spark, warehouse: Warehouse, place: int, change: Row, what: str
) -> None:
    rows = messages()
    archive(warehouse, [*rows, rows[place] | change])
    with refused(ArchiveError, "table-has-broken-rows", what=what):
        transform(engine, settings(warehouse), MAPPINGS)
    assert written(warehouse) == []


def foreign(warehouse: Warehouse, schema: pa.Schema, *partitions: str) -> Table:
    """A table `messages` that another tool made."""
    catalog = tables.open_catalog(warehouse, create=True)
    table = catalog.create_table((NAMESPACE, "messages"), schema)
    with table.update_spec() as update:
        for name in partitions:
            transform = MonthTransform() if name == "month" else IdentityTransform()
            update.add_field("day" if name == "month" else name, transform, f"{name}_part")
    return catalog.load_table((NAMESPACE, "messages"))


THEIRS = pa.schema(
    {
        "day": pa.date32(),
        "stream": pa.string(),
        "seq": pa.int64(),
        "subject": pa.string(),
        "cluster": pa.string(),
        "ts": pa.timestamp("us", tz="UTC"),
        "size": pa.int32(),
    }
)


@pytest.mark.parametrize(
    ("change", "partitions", "told"),
    [
        ({"seq": None}, (), {"column": "seq", "is_what": "is missing"}),
        ({"seq": pa.string()}, (), {"is_what": "is string"}),
        ({"seq": pa.int32()}, (), {"is_what": "is int"}),
        ({"subject": pa.binary()}, (), {"is_what": "is binary"}),
        ({"ts": pa.timestamp("us")}, (), {"is_what": "is timestamp"}),
        ({}, (), {"those": "nothing"}),
        ({}, ("day", "stream"), {"those": "identity of day, identity of stream"}),
        ({}, ("stream", "month"), {"those": "identity of stream, month of day"}),
    ],
)
def test_a_table_that_is_not_ours(
    spark: SparkSession,
    warehouse: Warehouse,
    change: dict[str, pa.DataType | None],
    partitions: tuple[str, ...],
    told: dict[str, Any],
) -> None:
    fields = {f.name: f.type for f in THEIRS} | change
    schema = pa.schema({name: kind for name, kind in fields.items() if kind is not None})
    foreign(warehouse, schema, *partitions)
    code = "table-column-otherwise" if change else "table-partitioned-otherwise"
    with refused(ArchiveError, code, table="nats.messages", **told):
        transform(spark, settings(warehouse), MAPPINGS)
    assert written(warehouse) == []
    assert not tables.open_catalog(warehouse).table_exists("nats.transformed_messages")


def test_a_table_that_will_do(spark: SparkSession, engine: Spark, warehouse: Warehouse) -> None:
    """Of another tool, with fewer columns than ours and one of its own."""
    table = foreign(warehouse, THEIRS, "stream", "day")
    rows = messages(30)
    theirs = [{n: row.get(n) for n in THEIRS.names} for row in rows]
    table.append(pa.Table.from_pylist(theirs, THEIRS))
    result = transform(engine, settings(warehouse), MAPPINGS)
    assert result.messages == 30
    there = published(spark, warehouse)
    assert {r["seq"]: r["subject"] for r in there} == {r["seq"]: r["subject"] for r in rows}
    assert {r["data"] for r in there} == {None}


def test_files_of_a_day(
    spark: SparkSession, engine: Spark, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many small files of several days become one a day, or as many as its bytes ask for."""
    table = tables.open_table(warehouse, specs.MESSAGES, create=True)
    # Each of 12 tasks has some messages of each of the 3 days.
    rows = messages(240)
    for part in range(12):
        archive(warehouse, rows[part::12])
    table.refresh()
    files = tables.data_files(table, "S")
    assert len(files) > 30

    def days() -> Counter[Any]:
        target = tables.open_table(warehouse, specs.TRANSFORMED)
        return Counter(f.partition[1] for f in tables.data_files(target, "S"))

    first = transform(engine, settings(warehouse), MAPPINGS)
    assert sorted(days().values()) == [1, 1, 1]
    of_day = sum(f.file_size_in_bytes for f in files) // 3
    monkeypatch.setattr("jobs.files.scan.plan", partial(plan, goal=of_day * 2 // 3))
    second = transform(engine, settings(warehouse), MAPPINGS)
    assert sorted(days().values()) == [2, 2, 2]
    assert first.digest == second.digest


def test_subjects_that_are_not_utf8(
    spark: SparkSession, engine: Spark, warehouse: Warehouse
) -> None:
    subjects = ["shop.\udcff.7", "\udcc3", "shop.é.\\", "x.y"]
    mappings = account({"shop.*.*": "v.{{left(1,1)}}.$2"})
    start = datetime(2026, 3, 1, tzinfo=UTC)
    archive(warehouse, [message(n, s, start) for n, s in enumerate(subjects, 1)])
    result = transform(engine, settings(warehouse), mappings)
    table = tables.open_table(warehouse, specs.TRANSFORMED)
    rows = read(spark, table, specs.TRANSFORMED)
    assert str(digest.digest(rows)) == result.digest
    wanted = [mappings.replay(s, stream="S", seq=n) for n, s in enumerate(subjects, 1)]
    found = rows.orderBy("seq").select(F.col("mapped_subject").cast("binary"), "fate").collect()
    assert [(bytes(row[0]), row[1]) for row in found] == [
        (encode(outcome.subject or ""), outcome.fate) for outcome in wanted
    ]
    (file,) = tables.data_files(table, "S")
    with duckdb.connect() as db:
        there = db.read_parquet(file.file_path.removeprefix("file://")).order("seq").fetchall()
    assert len(there) == 4


def test_an_unknown_stream(spark: SparkSession, warehouse: Warehouse) -> None:
    archive(warehouse, messages())
    with refused(ArchiveError, "no-messages-of-stream", stream="T"):
        transform(spark, settings(warehouse).model_copy(update={"stream": "T"}), MAPPINGS)


@pytest.mark.parametrize("seed", [2**63, -(2**63) - 1])
def test_a_seed_that_no_row_of_mapping_versions_can_hold(seed: int) -> None:
    with pytest.raises(ValidationError, match="seed"):
        TransformSettings(stream="S", mapping=Path("unused"), seed=seed)


def written(warehouse: Warehouse) -> list[Path]:
    return list((warehouse.folder / "nats" / "transformed_messages" / "data").rglob("*.parquet"))
