"""What people look at on a materialization: numbers with history, tables and small plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg

from jobs.audit import AuditResult
from jobs.census import CensusResult
from jobs.ingest import IngestResult
from jobs.transform import TransformResult
from nats_transform import AccountMappings

Metadata = Mapping[str, Any]


def rules(mappings: AccountMappings) -> dg.MetadataValue[Any]:
    """The mappings as a table: one row for each destination."""
    return table(
        ("source", "destination", "weight", "cluster"),
        [
            (mapping.source, d.subject, f"{d.weight} %", d.cluster or "")
            for mapping in mappings.mappings
            for d in mapping.destinations
        ],
    )


def of_ingest(result: IngestResult) -> Metadata:
    """Of `messages`: what the run added, and what the table has of the stream now."""
    return {
        "dagster/row_count": result.added,
        "messages in table": result.messages,
        "gaps": result.gaps,
        "bytes": result.bytes,
        "digest": result.digest,
        "snapshot": str(result.snapshot_id),
    }


def of_census(result: CensusResult) -> Metadata:
    """Of `subject_census`."""
    return {
        "dagster/row_count": result.rows,
        "messages": result.messages,
        "bytes": result.bytes,
        "snapshot": str(result.snapshot_id),
    }


def of_transform(result: TransformResult) -> Metadata:
    """Of `transformed_messages`: messages by fate, and what identifies the result."""
    return {
        "dagster/row_count": result.messages,
        **result.fates,
        "mapping version": result.mapping_version,
        "digest": result.digest,
        "snapshot": str(result.snapshot_id),
    }


def of_audit(result: AuditResult, page: Path) -> Metadata:
    """Of `weight_audit`: the verdict, each destination's share against its weight, the page."""
    return {
        "page": dg.MetadataValue.path(page),
        "verdict": str(result.verdict),
        "messages": result.messages,
        "split": table(
            ("source", "cluster", "destination", "weight", "share", "interval", "verdict"),
            [
                (
                    rule.source,
                    rule.cluster or "",
                    d.destination or d.end,
                    f"{d.weight:g} %",
                    "" if d.share is None else f"{d.share:.2f} %",
                    f"{d.low:.2f} to {d.high:.2f} %",
                    str(d.verdict),
                )
                for rule in result.rules
                for d in rule.destinations
            ],
        ),
    }


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> dg.MetadataValue[Any]:
    """A Markdown table; what a subject holds cannot end a cell or become markup."""
    lines = [columns, ["---"] * len(columns), *rows]
    return dg.MetadataValue.md(
        "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)
    )


def _cell(text: str) -> str:
    # A subject may hold what Markdown or HTML would read as its own.
    return "".join(f"&#{ord(c)};" if c in "|<>&`*_$[]\\\n" else c for c in text)
