"""The schedules of an archive."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta

import dagster as dg

from orchestration.archive import Archive, Schedule, Watch
from orchestration.automation.runs import run_requests
from orchestration.days import range_tags

_STATUS = {True: dg.DefaultScheduleStatus.RUNNING, False: dg.DefaultScheduleStatus.STOPPED}


def schedule_of(
    archives: Sequence[Archive],
    name: str,
    schedule: Schedule,
    job: dg.JobDefinition | object,
    assets: Sequence[str],
    one_run: bool = False,
) -> dg.ScheduleDefinition:
    """A schedule that asks a job for the last days that are over, each archive in runs of its own.

    Args:
        archives: the archives, which start on the same day.
        one_run: one run for all days, whatever the archives say of backfills.
    """

    def requests(
        context: dg.ScheduleEvaluationContext,
    ) -> Iterator[dg.RunRequest | dg.SkipReason]:
        days = _last_days(archives[0], schedule.days, context.scheduled_execution_time)
        if not days:
            yield dg.SkipReason(f"no day is over yet since the start, {archives[0].start_date}")
        for archive in archives:
            yield from run_requests(archive, days, one_run=one_run, assets=assets)

    return dg.ScheduleDefinition(
        name=name,
        job=job,  # type: ignore[arg-type]  # what define_asset_job gives has no public type
        cron_schedule=schedule.cron,
        execution_timezone=schedule.timezone,
        execution_fn=requests,
        description="Runs the job for the day before."
        if schedule.days == 1
        else f"Runs the job for the last {schedule.days} full days.",
        default_status=_STATUS[schedule.running],
    )


def watch_schedule(
    archive: Archive, watch: Watch, job: dg.JobDefinition | object
) -> dg.ScheduleDefinition:
    """The schedule of the looks at a canary: each first ingests up to the last full hour.

    That's from the last day on which the archive was ingested, so no day stays out after a pause.
    """

    def request(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        now = context.scheduled_execution_time.astimezone(UTC)
        until = now.replace(minute=0, second=0, microsecond=0)
        day = (until - timedelta(microseconds=1)).date()
        if day < archive.start_date:
            return dg.SkipReason(f"{archive.name} starts on {archive.start_date}")
        if not archive.include_today and day == now.date():
            return dg.SkipReason(
                f"{archive.name} has no partition for today: set include_today: true"
            )
        ingested = context.instance.get_materialized_partitions(archive.key("messages"))
        before = [key for key in ingested if str(archive.start_date) <= key < day.isoformat()]
        first = date.fromisoformat(max(before)) if before else day
        return dg.RunRequest(
            run_key=until.isoformat(),
            partition_key=day.isoformat() if first == day else None,
            tags=range_tags(first, day) if first < day else None,
            run_config={
                "ops": {archive.op_name("canary_watch"): {"config": {"until": until.isoformat()}}}
            },
        )

    return dg.ScheduleDefinition(
        name=f"{archive.name}_watch",
        job=job,  # type: ignore[arg-type]  # what define_asset_job gives has no public type
        cron_schedule=watch.cron,
        execution_timezone="UTC",
        execution_fn=request,
        description="Ingests up to the last full hour, and looks at the running canary.",
        default_status=_STATUS[watch.running],
    )


def _last_days(archive: Archive, count: int, now: datetime) -> list[date]:
    """The last days of the archive that are over."""
    today = now.astimezone(UTC).date()
    count = min(count, (today - archive.start_date).days)
    return [today - timedelta(days=n) for n in range(count, 0, -1)]
