"""The assets of an archive. Each body calls one job and returns what people look at.

mapping_version ───────────────┐
messages ─┬─▶ subject_census   ▼
          └─────────▶ transformed_messages ─▶ weight_audit
"""

# Dagster reads the annotations of asset functions: no `from __future__ import annotations` here.
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, timedelta

import dagster as dg
from dagster import AssetExecutionContext

from expectations.suites import Reference
from expectations.validation import Report, validate_messages, validate_transformed_messages
from jobs import report as page
from jobs import tables
from jobs.audit import AuditSettings, audit
from jobs.census import CensusSettings, census
from jobs.digest import row_hash
from jobs.errors import Refused
from jobs.ingest import ingest
from jobs.transform import StagedTransform, TransformSettings, run
from nats_transform import NatsTransformError
from nats_transform.config import load_mappings, mapping_version
from orchestration import checks, metadata
from orchestration.archive import Archive
from orchestration.resources import SparkResource

# A range of days is one run and one Spark application.
_BACKFILL = dg.BackfillPolicy.single_run()


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
            mappings = load_mappings(archive.mapping, archive.account)
        version = mapping_version(mappings, archive.seed)
        return dg.MaterializeResult(
            data_version=dg.DataVersion(version),
            metadata={"version": version, "rules": metadata.rules(mappings)},
        )

    return mapping_version_


def _messages(archive: Archive) -> dg.AssetsDefinition:
    key = archive.key("messages")

    @dg.asset(
        key=key,
        group_name=archive.name,
        partitions_def=archive.partitions,
        backfill_policy=_BACKFILL,
        kinds={"nats", "spark", "iceberg"},
        check_specs=checks.specs(key, checks.MESSAGES),
        description="The archived messages of a day, as they were stored.",
    )
    def messages(
        context: AssetExecutionContext, spark: SparkResource
    ) -> Iterator[dg.AssetCheckResult | dg.MaterializeResult[None]]:
        first, last = _days(context)
        session = spark.session()
        with _one_message():
            for source in archive.sources:
                settings = source.ingest_settings(
                    archive.stream, archive.tables, (first, last), context.run_id
                )
                result = ingest(session, settings, context.log.info)
            table = tables.open_table(archive.tables, tables.MESSAGES)
            days = [first + timedelta(days=n) for n in range((last - first).days + 1)]
            report = validate_messages(
                tables.read(session, table, tables.MESSAGES, archive.stream, days),
                archive.reports_folder,
                name=f"{archive.stream} {first} to {last}",
            )
        yield from checks.results(key, checks.MESSAGES, report)
        yield dg.MaterializeResult(metadata=metadata.of_ingest(result))

    return messages


def _subject_census(archive: Archive) -> dg.AssetsDefinition:
    @dg.asset(
        key=archive.key("subject_census"),
        group_name=archive.name,
        deps=[archive.key("messages")],
        partitions_def=archive.partitions,
        backfill_policy=_BACKFILL,
        kinds={"spark", "iceberg"},
        description="Every distinct subject of a day, by cluster: messages, bytes, first and last.",
    )
    def subject_census(
        context: AssetExecutionContext, spark: SparkResource
    ) -> dg.MaterializeResult[None]:
        first, last = _days(context)
        settings = CensusSettings(
            stream=archive.stream,
            warehouse=archive.tables,
            first_day=first,
            last_day=last,
            run_id=context.run_id,
        )
        with _one_message():
            result = census(spark.session(), settings)
        return dg.MaterializeResult(metadata=metadata.of_census(result))

    return subject_census


def _transformed_messages(archive: Archive) -> dg.AssetsDefinition:
    key = archive.key("transformed_messages")

    @dg.asset(
        key=key,
        group_name=archive.name,
        deps=[archive.key("messages"), archive.key("mapping_version")],
        partitions_def=archive.partitions,
        backfill_policy=_BACKFILL,
        kinds={"spark", "iceberg"},
        check_specs=checks.specs(key, checks.TRANSFORMED_MESSAGES),
        description="The messages of a day as the mappings make them, each with its fate.",
    )
    def transformed_messages(
        context: AssetExecutionContext, spark: SparkResource
    ) -> Iterator[dg.AssetCheckResult | dg.MaterializeResult[None]]:
        first, last = _days(context)
        settings = TransformSettings(
            stream=archive.stream,
            mapping=archive.mapping,
            account=archive.account,
            warehouse=archive.tables,
            first_day=first,
            last_day=last,
            seed=archive.seed,
            run_id=context.run_id,
        )
        with _one_message():
            mappings = load_mappings(archive.mapping, archive.account)
        version = mapping_version(mappings, archive.seed)
        reports: list[Report] = []

        def check(staged: StagedTransform) -> None:
            report = validate_transformed_messages(
                staged.rows,
                mappings,
                archive.reports_folder,
                name=f"{archive.stream} {first} to {last}",
                archive=Reference(staged.result.messages),
                seed=archive.seed,
                version=version,
                written=staged.result.digest,
                table_hash=row_hash(tables.TRANSFORMED.spark_schema),
                tolerance=archive.tolerance,
                confidence=archive.confidence,
            )
            reports.append(report)
            if report.blocks:
                raise Refused(str(report))

        try:
            result = run(spark.session(), settings, mappings, version, check)
        except NatsTransformError as error:
            # The checks that refused it are results all the same.
            for report in reports:
                yield from checks.results(key, checks.TRANSFORMED_MESSAGES, report)
            raise dg.Failure(description=str(error), allow_retries=False) from error
        for report in reports:
            yield from checks.results(key, checks.TRANSFORMED_MESSAGES, report)
        yield dg.MaterializeResult(metadata=metadata.of_transform(result))

    return transformed_messages


def _weight_audit(archive: Archive) -> dg.AssetsDefinition:
    @dg.asset(
        key=archive.key("weight_audit"),
        group_name=archive.name,
        deps=[archive.key("transformed_messages")],
        partitions_def=archive.partitions,
        backfill_policy=_BACKFILL,
        kinds={"spark", "iceberg"},
        description="The split of every weighted mapping against its weights, by cluster.",
    )
    def weight_audit(
        context: AssetExecutionContext, spark: SparkResource
    ) -> dg.MaterializeResult[None]:
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
            run_id=context.run_id,
        )
        with _one_message():
            result = audit(spark.session(), settings)
            archive.reports_folder.mkdir(parents=True, exist_ok=True)
            path = archive.reports_folder / f"audit-{first}-{last}.html"
            page.write(result, path)
            path.with_suffix(".json").write_text(result.model_dump_json(indent=2))
        return dg.MaterializeResult(metadata=metadata.of_audit(result, path))

    return weight_audit


@contextmanager
def _one_message() -> Iterator[None]:
    """Fails the asset with one clear line where the user can mend something."""
    try:
        yield
    except NatsTransformError as error:
        raise dg.Failure(description=str(error), allow_retries=False) from error


def _days(context: AssetExecutionContext) -> tuple[date, date]:
    """First and last day of the run."""
    keys = sorted(context.partition_keys)
    return date.fromisoformat(keys[0]), date.fromisoformat(keys[-1])
