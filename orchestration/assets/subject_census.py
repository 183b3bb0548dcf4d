"""The asset `subject_census`: the subjects of a day, counted once for all dry runs."""

from __future__ import annotations

import time

import dagster as dg

from jobs.census import CENSUS, census
from jobs.errors import JobError
from jobs.settings.census import CensusSettings
from jobs.warehouse import tables
from orchestration.archive import Archive
from orchestration.assets.asset import ArchiveAsset
from orchestration.days import add_rows_by_day, days_of, require_ingested
from orchestration.failures import failing_with_one_line
from orchestration.metadata.columns import columns_of
from orchestration.metadata.values import Results, throughput


def run(archive: Archive, context: dg.AssetExecutionContext) -> Results:
    """Counts the days."""
    days = days_of(context)
    started = time.monotonic()
    settings = CensusSettings(**archive.job_settings(days, context.run.run_id))
    with failing_with_one_line():
        require_ingested(archive, context.instance, days)
        result = census(archive.session, settings)
        table = tables.open_table(archive.tables, CENSUS)
        if result.refused is not None:
            raise JobError("refused", reason=result.refused)
        add_rows_by_day(context, table, archive.stream, days)
    yield dg.MaterializeResult(
        metadata={
            "subjects": result.rows,
            "messages": result.messages,
            "bytes": result.bytes,
            **throughput(result.messages, time.monotonic() - started),
            "engine": result.engine,
            **columns_of(archive, "subject_census"),
            "snapshot": str(result.snapshot_id),
        }
    )


ASSET = ArchiveAsset(
    "subject_census",
    "Each subject of a day, by cluster, with its messages and bytes, and the times of its first "
    "and last message.",
    frozenset({"spark", "iceberg"}),
    run,
    deps=("messages",),
)
