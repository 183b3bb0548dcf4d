"""The asset `exported_backup`: the transformed messages of all days as a stream backup."""

from __future__ import annotations

import time

import dagster as dg

from jobs.export import export
from jobs.settings.export import ExportSettings
from orchestration.archive import Archive
from orchestration.assets.asset import ArchiveAsset
from orchestration.failures import failing_with_one_line
from orchestration.metadata.markdown import table
from orchestration.metadata.values import Results, throughput


def run(archive: Archive, context: dg.AssetExecutionContext) -> Results:
    """Writes a folder of its own, named after the run.

    Its mappings are those that the messages were transformed with. The YAML can have newer ones,
    which are not in force yet.
    """
    wanted = archive.export
    assert wanted is not None  # noqa: S101 - else there is no such asset
    started = time.monotonic()
    with failing_with_one_line():
        result = export(
            ExportSettings(
                **wanted.model_dump(exclude={"to"}),
                stream=archive.stream,
                warehouse=archive.tables,
                to_backup=str(wanted.to / context.run.run_id),
            )
        )
    findings = [(finding.code, finding.message) for finding in result.findings]
    for code, message in findings:
        context.log.warning(f"{code}: {message}")
    yield dg.MaterializeResult(
        metadata={
            "dagster/row_count": result.messages,
            "backup": dg.MetadataValue.path(result.backup),
            "sequences": f"{result.first_seq:,} to {result.last_seq:,}",
            "gaps": result.gaps,
            "consumers": ", ".join(result.consumers),
            "schedules": result.schedules,
            "rewritten headers": sum(result.rewritten.values()),
            "findings": table(("code", "finding"), findings, empty="none"),
            **throughput(result.messages, time.monotonic() - started),
            "mapping version": result.mapping_version or "",
            "digest": result.digest,
        }
    )


ASSET = ArchiveAsset(
    "exported_backup",
    "The messages of all days under their new subjects, as a backup for `nats stream restore`. "
    "Sequences, times, headers and gaps stay.",
    frozenset({"nats"}),
    run,
    deps=("transformed_messages",),
    is_daily=False,
)
