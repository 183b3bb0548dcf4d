"""Days of an archive: the days of a run, their tags, and what the tables have of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date

import dagster as dg
from pyiceberg.table import Table

from jobs.settings.days import DayRange
from jobs.warehouse import tables
from orchestration.metadata.values import Plain


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


def add_metadata_by_day(
    context: dg.AssetExecutionContext, days: Mapping[date, Mapping[str, Plain]]
) -> None:
    """Adds the metadata of each day to its materialization, if a run covers several days."""
    for day, values in days.items():
        context.add_asset_metadata(values, partition_key=day.isoformat())


def rows_by_day(table: Table, stream: str, days: Sequence[date]) -> Mapping[date, int]:
    """How many rows the table has of each day. It reads no file: Iceberg has counted them."""
    table.refresh()
    return {
        day: sum(file.record_count for file in tables.data_files(table, stream, [day]))
        for day in days
    }
