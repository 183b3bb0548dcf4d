"""The subject census on real tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from jobs.census import CENSUS, CensusSettings, census
from jobs.errors import ArchiveError, WarehouseError
from jobs.warehouse import tables
from tests.support.archive import Row, archive, message

pytestmark = pytest.mark.spark

DAY = date(2026, 3, 1)
SUBJECTS = ["shop.eu", "shop.us", "a..b", None]


def messages(count: int = 60) -> list[Row]:
    rows = []
    for seq in range(1, count + 1):
        ts = datetime(2026, 3, 1, tzinfo=UTC) + timedelta(hours=seq * 48 / (count + 1))
        data = None if seq % 5 == 0 else b"x" * (seq % 7)
        cluster = ("east", "west", None)[seq % 3]
        rows.append(message(seq, SUBJECTS[seq % len(SUBJECTS)], ts, cluster=cluster, data=data))
    return rows


def counted(rows: Sequence[Row]) -> set[tuple[Any, ...]]:
    groups = defaultdict(list)
    for row in rows:
        groups[row["day"], row["subject"], row["cluster"]].append(row)
    return {
        (
            "S",
            *key,
            len(group),
            sum(len(row["data"] or b"") for row in group),
            min(row["ts"] for row in group),
            max(row["ts"] for row in group),
        )
        for key, group in groups.items()
    }


def found(spark: SparkSession, warehouse: tables.Warehouse) -> set[tuple[Any, ...]]:
    table = tables.open_table(warehouse, CENSUS)
    rows = [tuple(row) for row in tables.read(spark, table, CENSUS).collect()]
    assert len(rows) == len(set(rows))
    # Spark gives times of the machine's zone without saying so.
    return {(*row[:6], *(time.astimezone(UTC) for time in row[6:])) for row in rows}


def test_every_subject_of_each_day_and_cluster(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = tables.Warehouse(dir=tmp_path / "warehouse")
    rows = messages()
    archive(warehouse, rows)
    result = census(spark, CensusSettings(stream="S", warehouse=warehouse, run_id="r1"))
    there = found(spark, warehouse)
    assert there == counted(rows)
    assert (result.messages, result.rows) == (len(rows), len(there))
    assert result.bytes == sum(len(row["data"] or b"") for row in rows)
    table = tables.open_table(warehouse, CENSUS)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.snapshot_id == result.snapshot_id
    properties = tables.snapshot_properties(table)
    assert properties["run-id"] == "r1"
    assert properties["input-snapshot"] == str(result.input_snapshot)

    # A day of its own takes the place of that day only.
    again = census(spark, CensusSettings(stream="S", warehouse=warehouse, first_day=DAY))
    assert again.messages == sum(row["day"] == DAY for row in rows)
    assert found(spark, warehouse) == there


def test_a_stream_that_is_not_there(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = tables.Warehouse(dir=tmp_path / "warehouse")
    with pytest.raises(WarehouseError, match=r"no table nats\.messages"):
        census(spark, CensusSettings(stream="S", warehouse=warehouse))
    archive(warehouse, messages(5))
    with pytest.raises(ArchiveError, match="has no messages of stream 'T'"):
        census(spark, CensusSettings(stream="T", warehouse=warehouse))
