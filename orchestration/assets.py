"""The assets of an archive. Each body calls one job and returns what people look at.

mapping_version ───────────────┬──────────────────┐
messages ─┬─▶ subject_census   ▼                  ▼
          └─────────▶ transformed_messages ─▶ weight_audit
"""

# Dagster reads the annotations of asset functions: no `from __future__ import annotations` here.
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import date, timedelta

import dagster as dg
from dagster import AssetExecutionContext

from jobs.census import CENSUS, CensusSettings, census
from jobs.errors import SPARK_ERRORS, job_error
from jobs.ingest import ingest
from jobs.transform import TransformSettings, publish, stage
from jobs.warehouse import tables, versions
from jobs.warehouse.accounting import Archived
from nats_transform import AccountMappings, NatsTransformError
from nats_transform.check import Origin, check
from nats_transform.config import load_all, load_mappings, mapping_version
from nats_transform.findings import Severity
from nats_transform.spark.digest import row_hash
from orchestration import checks, metadata
from orchestration.archive import Archive
from orchestration.automation import stale_days
from orchestration.days import fates_by_day, rows_by_day
from orchestration.resources import SparkResource


def archive_assets(archive: Archive) -> list[dg.AssetsDefinition]:
    """The five assets of an archive, upstream first."""
    return [
        _mapping_version(archive),
        _messages(archive),
        _subject_census(archive),
        _transformed_messages(archive),
        _weight_audit(archive),
    ]


def _mapping_version(archive: Archive) -> dg.AssetsDefinition:
    @dg.asset(
        key=archive.key("mapping_version"),
        group_name=archive.name,
        kinds={"nats"},
        description="The mappings in force; their data version is the hash of what they do.",
    )
    def mapping_version_(context: AssetExecutionContext) -> dg.MaterializeResult[None]:
        with _one_message():
            located = load_all(archive.mapping, archive.account)[0]
            mappings = load_mappings(archive.mapping, archive.account)
            origin = Origin(str(archive.mapping), archive.account, located.places)
            findings = check(mappings, origins=[origin])
            for finding in findings:
                if finding.severity is Severity.ERROR:
                    raise NatsTransformError(f"{metadata.place(finding)}: {finding.message}")
            now = versions.record(
                archive.tables,
                mappings,
                account=archive.account,
                seed=archive.seed,
                findings=findings,
            )
            before = _materialized_version(context, archive)
            known = {one.mapping_version: one for one in versions.read(archive.tables)}
        return dg.MaterializeResult(
            data_version=dg.DataVersion(now.mapping_version),
            metadata=metadata.of_version(now, findings, known.get(before or ""), len(known)),
        )

    return mapping_version_


def _messages(archive: Archive) -> dg.AssetsDefinition:
    key = archive.key("messages")

    @dg.asset(
        key=key,
        group_name=archive.name,
        partitions_def=archive.partitions,
        backfill_policy=archive.backfill_policy,
        pool=archive.pool,
        kinds={"nats", "spark", "iceberg"},
        check_specs=checks.specs(key, checks.MESSAGES),
        description="The archived messages of a day, as they were stored.",
    )
    def messages(
        context: AssetExecutionContext, spark: SparkResource
    ) -> Iterator[dg.AssetCheckResult | dg.MaterializeResult[None]]:
        # Great Expectations and SciPy take longer to import than all else: not when Dagster loads.
        from expectations.suites import Reference
        from expectations.validation import validate_messages

        first, last = _days(context)
        started = time.monotonic()
        with _one_message():
            added = 0
            for source in archive.sources:
                settings = source.ingest_settings(
                    archive.stream, archive.tables, (first, last), context.run.run_id
                )
                result = ingest(spark.session, settings, context.log.info)
                added += result.added
            table = tables.open_table(archive.tables, tables.MESSAGES)
            days = [first + timedelta(days=n) for n in range((last - first).days + 1)]
            archived = Archived.of(table, archive.stream)
            counted = archived.digest_of(days)
            report = validate_messages(
                tables.read(spark.session(), table, tables.MESSAGES, archive.stream, days),
                archive.reports_folder,
                name=f"{archive.stream} {first} to {last}",
                ingested=Reference(counted.rows, str(counted)),
                explained=archived.coverage.ranges,
                row_hash=row_hash(tables.MESSAGES.spark_schema),
            )
            counts = rows_by_day(table, archive.stream, days)
        yield from checks.results(archive, key, checks.MESSAGES, report)
        _tell_days(context, {day: {"dagster/row_count": counts.get(day, 0)} for day in days})
        yield dg.MaterializeResult(
            metadata={
                **metadata.of_ingest(result, added),
                "data docs": metadata.link(archive, report.docs_path),
                **metadata.throughput(added, time.monotonic() - started),
            }
        )

    return messages


