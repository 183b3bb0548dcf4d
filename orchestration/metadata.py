"""What people look at on a materialization: numbers with history, tables and small plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import dagster as dg

from jobs.census import CensusResult
from jobs.ingest import IngestResult
from jobs.transform import TransformResult
from jobs.warehouse.versions import Rule, Version, difference
from nats_transform.findings import Finding
from nats_transform.untrusted import visible
from orchestration.archive import Archive
from orchestration.plots import picture, split_plot

if TYPE_CHECKING:  # they load Great Expectations and SciPy, which take longer than all else
    from expectations.validation import Report
    from jobs.audit.settings import AuditResult

Metadata = Mapping[str, Any]
Share = Mapping[str, Any]
"""A destination's share of the messages of its mapping in one cluster, as plain values."""
Plain = int | float | str | dg.MetadataValue[Any]

_BAR_WIDTH = 20
_MOST_SHARES = 30
"""More plots than this on one page help nobody; the table has them all."""


def of_version(
    version: Version, findings: Sequence[Finding], before: Version | None, known: int
) -> Metadata:
    """Of `mapping_version`: the rules, what `check` finds, what changed since the last one."""
    return {
        "version": version.mapping_version,
        "recorded at": dg.MetadataValue.timestamp(version.recorded_at),
        "rules": table(
            ("source", "destination", "weight", "cluster"),
            [
                (rule.source, rule.destination, f"{rule.weight} %", rule.cluster)
                for rule in version.rules
            ],
        ),
        "number of rules": len(version.rules),
        "findings": table(
            ("severity", "code", "where", "what", "cure"),
            [
                (str(f.severity), f.code, place(f), f"{f.source}: {f.message}", f.cure)
                for f in findings
            ],
        )
        if findings
        else dg.MetadataValue.md("none"),
        "number of findings": len(findings),
        "difference": _difference(before, version),
        "versions so far": known,
        "config": dg.MetadataValue.md("```\n" + visible(version.config, keep="\n") + "```"),
    }


def place(finding: Finding) -> str:
    """File and line of a finding; its source where nobody knows them."""
    if finding.path and finding.line:
        return f"{finding.path}:{finding.line}"
    return finding.path or finding.source


def _difference(before: Version | None, now: Version) -> dg.MetadataValue[Any]:
    if before is None:
        return dg.MetadataValue.md("the first version")
    if before.mapping_version == now.mapping_version:
        return dg.MetadataValue.md("none: the same version as before")
    found = difference(before, now)
    rows = [("removed", r.source, r.destination, _weight(r), "") for r in found.removed]
    rows += [("added", r.source, r.destination, "", _weight(r)) for r in found.added]
    rows += [
        ("changed", new.source, new.destination, _weight(old), _weight(new))
        for old, new in found.changed
    ]
    if found.seed is not None:
        rows.append(("changed", "seed", "", str(found.seed[0]), str(found.seed[1])))
    if found.reordered:
        rows.append(("changed", "order of the rules", "", "", ""))
    return table(
        ("what", "source", "destination", f"in {before.mapping_version[:12]}", "now"), rows
    )


def _weight(rule: Rule) -> str:
    return f"{rule.weight} %" + (f" in {rule.cluster}" if rule.cluster else "")


def of_ingest(result: IngestResult, added: int) -> Metadata:
    """Of `messages`: what the run added, and what the table has of the stream now."""
    return {
        "added": added,
        "messages in table": result.messages,
        "gaps": result.gaps,
        "bytes": result.bytes,
        "digest": result.digest,
        "snapshot": str(result.snapshot_id),
    }


def of_census(result: CensusResult) -> Metadata:
    """Of `subject_census`."""
    return {
        "subjects": result.rows,
        "messages": result.messages,
        "bytes": result.bytes,
        "snapshot": str(result.snapshot_id),
    }


def of_fates(fates: Mapping[str, int]) -> Mapping[str, Plain]:
    """How many messages had which fate: numbers, and a bar for each."""
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


def of_transform(result: TransformResult) -> Metadata:
    """Of `transformed_messages`: what identifies the result; the fates where it is of one day."""
    return {
        **of_fates(result.fates),
        "mapping version": result.mapping_version,
        "digest": result.digest,
        "snapshot": str(result.snapshot_id),
        "input snapshot": str(result.input_snapshot),
    }


def link(archive: Archive, page: Path) -> dg.MetadataValue[Any]:
    """A link to a page in the folder of reports; its path if no web server shows the folder."""
    if archive.reports_url is None:
        return dg.MetadataValue.path(page.absolute())
    place = page.absolute().relative_to(archive.reports_folder.absolute())
    return dg.MetadataValue.url(f"{archive.reports_url.rstrip('/')}/{quote(place.as_posix())}")


