"""The dry-run job of an archive: it tries a candidate mapping on the archived subjects."""

# Dagster reads the annotations of op functions: no `from __future__ import annotations` here.
import json
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field

from jobs.dry_run.run import dry_run
from jobs.dry_run.settings import DryRunResult
from jobs.settings.dry_run import DryRunSettings
from nats_transform.migration import MigrationFinding
from orchestration.archive import Archive
from orchestration.failures import failing_with_one_line
from orchestration.metadata.markdown import table
from orchestration.metadata.values import Metadata, link

_MOST_FINDINGS = 50


class FailOn(Enum):
    """The mildest finding that fails the run; Dagster shows the names."""

    error = "error"
    warning = "warning"
    info = "info"
    never = "never"


class DryRunConfig(dg.Config):
    """What to try. Relative paths are relative to the folder of the archive's mapping file."""

    candidate: str = Field(description="The file with the mappings to try.")
    current: str | None = Field(
        None, description="The file with the current mappings; by default that of the archive."
    )
    streams: str | None = Field(
        None,
        description="A folder with the output of `nats stream info NAME --json` of each stream.",
    )
    consumers: str | None = Field(
        None,
        description="A folder with the output of `nats consumer info STREAM NAME --json` of each.",
    )
    permissions: str | None = Field(
        None, description="A server configuration; the permissions of its users are checked."
    )
    permissions_account: str | None = Field(
        None, description="The account of these users; by default that of the archive."
    )
    day: str | None = Field(
        None, description="A day as YYYY-MM-DD, or a range as A..B; every day by default."
    )
    exact: bool = Field(
        False, description="Map every message with its own draw, instead of counting shares."
    )
    simulate: bool = Field(
        False, description="Write what each stream would hold into table `simulated_streams`."
    )
    fail_on: FailOn = Field(FailOn.error, description="The mildest finding that fails the run.")


def dry_run_job(archive: Archive) -> dg.JobDefinition:
    """The job `NAME_dry_run`. It changes no asset; its page is among the archive's reports."""
    name = f"{archive.name}_dry_run"

    # It counts days whose census is behind, so it waits with all that writes days.
    @dg.op(
        name=f"{archive.name}_try_candidate",
        pool=archive.pool,
        out=dg.Out(dg.Nothing),
        description="Compare what the candidate and the current mapping make of the subjects.",
    )
    def try_candidate(context: dg.OpExecutionContext, config: DryRunConfig) -> None:
        # SciPy takes longer to import than all else: not when Dagster loads.
        from jobs.pages.dry_run import write

        with failing_with_one_line():
            settings = _settings(archive, config, context.run_id)
            result = dry_run(archive.session, settings)
            page = archive.reports_folder / f"{archive.name}-dry-run-{context.run_id}.html"
            page.parent.mkdir(parents=True, exist_ok=True)
            write(result, page)
            page.with_suffix(".json").write_text(json.dumps(result.as_json(), indent=2))
        told = _metadata(archive, result, page)
        context.add_output_metadata(told)
        if config.fail_on is not FailOn.never and result.fails(config.fail_on.value):
            raise dg.Failure(description=_refusal(result, page), metadata=told, allow_retries=False)

    @dg.job(
        name=name,
        description="Try a candidate mapping on the archive, and write a page for its review.",
        executor_def=dg.in_process_executor,
    )
    def job() -> None:
        try_candidate()

    return job


def _settings(archive: Archive, config: DryRunConfig, run_id: str) -> DryRunSettings:
    asked = config.model_dump(exclude={"day", "fail_on"}, exclude_none=True)
    for name in ("candidate", "current", "streams", "consumers", "permissions"):
        if name in asked:
            asked[name] = archive.mapping.parent / asked[name]
    return DryRunSettings.model_validate(
        {"current": archive.mapping, "account": archive.account, "seed": archive.seed}
        | asked
        | {"first_day": config.day}
        | {"stream": archive.stream, "warehouse": archive.tables, "run_id": run_id}
    )


def _metadata(archive: Archive, result: DryRunResult, page: Path) -> Metadata:
    found = result.found
    told = {
        "page": link(archive, page),
        "messages": found.messages,
        "subjects": found.subjects,
        "changed messages": round(float(found.changed_messages), 1),
        "changed subjects": found.changed_subjects,
        "can be undone": found.is_reversible,
        "findings": _table(found.findings),
        "findings with room for the new subjects": _table(found.with_room),
    }
    versions = {
        "candidate version": result.candidate_version,
        "current version": result.current_version,
    }
    counts = {f"number of {s.value} findings": count for s, count in result.counts.items()}
    simulated = {
        "simulated streams": table(
            ("stream", "messages", "discarded", "refused"),
            [
                (s.stream, f"{s.messages:,}", f"{s.discarded:,}", f"{s.refused:,}")
                for s in result.simulated
            ],
        )
    }
    return counts | told | (simulated if result.simulated else {}) | versions


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
    worst, *others = result.found.findings
    about = f"{worst.about}: " if worst.about else ""
    more = f", and {len(others):,} more" if others else ""
    return f"{worst.severity} {worst.code}: {about}{worst.message}{more}; see {page}"
