"""How long a canary must run until an audit can tell a right split from a wrong one.

The number of messages is that which each mapping needs in each cluster for the verdict of a whole
audit, with all its mappings, clusters, destinations, and hours or days. With that number

- an audit of canaries that get their shares is `within` the tolerance, with the stated power;
- a share that is off by the tolerance or more is called `within` with a probability of at most
  (1 - confidence) / 2;
- a share that is off by twice the tolerance is called `outside`, with the stated power.

`levels.Design` says which confidence each interval of such an audit has, and `judge` asks the same.
The time is computed from how many messages the archive has for each hour of the week.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from math import ceil
from typing import Any, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict

from nats_transform.audit import statistics
from nats_transform.audit.levels import Design, Extent, enough, intervals_of
from nats_transform.audit.statistics import Floats
from nats_transform.audit.verdicts import Criteria
from nats_transform.mappings.mapping import AccountMappings
from nats_transform.mappings.mapping import Mapping as SubjectMapping

WEEK = 168
"""The hours of a week; the first is Monday from 00:00 to 01:00 (UTC)."""

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


class _Result(BaseModel):
    model_config = ConfigDict(frozen=True)


class CanaryTime(_Result):
    """How long a canary of some share must run.

    Attributes:
        share: the share of the canary, in percent.
        others: the shares of the other destinations, in percent.
        comparisons: how many intervals of the audit share the error that its confidence allows.
        messages: how many messages the mapping and cluster must get, those of the canary and all
            others; null if no number is enough.
        hours: how many hours that takes, for a start in each hour of the week, from Monday 00:00
            UTC on; null if no number is enough or there is no traffic.
        shortest, typical, longest: the lowest, the median and the highest of `hours`.
        best_start: the start with the fewest hours, such as `Tue 08:00`.
    """

    share: float
    others: tuple[float, ...]
    comparisons: int
    messages: int | None
    hours: tuple[float, ...] | None = None
    shortest: float | None = None
    typical: float | None = None
    longest: float | None = None
    best_start: str | None = None


class RulePlan(_Result):
    """The plan for one mapping in one cluster.

    Attributes:
        source: the source of the mapping.
        cluster: the cluster; null for messages without the name of a cluster.
        seen: how many messages of this mapping and cluster the archive has.
        per_hour: the average number of messages in each hour of the week.
        guessed: how many hours of the week the archive does not cover. They are taken to be like
            the same hour of other days.
        canaries: the times, one for each share that was asked for.
    """

    source: str
    cluster: str | None
    seen: int
    per_hour: tuple[float, ...]
    guessed: int
    canaries: tuple[CanaryTime, ...]


Scope = tuple[str, str | None]
"""The source of a mapping, and a cluster."""


class Ends(NamedTuple):
    """How many ends a mapping has.

    Attributes:
        clusters: in each cluster.
        together: in all clusters.
    """

    clusters: Sequence[int]
    together: int


@dataclass(frozen=True, slots=True)
class Audit:
    """The audit that canaries are planned for.

    Attributes:
        criteria: its tolerance and confidence, and whether it judges each hour or each day, too.
        power: the probability that it finds right canaries within the tolerance, all together.
        hours: how many hours it covers; None is as many as the messages take.
        destinations: how many destinations each mapping has; the others share what the canary
            leaves evenly. None is as many as the mapping has now, with shares in proportion to
            their weights; the one with the smallest weight is the canary.
        clusters: in how many clusters each mapping gets messages; None is as many as it did so far.
    """

    criteria: Criteria
    power: float = statistics.POWER
    hours: int | None = None
    destinations: int | None = None
    clusters: int | None = None

    def others(self, mapping: SubjectMapping | None, cluster: str | None) -> tuple[float, ...]:
        """The parts of what the canary leaves that the other destinations of a mapping get."""
        if self.destinations is not None:
            return (1 / (self.destinations - 1),) * (self.destinations - 1)
        shares = mapping.shares(cluster) if mapping is not None else ()
        weights = sorted(share.weight for share in shares)
        canary = next((n for n, weight in enumerate(weights) if weight), 0)
        rest = weights[:canary] + weights[canary + 1 :]
        return tuple(weight / sum(rest) for weight in rest) if any(rest) else (1.0,)

    def design(self, mappings: Sequence[Ends], hours: float) -> Design:
        """What it judges after some hours."""
        covered = self.hours or max(1, ceil(hours))
        # An audit that does not start at midnight sees a part of one day more.
        buckets = covered if self.criteria.by == "hour" else ceil(covered / 24) + 1
        return Design(
            tuple(
                Extent(ends, covered, buckets) for mapping in mappings for ends in mapping.clusters
            ),
            tuple(mapping.together for mapping in mappings if len(mapping.clusters) > 1),
            self.criteria.confidence,
            self.criteria.by,
        )

    def messages(
        self, shares: Sequence[float], mappings: Sequence[Ends], rates: Floats
    ) -> tuple[int | None, int]:
        """How many messages a mapping needs in a cluster, and how many comparisons there are then.

        Args:
            shares: the shares of all its ends, as fractions.
            mappings: the ends of all mappings of the audit.
            rates: its messages in each hour of the week.
        """

        def design_of(messages: int) -> Design:
            hours = hours_until(rates, messages)
            return self.design(mappings, 1 if hours is None else float(hours.max()))

        # All shares of all mappings must be found within; one of two follows from the other.
        parts = sum(intervals_of(extent.ends) for extent in design_of(1).extents)
        power = 1 - (1 - self.power) / parts

        def needed(level: float) -> int | None:
            sizes = [
                statistics.messages_to_decide(
                    share, self.criteria.tolerance_of(share), level, power
                )
                for share in shares
            ]
            return None if None in sizes else max(size for size in sizes if size is not None)

        size = enough(needed, lambda messages: design_of(messages).sample, 1)
        return size, design_of(size or 1).comparisons


def plan(
    counts: Mapping[Scope, Mapping[datetime, int]],
    first: datetime,
    last: datetime,
    shares: Sequence[float],
    audit: Audit,
    mappings: AccountMappings | None = None,
) -> Iterator[RulePlan]:
    """The plan for each mapping and cluster.

    Args:
        counts: the messages of each source and cluster by hour; a missing hour had no message.
        first, last: the first and the last hour of the archive.
        shares: the shares of the canaries, in percent.
        audit: the audit that is to judge them.
        mappings: the mappings of now; without them each has two destinations.
    """
    steps = int((last - first) / timedelta(hours=1)) + 1
    places = np.array([hour_of_week(first + timedelta(hours=n)) for n in range(steps)])
    covered = np.bincount(places, minlength=WEEK)
    known = {mapping.source: mapping for mapping in (mappings.mappings if mappings else ())}
    others = {scope: audit.others(known.get(scope[0]), scope[1]) for scope in counts}
    ends = list(_ends(others, known, audit.clusters))
    for (source, cluster), hours in counts.items():
        sums = np.zeros(WEEK)
        for moment, count in hours.items():
            sums[hour_of_week(moment)] += count
        rates = _rates(sums, covered)
        parts = others[source, cluster]
        yield RulePlan(
            source=source,
            cluster=cluster,
            seen=sum(hours.values()),
            per_hour=tuple(rates.round(2).tolist()),
            guessed=int((covered == 0).sum()),
            canaries=tuple(_canary(share, parts, audit, ends, rates) for share in shares),
        )


def _ends(
    others: Mapping[Scope, Sequence[float]],
    known: Mapping[str, SubjectMapping],
    clusters: int | None,
) -> Iterator[Ends]:
    """The ends of each mapping that has messages."""
    for source, scopes in groupby(sorted(others, key=lambda scope: scope[0]), lambda s: s[0]):
        names = [cluster for _, cluster in scopes]
        counts = [1 + len(others[source, name]) for name in names]
        shares = {
            share.destination for n in names if source in known for share in known[source].shares(n)
        }
        if clusters is not None:
            counts = [max(counts)] * clusters
        yield Ends(counts, max(len(shares), *counts))


def hour_of_week(moment: datetime) -> int:
    """The number of an hour in its week (UTC), from 0 for Monday 00:00 on."""
    moment = moment.astimezone(UTC)
    return 24 * moment.weekday() + moment.hour


def _rates(sums: Floats, covered: np.typing.NDArray[np.int64]) -> Floats:
    """Messages in each hour of the week; an hour that was never seen is like that of other days."""
    by_day, seen = sums.reshape(7, 24).sum(axis=0), covered.reshape(7, 24).sum(axis=0)
    mean = sums.sum() / max(1, covered.sum())
    usual = np.where(seen > 0, by_day / np.maximum(seen, 1), mean)
    return np.where(covered > 0, sums / np.maximum(covered, 1), np.tile(usual, 7))


def hours_until(rates: Floats, messages: int) -> Floats | None:
    """The hours from the start of each hour of the week until so many messages have come."""
    week = float(rates.sum())
    if week <= 0:
        return None
    weeks = np.ceil(messages / week) - 1  # the last message is in the part that is looked up
    rest = messages - weeks * week
    ahead = np.concatenate([[0.0], np.tile(rates, 2).cumsum()])
    starts = np.arange(WEEK)
    # Rounding must not lead past a week without traffic at its end.
    wanted = np.minimum(ahead[:WEEK] + rest, ahead[WEEK : 2 * WEEK])
    last = np.maximum(np.searchsorted(ahead, wanted, side="left") - 1, starts)
    part = (wanted - ahead[last]) / np.maximum(ahead[last + 1] - ahead[last], 1e-9)
    return np.asarray(weeks * WEEK + last - starts + part, np.float64)


def _canary(
    share: float, parts: Sequence[float], audit: Audit, mappings: Sequence[Ends], rates: Floats
) -> CanaryTime:
    others = [(1 - share / 100) * part for part in parts]
    messages, comparisons = audit.messages([share / 100, *others], mappings, rates)
    hours = None if messages is None else hours_until(rates, messages)
    times: dict[str, Any] = {}
    if hours is not None:
        best = int(hours.argmin())
        times = {
            "hours": tuple(hours.round(2).tolist()),
            "shortest": round(float(hours.min()), 2),
            "typical": round(float(np.median(hours)), 2),
            "longest": round(float(hours.max()), 2),
            "best_start": f"{DAYS[best // 24]} {best % 24:02}:00",
        }
    return CanaryTime(
        share=share,
        others=tuple(round(100 * other, 4) for other in others),
        comparisons=comparisons,
        messages=messages,
        **times,
    )
