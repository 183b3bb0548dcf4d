"""The asset `transformed_messages`: staged, checked, and only then published."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import cast

import dagster as dg

from expectations.expectation import Report
from jobs.settings.transform import TransformSettings
from jobs.transform import transform
from jobs.warehouse.specs import TRANSFORMED
from jobs.warehouse.tables import find_table
from nats_transform import NatsTransformError
from orchestration.archive import CHECKS, Archive
from orchestration.assets import checks
from orchestration.assets.asset import ArchiveAsset
from orchestration.assets.suites import UserSuites, with_quarantine
from orchestration.days import days_of, require_ingested
from orchestration.failures import failing_with_one_line
from orchestration.mapping_in_force import mapping_in_force
from orchestration.metadata.columns import columns_of
from orchestration.metadata.markdown import bar, table
from orchestration.metadata.shares import shares_of_checks, worst_of_checks
from orchestration.metadata.values import Plain, Results, throughput
from orchestration.pages import link
from orchestration.promotion import changes, place_of


def run(archive: Archive, context: dg.AssetExecutionContext) -> Results:
    """Transforms the days; a check that fails as an error keeps the table as it was."""
    days = days_of(context)
    started = time.monotonic()
    with failing_with_one_line():
        suites = UserSuites(archive, "transformed_messages", days, context.log.warning)
        require_ingested(archive, context.instance, days)
        mappings, version, seed = mapping_in_force(context.instance, archive)
        before = find_table(archive.tables.main, TRANSFORMED)  # what consumers read
        place = place_of(archive, version, before)
        settings = TransformSettings(
            **archive.mapped_settings(days, context.run.run_id)
            | {"warehouse": place, "seed": seed},
            tolerance=archive.tolerance,
            confidence=archive.confidence,
            columns=archive.columns,
        )
        sieve = suites.sieve()
        result = transform(archive.session, settings, mappings, also=suites, sift=sieve)
        # Checks are not left out here.
        report = with_quarantine(cast(Report, result.report), result.quarantined)
        page = suites.keep(report)
    # The checks that refuse it are results all the same.
    yield from checks.results(archive, ASSET, report, page, suites.pages)
    if result.refused is not None:
        raise dg.Failure(f"{result.refused} (see {page})", allow_retries=False)
    seconds = time.monotonic() - started
    try:
        compared = changes(archive, days, before, place, result)
    except NatsTransformError as error:  # the rows are good, whatever became of those before
        context.log.warning(f"not compared with the rows before: {error}")
        compared = {}
    if len(days) > 1:
        for day in result.days:
            of_day = {**_fates(report.measures.fates_of(day)), **shares_of_checks(report, day)}
            context.add_asset_metadata(of_day, partition_key=day.isoformat())
    yield dg.MaterializeResult(
        metadata={
            **worst_of_checks(report),  # what one looks for is first
            **compared,
            **_fates(result.fates),
            **shares_of_checks(report),
            "data docs": link(archive, page),
            **throughput(result.messages, seconds),
            "engine": result.engine,
            **columns_of(archive, "transformed_messages"),
            "mapping version": result.mapping_version,
            "digest": result.digest,
            "snapshot": str(result.snapshot_id),
            "input snapshot": str(result.input_snapshot),
            **({"erased": result.erased} if result.erased else {}),
            **({"quarantined": sum(result.quarantined.values())} if sieve else {}),
        }
    )


ASSET = ArchiveAsset(
    "transformed_messages",
    "A day's messages under the mappings in force, each with its new subject and its fate.",
    frozenset({"spark", "iceberg"}),
    run,
    deps=("messages", "mapping_version"),
    follows_mapping=True,
    checks=tuple(CHECKS["transformed_messages"]),
)


def _fates(fates: Mapping[str, int]) -> Mapping[str, Plain]:
    """How many messages had each fate, as numbers and as bars."""
    total = sum(fates.values())
    rows = [
        (fate, f"{count:,}", f"{count / max(1, total):.2%}", bar(100 * count / max(1, total)))
        for fate, count in fates.items()
    ]
    return {
        "dagster/row_count": total,
        **fates,
        "fates": table(("fate", "messages", "share", ""), rows),
    }
