"""How an audit divides the error that its confidence allows; its plan and its verdict ask the same.

With a confidence of 99 %, one audit in a hundred may say something wrong. Most of that error is for
the intervals of times that are fixed before anybody looks: the whole time, and each hour or day. A
part is for the changes that the data show, a part for the regimes between them, and a part for the
tests of chance. Within each part every interval or test has the same error (Bonferroni).

A regime is chosen by the data that it is judged by, which makes its share look more extreme than it
is. So its interval has the error of one of all stretches of hours that could have been chosen: all
their intervals hold together, whichever the data choose.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, log
from typing import Literal

SAMPLES, CHANGES, REGIMES, CHANCE = 0.8, 0.05, 0.05, 0.1
"""The parts of the error; they add up to 1. A sequential audit has samples only."""

_STEP = 1.25
_ROUNDS = 50  # each makes the number larger by the logarithm of the last step only


@dataclass(frozen=True, slots=True)
class Extent:
    """How much there is to judge of one mapping in one cluster and period.

    Attributes:
        ends: the ends of the mapping.
        hours: the hours with messages.
        buckets: the hours or days that get a verdict of their own.
    """

    ends: int
    hours: int
    buckets: int


@dataclass(frozen=True)  # without slots, to keep what it computes: each mapping asks
class Design:
    """All that an audit judges, and the confidence of each interval and test that follows.

    Attributes:
        extents: the mappings in their clusters and periods.
        totals: for each mapping that is also judged over all its clusters, the number of its ends.
        confidence: the probability that nothing which the audit says is wrong.
        by: whether the buckets are hours or days.
        sequential: whether the audit is repeated; it then divides the error among the hours.
    """

    extents: tuple[Extent, ...]
    totals: tuple[int, ...]
    confidence: float
    by: Literal["hour", "day"] = "day"
    sequential: bool = False

    @cached_property
    def comparisons(self) -> int:
        """How many intervals share the error of the samples."""
        return sum(map(intervals_of, self.totals)) + sum(
            intervals_of(e.ends) * (1 if self.sequential else 1 + e.buckets) for e in self.extents
        )

    @cached_property
    def fits(self) -> int:
        """How many samples have a test of the exact weights."""
        return sum(1 + extent.buckets for extent in self.extents)

    @cached_property
    def segments(self) -> int:
        """How many intervals all regimes that the data could choose have."""
        return sum(intervals_of(e.ends) * (e.hours * (e.hours + 1) // 2) for e in self.extents)

    @property
    def sample(self) -> float:
        """The confidence of the interval of a share over a time that is fixed before."""
        return self._level(1.0 if self.sequential else SAMPLES, self.comparisons)

    @property
    def regime(self) -> float:
        """The confidence of the interval of a share over a time that the data have chosen."""
        return self._level(REGIMES, self.segments)

    @cached_property
    def chance(self) -> float:
        """The factor that corrects the p-value of a test of chance."""
        return sum(tests_of(extent.ends) for extent in self.extents) / CHANCE

    def _level(self, part: float, count: int) -> float:
        return 1 - (1 - self.confidence) * part / max(1, count)

    def longer(self, factor: float) -> Design:
        """The design of the same audit after that many times as long, or up to a quarter longer.

        So many mappings and clusters share few designs, for each of which sizes are computed.
        """
        if factor <= 1:
            return self
        steps = ceil(log(factor, _STEP))
        if steps not in self._longer:
            self._longer[steps] = self._stretched(_STEP**steps)
        return self._longer[steps]

    @cached_property
    def _longer(self) -> dict[int, Design]:
        return {}

    def _stretched(self, factor: float) -> Design:
        extents = []
        for extent in self.extents:
            hours = ceil(extent.hours * factor)
            more = (hours - extent.hours) / (24 if self.by == "day" else 1)
            extents.append(Extent(extent.ends, hours, max(1, extent.buckets) + ceil(more)))
        return replace(self, extents=tuple(extents))


def intervals_of(ends: int) -> int:
    """How many intervals some shares have. Of two shares, one follows from the other."""
    return 1 if ends == 2 else ends


def tests_of(ends: int) -> int:
    """How many tests of chance the messages of some ends have: order and spacing, and the keys."""
    return 2 * intervals_of(ends) + 1


def steady(confidence: float, scopes: int) -> float:
    """The confidence that no change is seen in the split of one mapping, cluster and period."""
    return 1 - (1 - confidence) * CHANGES / max(1, scopes)


def enough(
    needed: Callable[[float], int | None], level: Callable[[int], float], messages: int
) -> int | None:
    """How many messages are enough, where more messages take longer, and so have more samples.

    Args:
        needed: how many messages an interval of some confidence needs; None if no number is enough.
        level: the confidence of the intervals of an audit of some messages.
        messages: how many there are already.
    """
    size = needed(level(messages))
    for _ in range(_ROUNDS):
        more = None if size is None else needed(level(max(size, messages)))
        if size is None or more is None or more <= size:
            return size if more is not None else None
        size = more
    return size
