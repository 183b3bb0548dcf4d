"""The dry-run job of an archive: it tries a candidate mapping on the archived subjects."""

# Dagster reads the annotations of op functions: no `from __future__ import annotations` here.
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field, create_model

from jobs.dry_run.result import DryRunResult
from jobs.dry_run.run import dry_run
from jobs.registry import JOBS
from jobs.settings.base import nested, settings_of
from jobs.settings.dry_run import DryRunSettings
from jobs.settings.output import NEVER
from nats_transform.migration import MigrationFinding
from nats_transform.untrusted import visible
from orchestration.archive import Archive
from orchestration.failures import failing_with_one_line
from orchestration.metadata.markdown import table
from orchestration.metadata.values import Metadata
from orchestration.pages import link, write_report

_MOST_FINDINGS = 50


FailOn = Enum("FailOn", {level: level for level in (*JOBS["dry-run"].levels, NEVER)})  # type: ignore[misc]
"""The mildest finding that fails the run."""
_ASKED = {
    *("candidate", "mapping", "streams", "consumers", "permissions", "permissions_account"),
    *("leaf_node", "leaf_node_account", "day", "exact", "simulate"),
}
_SETTINGS = [s for s in settings_of(DryRunSettings) if s.key in _ASKED]


_FIELDS: dict[str, Any] = {
    setting.key: (
        bool if setting.kind is bool else str if setting.field.is_required() else str | None,
        Field(setting.default, description=setting.field.description),
    )
    for setting in _SETTINGS
}


class DryRunConfig(create_model("Asked", __base__=dg.Config, **_FIELDS)):  # type: ignore[misc]
    """What to try. Relative paths are relative to the folder of the archive's mapping file.

    The current mappings are those of the archive, unless others are named.
    """

    fail_on: FailOn = Field(FailOn("error"), description="The mildest finding that fails the run.")


def dry_run_job(archive: Archive) -> dg.JobDefinition:
    """The job `NAME_dry_run`. It changes no asset; its page is among the archive's reports."""
    name = f"{archive.name}_dry_run"

    # It counts days whose census is behind, so it waits with all that writes days.
    @dg.op(
        name=f"{archive.name}_try_candidate",
        pool=archive.pool,
        out=dg.Out(dg.Nothing),
        description="Compare what the candidate and the current mapping do to the subjects.",
    )
    def try_candidate(context: dg.OpExecutionContext, config: DryRunConfig) -> None:
        with failing_with_one_line():
            settings = _settings(archive, config, context.run_id)
            result = dry_run(archive.session, settings)
            page = write_report(archive, "dry-run", result, f"dry-run-{context.run_id}")
        metadata = _metadata(archive, result, page)
        context.add_output_metadata(metadata)
        if config.fail_on.value != NEVER and result.fails(config.fail_on.value):
            raise dg.Failure(
                description=_refusal(result, page), metadata=metadata, allow_retries=False
            )

    @dg.job(
        name=name,
        description="Try a candidate mapping on the archive, and write a page for its review.",
        executor_def=dg.in_process_executor,
    )
    def job() -> None:
        try_candidate()

    return job


def _settings(archive: Archive, config: DryRunConfig, run_id: str) -> DryRunSettings:
    asked = config.model_dump(exclude={"fail_on"}, exclude_none=True)
    for setting in _SETTINGS:
        if setting.is_path and setting.key in asked:
            asked[setting.key] = archive.mapping.parent / asked[setting.key]
    return DryRunSettings.model_validate(
        {"mapping": archive.mapping, "account": archive.account, "seed": archive.seed}
        | nested(_SETTINGS, asked)
        | {"stream": archive.stream, "warehouse": archive.tables, "run_id": run_id}
    )


def _metadata(archive: Archive, result: DryRunResult, page: Path) -> Metadata:
    answer = result.dry_run
    metadata = {
        **{f"number of {s.value} findings": count for s, count in result.counts.items()},
        "page": link(archive, page),
        "messages": answer.messages,
        "subjects": answer.subjects,
        "changed messages": round(float(answer.changed_messages), 1),
        "changed subjects": answer.changed_subjects,
        "can be undone": answer.is_reversible,
        "findings": _table(answer.findings),
        "findings with room for the new subjects": _table(answer.with_room),
    }
    if result.simulated:
        columns = ("messages", "discarded", "refused", "duplicates")
        rows = []
        for stream in result.simulated:
            counts = [getattr(stream, name) for name in columns]
            shown = ["" if count is None else f"{count:,}" for count in counts]
            rows.append((stream.stream, *shown, stream.condition))
        metadata["simulated streams"] = table(("stream", *columns, "note"), rows)
    return metadata | {
        "candidate version": result.candidate_version,
        "current version": result.current_version,
    }


def _table(findings: Sequence[MigrationFinding]) -> dg.MetadataValue[Any]:
    return table(
        ("severity", "code", "about", "what", "messages", "cure"),
        [
            (f.severity.value, f.code, f.about, f.message, f"{f.messages:,}", f.cure)
            for f in findings[:_MOST_FINDINGS]
        ],
        empty="none",
    )


def _refusal(result: DryRunResult, page: Path) -> str:
    """The worst finding on one line, and where the others are."""
    worst, *others = result.dry_run.findings
    about = f"{worst.about}: " if worst.about else ""
    more = f", and {len(others):,} more" if others else ""
    return visible(f"{worst.severity} {worst.code}: {about}{worst.message}{more}; see {page}")