def throughput(messages: int, seconds: float) -> Metadata:
    """How long it took, checks included."""
    return {
        "seconds": round(seconds, 3),
        "messages per second": round(messages / max(seconds, 1e-3), 1),
    }


def of_checks(report: Report, day: date | None = None) -> Mapping[str, Plain]:
    """Of `transformed_messages`: each share against its weight, and the balance of partitions.

    Args:
        report: what the checks counted on the way, so that this costs no pass.
        day: the split of this day alone; the balance is always of all days of the run.
    """
    details = {result.name: result.details or {} for result in report.results}
    shares: Sequence[Share] = details.get("ExpectWeightsToHold", {}).get("splits", ())
    balance = details.get("ExpectPartitionsToBeBalanced", {}).get("balance", ())
    wanted = None if day is None else day.isoformat()
    return {
        **_split([share for share in shares if share["day"] == wanted]),
        **_balance([(entry["destination"], entry["counts"]) for entry in balance]),
    }


def of_audit(result: AuditResult) -> Metadata:
    """Of `weight_audit`: the verdict, and each destination's share against its weight."""
    shares: list[Share] = [
        {
            "source": rule.source,
            "cluster": rule.cluster,
            "destination": d.destination or d.end,
            "weight": d.weight,
            "expected": d.expected,
            "share": d.share,
            "low": d.low,
            "high": d.high,
            "verdict": str(d.verdict),
        }
        for rule in result.rules
        for d in rule.destinations
    ]
    return {
        "verdict": str(result.verdict),
        "mapping version": result.mapping_version,
        "messages": result.messages,
        **_split(shares),
        **_balance([(balance.destination, balance.counts) for balance in result.partitions]),
        "snapshot": str(result.snapshot_id),
    }


def _split(shares: Sequence[Share]) -> Mapping[str, Plain]:
    known = [share for share in shares if share["share"] is not None]
    return {
        "largest deviation in points": max(
            (abs(share["share"] - share["expected"]) for share in known), default=0.0
        ),
        **_plot(known[:_MOST_SHARES]),
        "split": table(
            ("source", "cluster", "destination", "weight", "share", "", "interval", "verdict"),
            [
                (
                    share["source"],
                    share["cluster"] or "",
                    share["destination"],
                    f"{share['weight']:g} %",
                    "" if share["share"] is None else f"{share['share']:.2f} %",
                    "" if share["share"] is None else bar(share["share"], mark=share["expected"]),
                    f"{share['low']:.2f} to {share['high']:.2f} %",
                    share["verdict"],
                )
                for share in shares
            ],
        )
        if shares
        else dg.MetadataValue.md("no message that a weight applies to"),
        # Numbers of their own, so that the UI plots how they went.
        **{
            visible(
                " ".join(filter(None, ("share of", share["destination"], share["cluster"])))
            ): float(share["share"])
            for share in known[:_MOST_SHARES]
        },
    }


def _plot(shares: Sequence[Share]) -> Mapping[str, Plain]:
    if not shares:
        return {}
    plot = picture(split_plot(shares), "each share as a bar, with a tick at its weight")
    return {"plot": dg.MetadataValue.md(plot)}


def _balance(balances: Sequence[tuple[str, Sequence[int]]]) -> Mapping[str, Plain]:
    return {
        "partitions": table(
            ("destination", "partition", "messages", "share", ""),
            [
                (
                    destination,
                    str(number),
                    f"{count:,}",
                    f"{_percent(count, counts):.1f} %",
                    bar(_percent(count, counts), mark=100 / len(counts)),
                )
                for destination, counts in balances
                for number, count in enumerate(counts)
            ],
        )
        if balances
        else dg.MetadataValue.md("no message with a partition number"),
        "busiest partition over mean": max(
            (max(counts) * len(counts) / max(1, sum(counts)) for _, counts in balances),
            default=0.0,
        ),
    }


def _percent(count: int, counts: Sequence[int]) -> float:
    return 100 * count / max(1, sum(counts))


def bar(percent: float, mark: float | None = None) -> str:
    """A share as a bar of text, with `│` where it should end."""
    filled = round(percent / 100 * _BAR_WIDTH)
    cells = ["█"] * filled + ["░"] * (_BAR_WIDTH - filled)
    if mark is not None:
        cells.insert(min(round(mark / 100 * _BAR_WIDTH), _BAR_WIDTH), "│")
    return "".join(cells)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> dg.MetadataValue[Any]:
    """A Markdown table; what a subject holds cannot end a cell or become markup."""
    lines = [columns, ["---"] * len(columns), *rows]
    return dg.MetadataValue.md(
        "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)
    )


def _cell(text: str) -> str:
    # A subject may hold what Markdown or HTML would read as its own.
    return "".join(f"&#{ord(c)};" if c in "|<>&`*_$[]\\" else c for c in visible(text))
