"""The automation of archives: their jobs, schedules and sensors."""

from __future__ import annotations

from collections.abc import Sequence

import dagster as dg

from orchestration.archive import Archive
from orchestration.automation.lag_sensor import lag_sensor
from orchestration.automation.mapping_sensor import mapping_sensor
from orchestration.automation.runs import select
from orchestration.automation.schedules import schedule_of, watch_schedule

REPROCESSED = ("mapping_version", "messages", "subject_census", "transformed_messages")
OBSERVED = ("mapping_version", "messages", "subject_census")


def automation(name: str, archives: Sequence[Archive]) -> dg.Definitions:
    """The jobs of archives, and the schedules and sensors that their YAML asks for.

    Args:
        name: what the names of the definitions start with.
        archives: one or more that differ in their streams only.
    """
    archive = archives[0]
    assets = REPROCESSED if archive.observed is None else OBSERVED
    reprocess = dg.define_asset_job(
        f"{name}_reprocess",
        selection=select(archives, assets),
        executor_def=dg.in_process_executor,
        description="Ingest days, count their subjects, and transform their messages."
        if archive.observed is None
        else "Ingest days and count their subjects.",
    )
    audit = dg.define_asset_job(
        f"{name}_audit",
        selection=select(archives, ("weight_audit",)),
        executor_def=dg.in_process_executor,
        description="Compare each destination's share with its weight.",
    )
    jobs = [reprocess, audit]
    schedules, sensors = [], []
    if archive.nightly is not None:
        nightly = f"{name}_nightly"
        schedules.append(schedule_of(archives, nightly, archive.nightly, reprocess, assets))
    if (weekly := archive.weekly_audit) is not None:
        audited = ("weight_audit",)
        # One report about all its days, whatever a backfill does.
        schedules.append(
            schedule_of(archives, f"{name}_weekly_audit", weekly, audit, audited, one_run=True)
        )
    if archive.observed is not None and archive.observed.watch is not None:
        watch = dg.define_asset_job(
            f"{name}_watch",
            selection=select(archives, ("mapping_version", "messages", "canary_watch")),
            executor_def=dg.in_process_executor,
            description="Ingest what is new, and look at the running canary.",
        )
        jobs.append(watch)
        schedules.append(watch_schedule(archive, archive.observed.watch, watch))
    if archive.mapping_sensor is not None:
        sensors.append(mapping_sensor(name, archives))
    if archive.lag_sensor is not None:
        sensors.append(lag_sensor(name, archives))
    return dg.Definitions(jobs=jobs, schedules=schedules, sensors=sensors)
