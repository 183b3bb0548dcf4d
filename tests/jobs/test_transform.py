"""The transform job on real tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from jobs import digest, tables
from jobs.errors import ArchiveError, Refused, WarehouseError
from jobs.transform import StagedTransform, TransformSettings, run
from nats_transform import AccountMappings, Destination, Fate, Mapping

pytestmark = pytest.mark.spark

DAY = date(2026, 3, 1)
SUBJECTS = ["shop.eu.42", "shop.us.7", "drop.x", "other", "a..b", None]
MAPPINGS = AccountMappings(
    [
        Mapping(
            "shop.*.*", [Destination("v1.$2.$1", 60), Destination("v2.{{partition(4,2)}}", 40)]
        ),
        Mapping("drop.>", [Destination("kept.>", 50), Destination("drop.>", 0)]),
    ]
)
Row = dict[str, Any]


def messages(count: int = 300, days: int = 3, first: int = 1) -> list[Row]:
    """Messages that cycle through the subjects, `days` days."""
    rows = []
    for seq in range(first, first + count):
        ts = datetime(2026, 3, 1, tzinfo=UTC) + timedelta(days=seq * days // (first + count))
        rows.append(
            {
                "stream": "S",
                "seq": seq,
                "ts": ts,
                "ts_ns": int(ts.timestamp()) * 10**9,
                "day": ts.date(),
                "subject": SUBJECTS[seq % len(SUBJECTS)],
                "cluster": ("east", None)[seq % 2],
                "headers": [("a", "b")] if seq % 3 else None,
                "headers_raw": None,
                "data": bytearray(b"payload %d" % seq),
            }
        )
    return rows


def archive(spark: SparkSession, warehouse: tables.Warehouse, rows: Sequence[Row]) -> None:
    """Makes these rows part of `messages`."""
    table = tables.open_table(warehouse, tables.MESSAGES, create=True)
    schema = tables.MESSAGES.spark_schema
    frame = spark.createDataFrame([tuple(r[n] for n in schema.names) for r in rows], schema)
    staged = tables.stage(frame, table, tables.MESSAGES)
    tables.publish(table, staged, "S", replace=False, properties={})


@pytest.fixture
def warehouse(tmp_path: Path) -> tables.Warehouse:
    return tables.Warehouse(dir=tmp_path / "warehouse")


def settings(warehouse: tables.Warehouse, **more: Any) -> TransformSettings:
    return TransformSettings(stream="S", mapping=Path("unused"), warehouse=warehouse, **more)


def published(spark: SparkSession, warehouse: tables.Warehouse) -> list[Row]:
    table = tables.open_table(warehouse, tables.TRANSFORMED)
    return [r.asDict() for r in tables.read(spark, table, tables.TRANSFORMED).collect()]


def test_rows_counts_digest_and_properties(
    spark: SparkSession, warehouse: tables.Warehouse
) -> None:
    rows = messages()
    archive(spark, warehouse, rows)
    result = run(spark, settings(warehouse, seed=7, run_id="r1"), MAPPINGS, "v")
    there = published(spark, warehouse)

    wanted = {
        r["seq"]: MAPPINGS.replay(r["subject"], r["cluster"], stream="S", seq=r["seq"], seed=7)
        for r in rows
    }
    assert {r["seq"]: (r["mapped_subject"], r["fate"], r["reason"], r["draw"]) for r in there} == {
        seq: (o.subject, o.fate.value, o.reason, o.draw) for seq, o in wanted.items()
    }
    kept = [name for name in tables.MESSAGES.spark_schema.names if name not in ("ts", "headers")]
    assert sorted(([r[n] for n in kept] for r in there), key=lambda r: r[1]) == [
        [r[n] for n in kept] for r in rows
    ]
    fates = Counter(o.fate.value for o in wanted.values())
    assert result.fates == {fate.value: fates[fate.value] for fate in Fate}
    assert min(result.fates[name] for name in ("mapped", "unmatched", "lost", "invalid")) > 0
    assert result.messages == len(rows)
    assert result.days == (DAY, DAY + timedelta(days=1), DAY + timedelta(days=2))

    table = tables.open_table(warehouse, tables.TRANSFORMED)
    assert result.snapshot_id == table.current_snapshot().snapshot_id
    again = tables.read(spark, table, tables.TRANSFORMED)
    assert str(digest.digest(again)) == result.digest
    properties = tables.snapshot_properties(table)
    assert (
        properties.items()
        >= {
            "mapping-version": "v",
            "run-id": "r1",
            "seed": "7",
            "digest": result.digest,
            "mapped": str(result.fates["mapped"]),
            "input-snapshot": str(result.input_snapshot),
        }.items()
    )
    source = tables.open_table(warehouse, tables.MESSAGES)
    assert result.input_snapshot == source.current_snapshot().snapshot_id


def test_a_rerun_replaces_only_its_days(spark: SparkSession, warehouse: tables.Warehouse) -> None:
    archive(spark, warehouse, messages())
    run(spark, settings(warehouse), MAPPINGS, "v1")
    second = DAY + timedelta(days=1)
    result = run(spark, settings(warehouse, first_day=second), MAPPINGS, "v2")
    assert result.days == (second,)
    there = published(spark, warehouse)
    assert len(there) == 300
    assert {r["day"] for r in there if r["mapping_version"] == "v2"} == {second}
    assert {r["mapping_version"] for r in there if r["day"] != second} == {"v1"}


def test_a_day_without_messages(spark: SparkSession, warehouse: tables.Warehouse) -> None:
    archive(spark, warehouse, messages())
    result = run(spark, settings(warehouse, first_day=date(2020, 1, 1)), MAPPINGS, "v")
    assert (result.messages, result.days, result.digest) == (0, (), "0" * 16)
    assert published(spark, warehouse) == []


def test_a_check_sees_the_staged_rows(spark: SparkSession, warehouse: tables.Warehouse) -> None:
    archive(spark, warehouse, messages())
    seen: list[StagedTransform] = []
    result = run(spark, settings(warehouse), MAPPINGS, "v", seen.append)
    (staged,) = seen
    assert staged.rows.count() == result.messages == 300
    assert staged.result.snapshot_id is None
    assert staged.result.digest == result.digest


def test_a_check_that_raises_publishes_nothing(
    spark: SparkSession, warehouse: tables.Warehouse
) -> None:
    archive(spark, warehouse, messages())

    def refuse(staged: StagedTransform) -> None:
        raise ValueError("too many lost")

    with pytest.raises(
        Refused, match="too many lost; nothing was published, the files are in"
    ) as e:
        run(spark, settings(warehouse), MAPPINGS, "v", refuse)
    folder = Path(str(e.value).split(" in ")[-1].removeprefix("file://"))
    assert list(folder.rglob("*.parquet"))
    assert published(spark, warehouse) == []


def test_a_sequence_that_is_there_twice(spark: SparkSession, warehouse: tables.Warehouse) -> None:
    rows = messages()
    archive(spark, warehouse, [*rows, rows[100]])
    with pytest.raises(ArchiveError, match="a sequence between 64 and 127 more than once"):
        run(spark, settings(warehouse), MAPPINGS, "v")
    assert written(warehouse) == []


def test_a_message_without_a_sequence(spark: SparkSession, warehouse: tables.Warehouse) -> None:
    rows = messages()
    archive(spark, warehouse, [*rows, rows[100] | {"seq": None}])
    with pytest.raises(ArchiveError, match="a message without a sequence"):
        run(spark, settings(warehouse), MAPPINGS, "v")
    assert written(warehouse) == []


def test_an_unknown_stream(spark: SparkSession, warehouse: tables.Warehouse) -> None:
    archive(spark, warehouse, messages())
    elsewhere = TransformSettings(stream="T", mapping=Path("unused"), warehouse=warehouse)
    with pytest.raises(ArchiveError, match="no messages of stream 'T'"):
        run(spark, elsewhere, MAPPINGS, "v")


def test_no_archive(spark: SparkSession, warehouse: tables.Warehouse) -> None:
    with pytest.raises(WarehouseError, match=r"no table nats\.messages"):
        run(spark, settings(warehouse), MAPPINGS, "v")


def written(warehouse: tables.Warehouse) -> list[Path]:
    return list((warehouse.folder / "nats" / "transformed_messages" / "data").rglob("*.parquet"))
