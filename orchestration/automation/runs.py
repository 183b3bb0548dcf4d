"""The runs that cover some days of an archive."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date

import dagster as dg

from jobs.settings.days import day_ranges
from orchestration.archive import Archive
from orchestration.days import range_tags

_OPEN = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
]


def select(archives: Sequence[Archive], assets: Sequence[str]) -> dg.AssetSelection:
    """These assets of some archives."""
    return dg.AssetSelection.assets(*{a.key(asset): None for a in archives for asset in assets})


def sensor_status(*, running: bool) -> dg.DefaultSensorStatus:
    """The status of a sensor before anybody switches it on or off."""
    return dg.DefaultSensorStatus.RUNNING if running else dg.DefaultSensorStatus.STOPPED


def busy_assets(instance: dg.DagsterInstance, sensor: str) -> set[dg.AssetKey]:
    """What the runs that a sensor has started are still making."""
    started = dg.RunsFilter(statuses=_OPEN, tags={"dagster/sensor_name": sensor})
    return {
        key
        for record in instance.get_run_records(started)
        for key in record.dagster_run.asset_selection or ()
    }


def run_requests(
    archive: Archive,
    days: Sequence[date],
    *,
    one_run: bool = False,
    assets: Sequence[str],
    key: str = "",
) -> Iterator[dg.RunRequest]:
    """The runs that cover some days as the archive's backfills do: in ranges, or day by day.

    Args:
        days: ascending.
        one_run: ranges, whatever the archive says.
        key: what the run keys start with; the archive and the days of the run follow.
    """
    selection = [archive.key(asset) for asset in assets]
    prefix = f"{key} {archive.name}".strip()
    for stretch in day_ranges(days, 1 if archive.backfill == "day_by_day" and not one_run else 0):
        is_one = len(stretch) == 1
        yield dg.RunRequest(
            run_key=f"{prefix} {stretch}",
            partition_key=stretch.first.isoformat() if is_one else None,
            tags=None if is_one else range_tags(stretch.first, stretch.last),
            asset_selection=selection,
        )
