"""What another mapping version changes, and versions that wait until somebody promotes them.

With `promote: manual` in the YAML, the days of a version that consumers have never read go to a
branch of its own. After its promotion, its other days go to the table at once.
"""

# Dagster reads the annotations of op functions: no `from __future__ import annotations` here.
import re
from collections.abc import Sequence
from datetime import date
from hashlib import sha256
from typing import Any

import dagster as dg
from pyiceberg.table import Table

from jobs.compare import compare
from jobs.promote import promote
from jobs.registry import JOBS
from jobs.settings.branches import CompareSettings, PromoteSettings
from jobs.settings.warehouse import BRANCH, Warehouse
from jobs.transform import TransformResult
from jobs.warehouse.tables import data_files, mapping_version_of, snapshot_id
from nats_transform import NatsTransformError
from orchestration.archive import Archive
from orchestration.failures import failing_with_one_line
from orchestration.mapping_in_force import mapping_in_force
from orchestration.metadata.markdown import first_in_place
from orchestration.metadata.values import Metadata
from orchestration.pages import link


def place_of(archive: Archive, version: str, table: Table | None) -> Warehouse:
    """Where the rows of a mapping version go, if a table has those that consumers read."""
    tables = archive.tables
    if archive.promote == "at_once" or tables.branch is not None or table is None:
        return tables
    known = {mapping_version_of(table, file) for file in data_files(table, archive.stream)}
    if not known or version in known:
        return tables
    return tables.model_copy(update={"branch": _branch_of(archive, version)})


def _branch_of(archive: Archive, version: str) -> str:
    """The branch of a version: with a hash, if no branch can have the archive's name."""
    branch = f"{archive.name}-{version[:12]}"
    if re.fullmatch(BRANCH, branch):
        return branch
    return f"v{sha256(archive.name.encode()).hexdigest()[:8]}_{branch[-80:]}"


def changes(
    archive: Archive,
    days: Sequence[date],
    before: Table | None,
    place: Warehouse,
    result: TransformResult,
) -> Metadata:
    """What a run changed for consumers, or would if its branch were promoted, and a page of it.

    Args:
        before: the table that they had before.
        place: where the rows are now.
    """
    metadata: dict[str, Any] = {}
    if place.branch is not None:
        metadata = {"branch": place.branch}
        if archive.tables.branch is None:
            cure = f"run {archive.name}_promote, or nats-transform promote {place.branch}"
            metadata |= {"waits for promotion": cure}
    if before is None or result.snapshot_id is None:
        return metadata
    files = data_files(before, archive.stream, days)
    if {mapping_version_of(before, file) for file in files} <= {result.mapping_version}:
        return metadata
    comparison = compare(
        CompareSettings(
            before=str(snapshot_id(before)),
            after=str(result.snapshot_id),
            stream=archive.stream,
            first_day=days[0],
            last_day=days[-1],
            warehouse=archive.tables,
        )
    )
    page = archive.reports_folder / f"{archive.name}-comparison-{days[0]}-{days[-1]}.html"
    JOBS["compare"].write_page(comparison, page)
    return metadata | {
        "moved messages": comparison.moved,
        "moved subjects": comparison.moved_subjects,
        "changed messages": comparison.changed,
        "compared with": ", ".join(comparison.before.mapping_versions),
        "subjects that move": first_in_place(
            ("subject", "before", "after", "messages"),
            [
                (m.subject or "", m.before or "none", m.after or "none", f"{m.messages:,}")
                for m in comparison.examples
            ],
        ),
        "comparison": link(archive, page),
    }


def promote_job(archive: Archive) -> dg.JobDefinition:
    """The job `NAME_promote`: consumers get the version that waits."""

    @dg.op(
        name=f"{archive.name}_promote_version",
        pool=archive.pool,
        out=dg.Out(dg.Nothing),
        description="Let the days on the branch of the mapping version take the table's place.",
    )
    def promote_version(context: dg.OpExecutionContext) -> None:
        with failing_with_one_line():
            version = mapping_in_force(context.instance, archive).version
            branch = _branch_of(archive, version)
            result = promote(PromoteSettings(branch=branch, warehouse=archive.tables.main))
            if result.refused is not None:
                raise NatsTransformError("refused", reason=result.refused)
        metadata: dict[str, Any] = {
            "promoted branch": branch,
            "mapping version": version,
            "messages": result.messages,
            "snapshot": str(result.snapshot_id),
        }
        context.add_output_metadata(metadata)
        key = archive.key("transformed_messages")
        context.log_event(dg.AssetObservation(key, metadata=metadata))

    @dg.job(
        name=f"{archive.name}_promote",
        description="Let consumers have the mapping version that waits for promotion.",
        executor_def=dg.in_process_executor,
    )
    def job() -> None:
        promote_version()

    return job
