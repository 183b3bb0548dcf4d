"""The shares of destinations and the balance of partitions, as metadata with bars of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import dagster as dg

from expectations.expectation import Report
from jobs.audit.result import AuditResult
from nats_transform.audit import MappingAudit, Verdict
from nats_transform.untrusted import visible
from orchestration.metadata.markdown import bar, first_in_place, table
from orchestration.metadata.values import Plain

Share = Mapping[str, Any]
"""A destination's share of the messages of its mapping in one cluster, as plain values."""

_DAY = "%Y-%m-%d"
_MOST_SHARES = 30
"""More numbers with a plot of their own than this help nobody; the table has them all."""


def shares_of_checks(report: Report, day: date | None = None) -> Mapping[str, Plain]:
    """Each share compared with its weight, and the balance of partitions, as the checks have them.

    Args:
        report: what the checks counted on the way, so that this costs no pass.
        day: the split of this day alone; the balance is always of all days of the run.
    """
    rules, balance = _rules_of(report), _balance(_balances_of(report))
    if day is not None:
        of_day = [share for share in _parts(rules, _DAY) if share["when"] == f"{day:{_DAY}}"]
        return {**_split(of_day), **balance}
    return {**_worst(_parts(rules, _DAY)), **_split(_wholes(rules)), **balance}


def worst_of_checks(report: Report) -> Mapping[str, Plain]:
    """The day and cluster whose split is furthest off, by the checks."""
    return _worst(_parts(_rules_of(report), _DAY))


def busiest_of_checks(report: Report) -> Mapping[str, Plain]:
    """How uneven partitions are, by the checks."""
    return _busiest(_balances_of(report))


def shares_of_audit(result: AuditResult) -> Mapping[str, Plain]:
    """Each share compared with its weight, and the balance of partitions, as an audit has them."""
    parts = _parts(result.rules, "%Y-%m-%d %H:%M" if result.by == "hour" else _DAY)
    outside = sum(part.verdict == "outside" for rule in result.rules for part in rule.buckets)
    # The deviation of the whole time hides an hour that is far off.
    counts = {f"{result.by}s outside": outside} if parts else {}
    verdicts = [rule.verdict for rule in result.rules]
    verdicts += [cluster.total.verdict for cluster in result.clusters]
    counts["splits off"] = sum(v in (Verdict.OUTSIDE, Verdict.NOT_RANDOM) for v in verdicts)
    balance = [(balance.destination, balance.counts) for balance in result.partitions]
    return {**_worst(parts), **counts, **_split(_wholes(result.rules)), **_balance(balance)}


def _wholes(rules: Sequence[MappingAudit]) -> list[Share]:
    """The shares of all hours or days together."""
    return [share for rule in rules for share in rule.shares(rule)]


def _parts(rules: Sequence[MappingAudit], form: str) -> list[Share]:
    """The shares of each hour or day, and when that was; without buckets there is only one."""
    return [
        share | {"when": part.from_.strftime(form)}
        for rule in rules
        for part in rule.buckets or (rule,)
        if part.from_ is not None
        for share in rule.shares(part)
    ]


def _rules_of(report: Report) -> Sequence[MappingAudit]:
    return _details(report, "ExpectWeightsToHold") or ()


def _balances_of(report: Report) -> Sequence[tuple[str, Sequence[int]]]:
    balances = _details(report, "ExpectPartitionsToBeBalanced") or {}
    return [(end.destination, counts) for end, counts in balances.items()]


def _details(report: Report, expectation: str) -> Any:
    return next((r.details for r in report.results if r.name == expectation), None)


def _worst(shares: Sequence[Share]) -> Mapping[str, Plain]:
    """The share that is furthest off of all hours (or days) and clusters, and how far it is off.

    What is outside comes first; else few messages would look worse than many, so a share is
    measured by the width of its interval. Of two destinations that mirror each other it is the
    lighter one: the canary.
    """
    known = [share for share in shares if share["share"] is not None]
    if not known:
        return {}

    def badness(share: Share) -> tuple[bool, float, float]:
        width = max(share["high"] - share["low"], 1e-6)
        return share["verdict"] == "outside", round(_deviation(share) / width, 6), -share["weight"]

    share = max(known, key=badness)
    where = f" in {share['cluster']}" if share["cluster"] else ""
    text = f"{share['when']}{where}: {share['destination']} got {share['share']:.2f} % instead of "
    return {
        "worst split": visible(f"{text}{share['expected']:g} % ({share['verdict']})"),
        "worst split is off by points": round(_deviation(share), 3),
    }


# The UI cuts off what is wider than its page, so what one looks for is first; and it breaks a cell
# at its blanks, so numbers have none.
_SPLIT = ("verdict", "cluster", "destination", "weight %", "share %", "", "low", "high", "source")
_PARTITIONS = ("destination", "partition", "messages", "share %", "")


def _split(shares: Sequence[Share]) -> Mapping[str, Plain]:
    if not shares:
        return {}
    # What deviates most is first: it is what one looks for.
    ordered = sorted(shares, key=lambda share: -_deviation(share))
    heaviest = {
        (share["source"], share["cluster"]): share["destination"]
        for share in sorted(shares, key=lambda share: float(share["weight"]))
    }
    # The heaviest gets what the others leave.
    canaries = [
        share
        for share in ordered
        if share["share"] is not None
        and share["destination"] != heaviest[share["source"], share["cluster"]]
    ]
    rows = [
        (
            share["verdict"],
            share["cluster"] or "",
            share["destination"],
            f"{share['weight']:g}",
            "" if share["share"] is None else f"{share['share']:.2f}",
            "" if share["share"] is None else bar(share["share"], mark=share["expected"]),
            f"{share['low']:.2f}",
            f"{share['high']:.2f}",
            share["source"],
        )
        for share in ordered
    ]
    return {
        "largest deviation in points": round(_deviation(ordered[0]), 3),
        **_both("split", _SPLIT, rows),
        # Numbers of their own, so that the UI plots how they went.
        **{
            visible(
                " ".join(filter(None, ("share of", share["destination"], share["cluster"])))
            ): round(float(share["share"]), 3)
            for share in canaries[:_MOST_SHARES]
        },
    }


def _deviation(share: Share) -> float:
    return 0.0 if share["share"] is None else abs(float(share["share"] - share["expected"]))


def _both(
    name: str, columns: Sequence[str], rows: Sequence[Sequence[str]]
) -> Mapping[str, dg.MetadataValue[Any]]:
    """A table that the UI shows in place, and the whole one if that is longer."""
    first, whole = first_in_place(columns, rows), table(columns, rows)
    return {name: first} if first == whole else {name: first, f"{name}, all of it": whole}


def _balance(balances: Sequence[tuple[str, Sequence[int]]]) -> Mapping[str, Plain]:
    if not balances:
        return {}
    rows = [
        (
            destination,
            str(number),
            f"{count:,}",
            f"{_percent(count, counts):.1f}",
            bar(_percent(count, counts), mark=100 / len(counts)),
        )
        for destination, counts in balances
        for number, count in enumerate(counts)
    ]
    return {
        **_busiest(balances),
        **_both("partitions", _PARTITIONS, rows),
    }


def _busiest(balances: Sequence[tuple[str, Sequence[int]]]) -> Mapping[str, Plain]:
    if not balances:
        return {}
    busiest = max(max(counts) * len(counts) / max(1, sum(counts)) for _, counts in balances)
    return {"busiest partition over mean": round(busiest, 3)}


def _percent(count: int, counts: Sequence[int]) -> float:
    return 100 * count / max(1, sum(counts))
