"""The asset `weight_audit`: whether each destination got the share that its weight gives it."""

# Dagster reads the annotations of asset functions: no `from __future__ import annotations` here.
import dagster as dg
from dagster import AssetExecutionContext

from orchestration.archive import Archive
from orchestration.automation.stale_days import stale_days
from orchestration.days import days_of
from orchestration.failures import failing_with_one_line
from orchestration.mapping_in_force import mapping_in_force
from orchestration.metadata.shares import shares_of_audit
from orchestration.metadata.values import link
from orchestration.resources import SparkResource


def weight_audit_asset(archive: Archive) -> dg.AssetsDefinition:
    """The asset; its page and its JSON are among the archive's reports."""

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
        description="The share of each destination compared with its weight, by cluster.",
    )
    def weight_audit(
        context: AssetExecutionContext, spark: SparkResource
    ) -> dg.MaterializeResult[None]:
        # SciPy takes longer to import than all else: not when Dagster loads.
        from jobs.audit.run import run as audit_periods
        from jobs.audit.settings import AuditSettings
        from jobs.pages.audit import write
        from nats_transform.audit import Period

        days = days_of(context)
        with failing_with_one_line():
            settings = AuditSettings(
                **archive.mapped_settings(days, context.run.run_id),
                tolerance=archive.tolerance,
                confidence=archive.confidence,
            )
            mappings, version = mapping_in_force(context.instance, archive)
            result = audit_periods(spark.session, settings, [Period(mappings, version)])
            archive.reports_folder.mkdir(parents=True, exist_ok=True)
            page = archive.reports_folder / f"audit-{days[0]}-{days[-1]}.html"
            write(result, page)
            page.with_suffix(".json").write_text(result.model_dump_json(indent=2))
        return dg.MaterializeResult(
            metadata={
                "page": link(archive, page),
                "verdict": str(result.verdict),
                "mapping version": result.mapping_version,
                "messages": result.messages,
                **shares_of_audit(result),
                "snapshot": str(result.snapshot_id),
            }
        )

    return weight_audit
