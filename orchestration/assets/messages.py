"""The asset `messages`: the archived messages of a day, and the checks on them."""

from __future__ import annotations

import time
from dataclasses import replace

import dagster as dg

from expectations.expectation import Row, report_on
from expectations.messages import measure_messages
from jobs.ingest import ingest
from jobs.progress import watched
from jobs.verify_table import messages_check
from jobs.warehouse import specs, tables
from jobs.warehouse.accounting import Archived
from orchestration.archive import CHECKS, Archive
from orchestration.assets import checks
from orchestration.assets.asset import ArchiveAsset
from orchestration.assets.suites import UserSuites
from orchestration.days import add_rows_by_day, days_of
from orchestration.failures import failing_with_one_line
from orchestration.metadata.columns import columns_of
from orchestration.metadata.values import Results, throughput
from orchestration.pages import link


def run(archive: Archive, context: dg.AssetExecutionContext) -> Results:
    """Ingests every source of the archive, in order."""
    days = days_of(context)
    started = time.monotonic()
    with failing_with_one_line():
        suites = UserSuites(archive, "messages", days, context.log.warning)
        added, refused, measures = 0, None, measure_messages(())
        manifest: list[Row] = []
        for source in archive.sources:
            settings = source.ingest_settings(
                archive.stream, archive.tables, (days[0], days[-1]), context.run.run_id
            )
            settings = settings.model_copy(update={"may_be_empty": True})  # a stream may be quiet
            with watched(context.log.info):
                result = ingest(archive.session, settings)
            added += result.added
            if result.warning is not None:
                context.log.warning(result.warning)
            if result.report is not None:
                measures += result.report.measures
                manifest += result.report.files
            refused = result.refused
            if refused is not None:
                break
        table = tables.open_table(archive.tables, specs.MESSAGES)
        archived = Archived.of(table, archive.stream)
        check, rows = messages_check(archived, days), archived.digest_of(days)
        files = tables.data_files(table, archive.stream, days)
        if refused is not None or measures.archive == rows:
            # What the gate has looked at is all that there is.
            report = report_on(measures, check.suite, manifest)
        else:
            report = check.of(archive.session, table, files)
        report = replace(report, results=(*report.results, *suites(archive.session, table, files)))
        page = suites.keep(report)
        add_rows_by_day(context, table, archive.stream, days)
    yield from checks.results(archive, ASSET, report, page, suites.pages)
    if refused is not None:
        raise dg.Failure(f"{refused} (see {page})", allow_retries=False)
    yield dg.MaterializeResult(
        metadata={
            "added": added,
            "messages in table": result.messages,
            "gaps": result.gaps,
            "bytes": result.bytes,
            **({"erased": archived.erased_on()} if archived.erased else {}),
            "data docs": link(archive, page),
            **throughput(added, time.monotonic() - started),
            "engine": result.engine,
            **columns_of(archive, "messages"),
            "digest": result.digest,
            "snapshot": str(result.snapshot_id),
        }
    )


ASSET = ArchiveAsset(
    "messages",
    "A day's archived messages, as they were stored.",
    frozenset({"nats", "spark", "iceberg"}),
    run,
    checks=tuple(CHECKS["messages"]),
    upstream=lambda archive: archive.origins,
)
