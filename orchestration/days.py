"""What the tables have of each day, for the materializations of a run over several days."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import date

from pyiceberg.table import Table
from pyspark.sql import SparkSession

from jobs.warehouse import tables
from nats_transform import Fate


def rows_by_day(table: Table, stream: str, days: Sequence[date]) -> Mapping[date, int]:
    """How many rows the table has of each day; it reads no file, Iceberg has counted them."""
    table.refresh()
    counts = Counter[date]()
    for day in days:
        counts[day] = sum(f.record_count for f in tables.data_files(table, stream, [day]))
    return counts


def fates_by_day(
    spark: SparkSession, table: Table, stream: str, days: Sequence[date]
) -> Mapping[date, Mapping[str, int]]:
    """How many messages of each day had which fate; it reads two small columns."""
    rows = tables.read(spark, table, tables.TRANSFORMED, stream, days)
    found: dict[date, dict[str, int]] = defaultdict(lambda: {fate.value: 0 for fate in Fate})
    for row in rows.groupBy("day", "fate").count().collect():
        found[row["day"]][row["fate"]] = row["count"]
    return found