def _subject_census(archive: Archive) -> dg.AssetsDefinition:
    @dg.asset(
        key=archive.key("subject_census"),
        group_name=archive.name,
        deps=[archive.key("messages")],
        partitions_def=archive.partitions,
        backfill_policy=archive.backfill_policy,
        pool=archive.pool,
        kinds={"spark", "iceberg"},
        description="Every distinct subject of a day, by cluster: messages, bytes, first and last.",
    )
    def subject_census(
        context: AssetExecutionContext, spark: SparkResource
    ) -> dg.MaterializeResult[None]:
        first, last = _days(context)
        started = time.monotonic()
        settings = CensusSettings(
            stream=archive.stream,
            warehouse=archive.tables,
            first_day=first,
            last_day=last,
            run_id=context.run.run_id,
        )
        with _one_message():
            result = census(spark.session, settings)
            table = tables.open_table(archive.tables, CENSUS)
            days = settings.days or []
            counts = rows_by_day(table, archive.stream, days)
        _tell_days(context, {day: {"dagster/row_count": counts.get(day, 0)} for day in days})
        return dg.MaterializeResult(
            metadata={
                **metadata.of_census(result),
                **metadata.throughput(result.messages, time.monotonic() - started),
            }
        )

    return subject_census


def _transformed_messages(archive: Archive) -> dg.AssetsDefinition:
    key = archive.key("transformed_messages")

    @dg.asset(
        key=key,
        group_name=archive.name,
        deps=[archive.key("messages"), archive.key("mapping_version")],
        partitions_def=archive.partitions,
        backfill_policy=archive.backfill_policy,
        pool=archive.pool,
        automation_condition=stale_days(archive),
        kinds={"spark", "iceberg"},
        check_specs=checks.specs(key, checks.TRANSFORMED_MESSAGES),
        description="The messages of a day as the mappings make them, each with its fate.",
    )
    def transformed_messages(
        context: AssetExecutionContext, spark: SparkResource
    ) -> Iterator[dg.AssetCheckResult | dg.MaterializeResult[None]]:
        from expectations.suites import Reference  # as above
        from expectations.validation import validate_transformed_messages

        first, last = _days(context)
        started = time.monotonic()
        settings = TransformSettings(
            stream=archive.stream,
            mapping=archive.mapping,
            account=archive.account,
            warehouse=archive.tables,
            first_day=first,
            last_day=last,
            seed=archive.seed,
            run_id=context.run.run_id,
        )
        with _one_message():
            mappings, version = _in_force(context, archive)
            staged = stage(spark.session, settings, mappings, version)
            report = validate_transformed_messages(
                staged.rows(spark.session),
                mappings,
                archive.reports_folder,
                name=f"{archive.stream} {first} to {last}",
                archive=Reference(staged.archive.rows, str(staged.archive)),
                seed=archive.seed,
                version=version,
                written=staged.result.digest,
                before=staged.before,
                archive_hash=row_hash(tables.MESSAGES.spark_schema),
                table_hash=row_hash(tables.TRANSFORMED.spark_schema),
                tolerance=archive.tolerance,
                confidence=archive.confidence,
            )
        # The checks that refuse it are results all the same.
        yield from checks.results(archive, key, checks.TRANSFORMED_MESSAGES, report)
        with _one_message():
            if report.blocks:
                raise staged.refused(report)
            result = publish(staged)
        seconds = time.monotonic() - started
        if first != last:
            with _one_message():
                table = tables.open_table(archive.tables, tables.TRANSFORMED)
                fates = fates_by_day(spark.session(), table, archive.stream, settings.days or [])
            _tell_days(
                context,
                {
                    day: {**metadata.of_fates(fates[day]), **metadata.of_checks(report, day)}
                    for day in fates
                },
            )
        yield dg.MaterializeResult(
            metadata={
                **metadata.of_transform(result),
                **metadata.of_checks(report),
                "data docs": metadata.link(archive, report.docs_path),
                **metadata.throughput(result.messages, seconds),
            }
        )

    return transformed_messages


