"""What an archive does by itself: jobs, schedules, the sensor on its mapping file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import dagster as dg
from dagster import AutomationCondition as Condition
from dagster import RunRequest
from dagster._core.storage.tags import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
)

from nats_transform import NatsTransformError
from nats_transform.config import load_mappings, mapping_version
from orchestration.archive import Archive, Schedule

REPROCESSED = ("messages", "subject_census", "transformed_messages")
_PAGE = 500

DERIVED = ("transformed_messages", "weight_audit")
"""What a mapping version decides."""


def automation(archive: Archive) -> dg.Definitions:
    """The jobs of an archive, and the schedules and the sensor that its YAML asks for."""
    reprocess = dg.define_asset_job(
        f"{archive.name}_reprocess",
        selection=_select(archive, ("mapping_version", *REPROCESSED)),
        description="Ingest days, count their subjects and transform them again.",
    )
    audit = dg.define_asset_job(
        f"{archive.name}_audit",
        selection=_select(archive, ("weight_audit",)),
        description="Hold the split of days against the weights.",
    )
    schedules = []
    if archive.nightly is not None:
        schedules.append(_schedule(archive, f"{archive.name}_nightly", archive.nightly, reprocess))
    if archive.weekly_audit is not None:
        # One report about all its days, whatever a backfill does.
        schedules.append(
            _schedule(
                archive, f"{archive.name}_weekly_audit", archive.weekly_audit, audit, one_run=True
            )
        )
    sensors = [] if archive.mapping_sensor is None else [_mapping_sensor(archive)]
    return dg.Definitions(jobs=[reprocess, audit], schedules=schedules, sensors=sensors)


def stale_days(archive: Archive) -> dg.AutomationCondition[Any] | None:
    """The condition of what a mapping version decides, if its stale days are to be reprocessed.

    A day counts once what it was made of has another data version; a day that was never made is
    left alone.
    """
    if archive.automation == "off":
        return None
    return (
        Condition.any_deps_match(Condition.data_version_changed()).since_last_handled()
        & ~Condition.missing()
        & ~Condition.any_deps_missing()
        & ~Condition.any_deps_in_progress()
        & ~Condition.in_progress()
    ).with_label("stale days")


def _select(archive: Archive, assets: Sequence[str]) -> dg.AssetSelection:
    return dg.AssetSelection.assets(*(archive.key(asset) for asset in assets))


def _schedule(
    archive: Archive,
    name: str,
    schedule: Schedule,
    job: dg.JobDefinition | object,
    one_run: bool = False,
) -> dg.ScheduleDefinition:
    def requests(
        context: dg.ScheduleEvaluationContext,
    ) -> Iterator[RunRequest | dg.SkipReason]:
        days = _last_days(archive, schedule.days, context.scheduled_execution_time)
        if not days:
            yield dg.SkipReason(f"{archive.name} has no day before {archive.start_date}")
        yield from run_requests(archive, days, one_run=one_run)

    return dg.ScheduleDefinition(
        name=name,
        job=job,  # type: ignore[arg-type]  # what define_asset_job gives has no public type
        cron_schedule=schedule.cron,
        execution_timezone=schedule.timezone,
        execution_fn=requests,
        default_status=(
            dg.DefaultScheduleStatus.RUNNING
            if schedule.running
            else dg.DefaultScheduleStatus.STOPPED
        ),
    )


def _last_days(archive: Archive, count: int, now: datetime) -> list[date]:
    """The last days of the archive that are over."""
    today = now.astimezone(UTC).date()
    days = (today - timedelta(days=n) for n in range(count, 0, -1))
    return [day for day in days if day >= archive.start_date]


def run_requests(
    archive: Archive,
    days: Sequence[date],
    *,
    one_run: bool = False,
    assets: Sequence[str] | None = None,
    key: Callable[[str], str] = str,
) -> Iterator[RunRequest]:
    """The runs that cover some days as the archive's backfills do: in ranges, or day by day.

    Args:
        archive: whose days.
        days: ascending.
        one_run: ranges, whatever the archive says.
        assets: those of the job by default.
        key: makes the run key of the days of a run.
    """
    selection = None if assets is None else [archive.key(asset) for asset in assets]
    for first, last in _ranges(days, 1 if archive.backfill == "day_by_day" and not one_run else 0):
        tags = {
            ASSET_PARTITION_RANGE_START_TAG: first.isoformat(),
            ASSET_PARTITION_RANGE_END_TAG: last.isoformat(),
        }
        if first == last:
            yield RunRequest(
                run_key=key(f"{first}"), partition_key=first.isoformat(), asset_selection=selection
            )
        else:
            yield RunRequest(run_key=key(f"{first}..{last}"), tags=tags, asset_selection=selection)


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


def _mapping_sensor(archive: Archive) -> dg.SensorDefinition:
    settings = archive.mapping_sensor
    assert settings is not None  # noqa: S101 - the caller asked
    key = archive.key("mapping_version")

    def look(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        try:
            mappings = load_mappings(archive.mapping, archive.account)
        except NatsTransformError as error:
            # The tick fails, and shows in the UI, for as long as the file is not mended.
            raise dg.Failure(str(error), allow_retries=False) from None
        version = mapping_version(mappings, archive.seed)
        if context.cursor != version:
            record = RunRequest(run_key=f"mapping {version}", asset_selection=[key])
            known = _known_version(context.instance, key)
            return dg.SensorResult(
                run_requests=[] if known == version else [record], cursor=version
            )
        if settings.reprocess == "stale_days" and _known_version(context.instance, key) == version:
            days = days_of_other_versions(context.instance, archive, version)
            requests = run_requests(
                archive, days, assets=DERIVED, key=lambda days: f"{version} {days}"
            )
            if days:
                return dg.SensorResult(run_requests=list(requests), cursor=version)
        return dg.SkipReason(f"{archive.mapping} still means version {version[:12]}")

    return dg.SensorDefinition(
        name=f"{archive.name}_mapping",
        evaluation_fn=look,
        asset_selection=_select(archive, ("mapping_version", *DERIVED)),
        minimum_interval_seconds=settings.interval_seconds,
        default_status=(
            dg.DefaultSensorStatus.RUNNING if settings.running else dg.DefaultSensorStatus.STOPPED
        ),
        description="Records a new mapping version once the file means something else.",
    )


def _known_version(instance: dg.DagsterInstance, key: dg.AssetKey) -> str | None:
    """The mapping version that was materialized last."""
    event = instance.get_latest_materialization_event(key)
    if event is None or event.asset_materialization is None:
        return None
    return str(event.asset_materialization.metadata["version"].value)


def days_of_other_versions(
    instance: dg.DagsterInstance, archive: Archive, version: str
) -> list[date]:
    """The days that have been transformed, but not under this version."""
    tag = f"dagster/input_data_version/{archive.key('mapping_version').to_user_string()}"
    key = archive.key("transformed_messages")
    made = instance.get_materialized_partitions(key)
    versions: dict[str, str | None] = {}
    cursor = None
    while not made <= versions.keys():
        # Newest first: what comes first is what the day has now.
        page = instance.fetch_materializations(key, limit=_PAGE, cursor=cursor)
        for record in page.records:
            event = record.asset_materialization
            if event is not None and event.partition is not None:
                versions.setdefault(event.partition, (event.tags or {}).get(tag))
        if not page.has_more:
            break
        cursor = page.cursor
    return sorted(date.fromisoformat(day) for day in made if versions.get(day) != version)
