"""How long a canary must run until an audit can tell a right split from a wrong one.

The number of messages that it takes is `statistics.messages_to_decide`, for one mapping and
cluster. With that number of messages

- a canary that gets its share is called `within` the tolerance, with the stated power;
- a canary that is off by the tolerance or more is called `within` with a probability of at most
  (1 - confidence) / 2;
- a canary that is off by twice the tolerance is called `outside`, with the stated power.

The time is computed from how many messages the archive has for each hour of the week.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
from pydantic import BaseModel, ConfigDict

from nats_transform import statistics
from nats_transform.audit.verdicts import tolerance_of
from nats_transform.statistics import Floats

WEEK = 168
"""The hours of a week; the first is Monday from 00:00 to 01:00 (UTC)."""

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


class _Result(BaseModel):
    model_config = ConfigDict(frozen=True)


class CanaryTime(_Result):
    """How long a canary of some share must run.

    Attributes:
        share: the share of the canary, in percent.
        messages: how many messages the mapping and cluster must get, those of the canary and all
            others; null if no number is enough.
        hours: how many hours that takes, for a start in each hour of the week, from Monday 00:00
            UTC on; null if no number is enough or there is no traffic.
        shortest, typical, longest: the lowest, the median and the highest of `hours`.
        best_start: the start with the fewest hours, such as `Tue 08:00`.
    """

    share: float
    messages: int | None
    hours: tuple[float, ...] | None
    shortest: float | None
    typical: float | None
    longest: float | None
    best_start: str | None


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


def plan(
    counts: Mapping[tuple[str, str | None], Mapping[datetime, int]],
    first: datetime,
    last: datetime,
    shares: Sequence[float],
    tolerance: float,
    confidence: float,
    power: float,
) -> Iterator[RulePlan]:
    """The plan for each mapping and cluster.

    Args:
        counts: the messages of each source and cluster by hour; a missing hour had no message.
        first, last: the first and the last hour of the archive.
        shares: the shares of the canaries, in percent.
        tolerance: the tolerance of the audit, in percentage points.
        confidence, power: probabilities from 0 to 1; the top of this module says what they mean.
    """
    steps = int((last - first) / timedelta(hours=1)) + 1
    places = np.array([hour_of_week(first + timedelta(hours=n)) for n in range(steps)])
    covered = np.bincount(places, minlength=WEEK)
    for (source, cluster), hours in counts.items():
        sums = np.zeros(WEEK)
        for moment, count in hours.items():
            sums[hour_of_week(moment)] += count
        rates = _rates(sums, covered)
        yield RulePlan(
            source=source,
            cluster=cluster,
            seen=sum(hours.values()),
            per_hour=tuple(rates.round(2).tolist()),
            guessed=int((covered == 0).sum()),
            canaries=tuple(
                _canary(
                    share,
                    statistics.messages_to_decide(
                        share / 100,
                        tolerance_of(share / 100, tolerance / 100),
                        confidence,
                        power,
                    ),
                    rates,
                )
                for share in shares
            ),
        )


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
    found = []
    for start in range(WEEK):
        # Rounding must not lead past a week without traffic at its end.
        wanted = min(ahead[start] + rest, ahead[start + WEEK])
        hour = int(np.searchsorted(ahead, wanted, side="left"))
        part = 0.0
        if hour > start:
            part = (wanted - ahead[hour - 1]) / max(ahead[hour] - ahead[hour - 1], 1e-9)
            hour -= 1
        found.append(weeks * WEEK + hour - start + part)
    return np.array(found, np.float64)


def _canary(share: float, messages: int | None, rates: Floats) -> CanaryTime:
    hours = None if messages is None else hours_until(rates, messages)
    if hours is None:
        nothing = dict.fromkeys(("hours", "shortest", "typical", "longest", "best_start"))
        return CanaryTime(share=share, messages=messages, **nothing)
    best = int(hours.argmin())
    return CanaryTime(
        share=share,
        messages=messages,
        hours=tuple(hours.round(2).tolist()),
        shortest=round(float(hours.min()), 2),
        typical=round(float(np.median(hours)), 2),
        longest=round(float(hours.max()), 2),
        best_start=f"{DAYS[best // 24]} {best % 24:02}:00",
    )
