"""The asset `subject_census`: the subjects of a day, counted once for all dry runs."""

# Dagster reads the annotations of asset functions: no `from __future__ import annotations` here.
import time

import dagster as dg
from dagster import AssetExecutionContext

from jobs.census import CENSUS, census
from jobs.errors import JobError
from jobs.settings.census import CensusSettings
from jobs.warehouse import tables
from orchestration.archive import Archive
from orchestration.days import add_metadata_by_day, days_of, rows_by_day
from orchestration.failures import failing_with_one_line
from orchestration.metadata.columns import columns_of
from orchestration.metadata.values import throughput


def subject_census_asset(archive: Archive) -> dg.AssetsDefinition:
    """The asset."""

    @dg.asset(
        key=archive.key("subject_census"),
        group_name=archive.name,
        deps=[archive.key("messages")],
        partitions_def=archive.partitions,
        backfill_policy=archive.backfill_policy,
        pool=archive.pool,
        kinds={"spark", "iceberg"},
        description="Each subject of a day, by cluster, with its number of messages and bytes and "
        "the times of its first and last message.",
    )
    def subject_census(context: AssetExecutionContext) -> dg.MaterializeResult[None]:
        days = days_of(context)
        started = time.monotonic()
        settings = CensusSettings(**archive.job_settings(days, context.run.run_id))
        with failing_with_one_line():
            result = census(archive.session, settings)
            table = tables.open_table(archive.tables, CENSUS)
            if result.refused is not None:
                raise JobError(result.refused)
            rows = rows_by_day(table, archive.stream, days)
        add_metadata_by_day(context, {day: {"dagster/row_count": rows[day]} for day in days})
        return dg.MaterializeResult(
            metadata={
                "subjects": result.rows,
                "messages": result.messages,
                "bytes": result.bytes,
                **throughput(result.messages, time.monotonic() - started),
                **columns_of(archive, "subject_census"),
                "snapshot": str(result.snapshot_id),
            }
        )

    return subject_census
