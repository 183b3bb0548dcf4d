"""The asset `exported_backup`: the transformed messages of all days as a stream backup."""

# Dagster reads the annotations of asset functions: no `from __future__ import annotations` here.
import time

import dagster as dg
from dagster import AssetExecutionContext

from jobs.export import export
from jobs.settings.export import ExportSettings
from orchestration.archive import Archive, Export
from orchestration.failures import failing_with_one_line
from orchestration.metadata.markdown import table
from orchestration.metadata.values import throughput


def exported_backup_asset(archive: Archive, wanted: Export) -> dg.AssetsDefinition:
    """The asset; each run makes a folder of its own, named after the run."""

    @dg.asset(
        key=archive.key("exported_backup"),
        group_name=archive.name,
        deps=[archive.key("transformed_messages")],
        pool=archive.pool,
        kinds={"nats"},
        description="The messages of all days under their new subjects, as a backup that "
        "`nats stream restore` loads: sequences, times, headers and gaps stay.",
    )
    def exported_backup(context: AssetExecutionContext) -> dg.MaterializeResult[None]:
        started = time.monotonic()
        with failing_with_one_line():
            result = export(
                ExportSettings(
                    **wanted.model_dump(exclude={"to"}),
                    stream=archive.stream,
                    warehouse=archive.tables,
                    to_backup=str(wanted.to / context.run.run_id),
                    mapping=archive.mapping,
                    account=archive.account,
                    seed=archive.seed,
                )
            )
        findings = [(finding.code, finding.message) for finding in result.findings]
        for code, message in findings:
            context.log.warning(f"{code}: {message}")
        return dg.MaterializeResult(
            metadata={
                "dagster/row_count": result.messages,
                "backup": dg.MetadataValue.path(result.backup),
                "first sequence": result.first_seq,
                "last sequence": result.last_seq,
                "gaps": result.gaps,
                "consumers": ", ".join(result.consumers),
                "schedules": result.schedules,
                "rewritten headers": sum(result.rewritten.values()),
                "findings": table(
                    ("code", "finding"),
                    [(f.code, f.message) for f in result.findings],
                    empty="none",
                ),
                **throughput(result.messages, time.monotonic() - started),
                "mapping version": result.mapping_version or "",
                "digest": result.digest,
            }
        )

    return exported_backup
