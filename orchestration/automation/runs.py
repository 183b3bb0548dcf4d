"""The runs that cover some days of an archive."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import date, timedelta

import dagster as dg

from orchestration.archive import Archive
from orchestration.days import range_tags


def select(archive: Archive, assets: Sequence[str]) -> dg.AssetSelection:
    """These assets of an archive."""
    return dg.AssetSelection.assets(*(archive.key(asset) for asset in assets))


def run_requests(
    archive: Archive,
    days: Sequence[date],
    *,
    one_run: bool = False,
    assets: Sequence[str] | None = None,
    key: Callable[[str], str] = str,
) -> Iterator[dg.RunRequest]:
    """The runs that cover some days as the archive's backfills do: in ranges, or day by day.

    Args:
        archive: the archive.
        days: ascending.
        one_run: ranges, whatever the archive says.
        assets: those of the job by default.
        key: makes the run key of the days of a run.
    """
    selection = None if assets is None else [archive.key(asset) for asset in assets]
    for first, last in _ranges(days, 1 if archive.backfill == "day_by_day" and not one_run else 0):
        if first == last:
            yield dg.RunRequest(
                run_key=key(f"{first}"), partition_key=first.isoformat(), asset_selection=selection
            )
        else:
            yield dg.RunRequest(
                run_key=key(f"{first}..{last}"),
                tags=range_tags(first, last),
                asset_selection=selection,
            )


def _ranges(days: Sequence[date], most: int) -> Iterator[tuple[date, date]]:
    """First and last of each stretch of days without a gap, of at most so many days (0: any)."""
    stretch: list[date] = []
    for day in days:
        if stretch and (day - stretch[-1] > timedelta(days=1) or len(stretch) == most):
            yield stretch[0], stretch[-1]
            stretch = []
        stretch.append(day)
    if stretch:
        yield stretch[0], stretch[-1]
