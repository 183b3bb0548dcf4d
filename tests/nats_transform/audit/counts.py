"""Mappings whose messages are counted, and what came of them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from nats_transform import AccountMappings, Destination, Mapping
from nats_transform.audit import End, Period, Tally

START = datetime(2026, 3, 1, tzinfo=UTC)
SCOPE = (0, "shop.*", None)
"""Of the messages of a canary, where nobody knows clusters."""


def hour(number: int) -> datetime:
    return START + timedelta(hours=number)


def canary(*weights: int) -> Mapping:
    """A mapping with as many destinations."""
    ends = [Destination(f"v{n}.$1", weight) for n, weight in enumerate(weights, 1)]
    return Mapping("shop.*", ends)


def in_force(*mappings: Mapping) -> list[Period]:
    """The one period of an audit, in which these are in force."""
    return [Period(AccountMappings(mappings))]


def came(*counts: int, unmapped: int = 0) -> dict[str, int]:
    """The messages that came to each destination of a canary, and those that kept their source."""
    found = {f"v{n}.$1": count for n, count in enumerate(counts, 1)}
    return found | ({"shop.*": unmapped} if unmapped else {})


def tallies(
    hours: Iterable[dict[str, int]],
    cluster: str | None = None,
    *,
    source: str = "shop.*",
    period: int = 0,
    first: int = 0,
) -> list[Tally]:
    """What came in each hour, by destination, from hour `first` on."""
    return [
        Tally(cluster, hour(number), (End(source, destination),), count, period)
        for number, counts in enumerate(hours, start=first)
        for destination, count in counts.items()
    ]
