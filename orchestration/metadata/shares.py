"""The shares of destinations and the balance of partitions, as metadata with bars of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

import dagster as dg

from nats_transform.untrusted import visible
from orchestration.metadata.markdown import bar, first_in_place, table
from orchestration.metadata.values import Plain

if TYPE_CHECKING:  # they load Great Expectations and SciPy, which take longer than all else
    from expectations.expectation import Report
    from jobs.audit.result import AuditResult

Share = Mapping[str, Any]
"""A destination's share of the messages of its mapping in one cluster, as plain values."""

_MOST_SHARES = 30
"""More numbers with a plot of their own than this help nobody; the table has them all."""


def shares_of_checks(report: Report, day: date | None = None) -> Mapping[str, Plain]:
    """Each share compared with its weight, and the balance of partitions, as the checks have them.

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


def shares_of_audit(result: AuditResult) -> Mapping[str, Plain]:
    """Each share compared with its weight, and the balance of partitions, as an audit has them."""
    shares = [share for rule in result.rules for share in rule.shares(rule)]
    balance = [(balance.destination, balance.counts) for balance in result.partitions]
    parts = [part for rule in result.rules for part in rule.buckets]
    outside = sum(part.verdict == "outside" for part in parts)
    # The deviation of the whole time hides an hour that is far off.
    counts = {f"{result.by}s outside": outside} if parts else {}
    return {**counts, **_split(shares), **_balance(balance)}


# The UI cuts off what is wider than its page, so what one looks for is first; and it breaks a cell
# at its blanks, so numbers have none.
_SPLIT = ("verdict", "cluster", "destination", "weight %", "share %", "", "low", "high", "source")
_PARTITIONS = ("destination", "partition", "messages", "share %", "")


def _split(shares: Sequence[Share]) -> Mapping[str, Plain]:
    if not shares:
        return {}
    # What deviates most is first: it is what one looks for.
    ordered = sorted(shares, key=lambda share: -_deviation(share))
    known = [share for share in ordered if share["share"] is not None][:_MOST_SHARES]
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
            for share in known
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
        **_both("partitions", _PARTITIONS, rows),
        "busiest partition over mean": round(
            max(max(c) * len(c) / max(1, sum(c)) for _, c in balances), 3
        ),
    }


def _percent(count: int, counts: Sequence[int]) -> float:
    return 100 * count / max(1, sum(counts))