def _weight_audit(archive: Archive) -> dg.AssetsDefinition:
    @dg.asset(
        key=archive.key("weight_audit"),
        group_name=archive.name,
        # The version directly too: without it, a new one would not make audits stale at once.
        deps=[archive.key("transformed_messages"), archive.key("mapping_version")],
        partitions_def=archive.partitions,
        backfill_policy=archive.backfill_policy,
        pool=archive.pool,
        automation_condition=stale_days(archive),
        kinds={"spark", "iceberg"},
        description="The split of every weighted mapping against its weights, by cluster.",
    )
    def weight_audit(
        context: AssetExecutionContext, spark: SparkResource
    ) -> dg.MaterializeResult[None]:
        from jobs.audit.run import run as run_audit
        from jobs.audit.settings import AuditSettings
        from jobs.pages import audit as page  # as above
        from nats_transform.audit import Period

        first, last = _days(context)
        settings = AuditSettings(
            stream=archive.stream,
            mapping=archive.mapping,
            account=archive.account,
            warehouse=archive.tables,
            first_day=first,
            last_day=last,
            seed=archive.seed,
            tolerance=archive.tolerance,
            confidence=archive.confidence,
            run_id=context.run.run_id,
        )
        with _one_message():
            mappings, version = _in_force(context, archive)
            result = run_audit(spark.session, settings, [Period(mappings, version)])
            archive.reports_folder.mkdir(parents=True, exist_ok=True)
            path = archive.reports_folder / f"audit-{first}-{last}.html"
            page.write(result, path)
            path.with_suffix(".json").write_text(result.model_dump_json(indent=2))
        return dg.MaterializeResult(
            metadata={"page": metadata.link(archive, path), **metadata.of_audit(result)}
        )

    return weight_audit


@contextmanager
def _one_message() -> Iterator[None]:
    """Fails the asset with one clear line where the user can mend something."""
    try:
        yield
    except (NatsTransformError, *SPARK_ERRORS) as error:
        raise _failure(error) from error


def _failure(error: Exception) -> dg.Failure:
    # Spark's own, such as a JVM that was killed, may come from any line that asks it something.
    told = error if isinstance(error, NatsTransformError) else job_error(error)
    return dg.Failure(description=str(told), allow_retries=False)


def _materialized_version(context: AssetExecutionContext, archive: Archive) -> str | None:
    """The mapping version that Dagster has as the latest of the archive."""
    event = context.instance.get_latest_materialization_event(archive.key("mapping_version"))
    if event is None or event.asset_materialization is None:
        return None
    found = event.asset_materialization.metadata.get("version")
    return None if found is None else str(found.value)


def _in_force(context: AssetExecutionContext, archive: Archive) -> tuple[AccountMappings, str]:
    """The mappings and the version that `mapping_version` was last materialized with.

    So what a day is transformed under is what the graph says, though the file may have changed
    since; the file counts only while no version was ever materialized.
    """
    version = _materialized_version(context, archive)
    if version is not None:
        return versions.find(archive.tables, version).mappings, version
    mappings = load_mappings(archive.mapping, archive.account)
    return mappings, mapping_version(mappings, archive.seed)


def _tell_days(
    context: AssetExecutionContext, days: Mapping[date, Mapping[str, metadata.Plain]]
) -> None:
    """Adds to the materialization of each day what is its own, where a run covers several."""
    for day, values in days.items():
        context.add_asset_metadata(values, partition_key=day.isoformat())


def _days(context: AssetExecutionContext) -> tuple[date, date]:
    """First and last day of the run."""
    keys = sorted(context.partition_keys)
    return date.fromisoformat(keys[0]), date.fromisoformat(keys[-1])
