"""The automation of an archive: its jobs and schedules, and its mapping sensor."""

from __future__ import annotations

import dagster as dg

from orchestration.archive import Archive
from orchestration.automation.mapping_sensor import mapping_sensor
from orchestration.automation.runs import select
from orchestration.automation.schedules import schedule_of, watch_schedule

REPROCESSED = ("messages", "subject_census", "transformed_messages")
OBSERVED = ("messages", "subject_census")


def automation(archive: Archive) -> dg.Definitions:
    """The jobs of an archive, and the schedules and the sensor that its YAML asks for."""
    assets = REPROCESSED if archive.observed is None else OBSERVED
    reprocess = dg.define_asset_job(
        f"{archive.name}_reprocess",
        selection=select(archive, ("mapping_version", *assets)),
        executor_def=dg.in_process_executor,
        description="Ingest days, count their subjects, and transform their messages."
        if archive.observed is None
        else "Ingest days and count their subjects.",
    )
    audit = dg.define_asset_job(
        f"{archive.name}_audit",
        selection=select(archive, ("weight_audit",)),
        executor_def=dg.in_process_executor,
        description="Compare each destination's share with its weight.",
    )
    jobs = [reprocess, audit]
    nightly, weekly = f"{archive.name}_nightly", f"{archive.name}_weekly_audit"
    schedules = []
    if archive.nightly is not None:
        schedules.append(schedule_of(archive, nightly, archive.nightly, reprocess))
    if archive.weekly_audit is not None:
        # One report about all its days, whatever a backfill does.
        schedules.append(schedule_of(archive, weekly, archive.weekly_audit, audit, one_run=True))
    if archive.observed is not None and archive.observed.watch is not None:
        watch = dg.define_asset_job(
            f"{archive.name}_watch",
            selection=select(archive, ("mapping_version", "messages", "canary_watch")),
            executor_def=dg.in_process_executor,
            description="Ingest what is new, and look at the running canary.",
        )
        jobs.append(watch)
        schedules.append(watch_schedule(archive, archive.observed.watch, watch))
    sensors = [] if archive.mapping_sensor is None else [mapping_sensor(archive)]
    return dg.Definitions(jobs=jobs, schedules=schedules, sensors=sensors)
