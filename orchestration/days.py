"""Days of an archive: the days of a run, their tags, and what the tables have of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import date

import dagster as dg
from pyiceberg.table import Table

from jobs.settings.days import DayRange, day_ranges
from jobs.warehouse import specs, tables
from nats_transform.errors import NatsTransformError
from orchestration.archive import Archive


def range_tags(first: date, last: date) -> dict[str, str]:
    """The tags of a run over a range of days, both inclusive."""
    return {
        "dagster/asset_partition_range_start": first.isoformat(),
        "dagster/asset_partition_range_end": last.isoformat(),
    }


def days_of(context: dg.AssetExecutionContext) -> list[date]:
    """Every day from the first to the last of a run."""
    days = [date.fromisoformat(key) for key in context.partition_keys]
    return list(DayRange(min(days), max(days)))


def empty_days(
    archive: Archive, instance: dg.DagsterInstance, days: Sequence[date]
) -> tuple[list[date], list[date]]:
    """The days without a message; and those of them that no run has ingested."""
    table = tables.open_table(archive.tables, specs.MESSAGES)
    ingested = instance.get_materialized_partitions(archive.key("messages"))
    empty = [day for day, rows in rows_by_day(table, archive.stream, days).items() if not rows]
    return empty, [day for day in empty if day.isoformat() not in ingested]


def require_ingested(archive: Archive, instance: dg.DagsterInstance, days: Sequence[date]) -> None:
    """Raises an error if a run would make nothing of days because nobody has ingested them."""
    if unseen := empty_days(archive, instance, days)[1]:
        days_in_words = ", ".join(map(str, day_ranges(unseen)))
        asset = archive.key("messages").to_user_string()
        raise NatsTransformError("days-not-ingested", days=days_in_words, asset=asset)


def rows_by_day(table: Table, stream: str, days: Sequence[date]) -> dict[date, int]:
    """How many rows the table has of each day. It reads no file: Iceberg has counted them."""
    counts = Counter[date]()
    files = tables.data_files(table.refresh(), stream, days)
    for (_, day), of_day in tables.by_day(table, files).items():
        counts[day] = sum(file.record_count for file in of_day)
    return {day: counts[day] for day in days}


def add_rows_by_day(
    context: dg.AssetExecutionContext, table: Table, stream: str, days: Sequence[date]
) -> None:
    """Adds to the materialization of each day how many rows the table has of it."""
    for day, rows in rows_by_day(table, stream, days).items():
        context.add_asset_metadata({"dagster/row_count": rows}, partition_key=day.isoformat())
