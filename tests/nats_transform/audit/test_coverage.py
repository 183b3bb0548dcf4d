"""How often whole audits are wrong: thousands of simulated ones, each judged as an audit is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from itertools import chain
from typing import Any, Literal

import numpy as np
import pytest
from scipy import stats

from nats_transform.audit import Assessment, Criteria, Period, Split, Verdict, assess
from nats_transform.audit.planning import Audit, plan
from nats_transform.audit.statistics import POWER, Counts, Floats
from tests.nats_transform.audit.counts import START, came, canary, hour, in_force, tallies

MANY, FEW = 2_000, 25


@dataclass(frozen=True)
class Canary:
    """A mapping, and the audit that it gets."""

    clusters: int
    hours: int
    by: Literal["hour", "day"]
    weights: tuple[int, ...]
    tolerance: float = 1.0
    confidence: float = 0.99

    def __str__(self) -> str:
        weights = "+".join(map(str, self.weights))
        return f"{self.clusters} clusters, {self.hours} hours by {self.by}, {weights}"

    @cached_property
    def periods(self) -> list[Period]:
        return in_force(canary(*self.weights))

    @property
    def criteria(self) -> Criteria:
        return Criteria(self.tolerance, self.confidence, self.by)

    @property
    def shares(self) -> Floats:
        return np.array(self.weights) / 100

    def planned(self) -> tuple[int, int]:
        """The messages that each cluster needs, and the comparisons, as `plan-canary` has them."""
        at = [hour(n) for n in range(self.hours)]
        counts = {("shop.*", f"c{n}"): dict.fromkeys(at, 1000) for n in range(self.clusters)}
        audit = Audit(self.criteria, hours=self.hours)
        share = (min(self.weights),)
        rules = list(plan(counts, at[0], at[-1], share, audit, self.periods[0].mappings))
        (planned,) = {(rule.canaries[0].messages, rule.canaries[0].comparisons) for rule in rules}
        assert planned[0] is not None
        return planned

    def audit(self, counts: Sequence[Counts]) -> Assessment:
        """The audit of the counts of each cluster: a row for each hour, a column for each end."""
        of_clusters = (
            tallies([came(*row) for row in rows.tolist()], f"c{cluster}")
            for cluster, rows in enumerate(counts)
        )
        return assess(self.periods, chain.from_iterable(of_clusters), self.criteria)


def quick_and_slow(every: Iterable[Any], some: Iterable[Any]) -> list[Any]:
    """Each case with many audits, which is slow, and some cases with few."""
    slow = [pytest.param(*_values(case), MANY, marks=pytest.mark.slow) for case in every]
    return [*slow, *((*_values(case), FEW) for case in some)]


def _values(case: Any) -> tuple[Any, ...]:
    return case if isinstance(case, tuple) else (case,)


def hourly(messages: int, hours: int) -> Counts:
    """So many messages, spread over some hours as evenly as they can be."""
    return np.diff(np.linspace(0, messages, hours + 1).astype(np.int64))


CANARIES = [
    Canary(1, 1, "day", (2, 98)),
    Canary(1, 24, "day", (1, 99)),
    Canary(1, 24, "hour", (2, 98)),
    Canary(3, 24, "hour", (2, 98)),
    Canary(6, 24, "hour", (2, 98)),
    Canary(6, 24, "day", (2, 98), tolerance=0.5),
    Canary(3, 12, "hour", (10, 90), confidence=0.95),
    Canary(1, 24, "hour", (2, 8, 90)),
    Canary(3, 24, "hour", (2, 49, 49)),
    Canary(6, 6, "hour", (5, 15, 30, 50)),
    Canary(2, 24, "day", (2, 8, 20, 30, 40)),
    Canary(6, 24, "hour", (1, 4, 15, 30, 50)),
]


@pytest.mark.parametrize(("canary", "runs"), quick_and_slow(CANARIES, CANARIES[7:8]), ids=str)
def test_the_planned_messages_are_enough_for_the_whole_audit(
    canary: Canary, runs: int, record_property: Callable[[str, object], None]
) -> None:
    messages, comparisons = canary.planned()
    sizes = hourly(messages, canary.hours)
    rng = np.random.default_rng(31)
    verdicts = []
    for _ in range(runs):
        counts = [rng.multinomial(sizes, canary.shares) for _ in range(canary.clusters)]
        found = canary.audit(counts)
        assert found.comparisons <= comparisons
        verdicts.append(found.verdict)
    record_property("verdicts", str(dict(Counter(verdict.value for verdict in verdicts))))
    assert verdicts.count(Verdict.WITHIN) >= stats.binom.ppf(0.001, runs, POWER)
    assert verdicts.count(Verdict.OUTSIDE) <= stats.binom.isf(0.001, runs, 1 - canary.confidence)
    # One cluster whose canary is off by twice its tolerance, at the cost of the largest share.
    off = 2 * canary.criteria.tolerance_of(canary.shares[0])
    wrong = canary.shares + off * np.eye(len(canary.weights))[0]
    wrong[-1] -= off
    alarms = 0
    for _ in range(few := runs // 5):
        counts = [rng.multinomial(sizes, canary.shares) for _ in range(canary.clusters - 1)]
        alarms += canary.audit([rng.multinomial(sizes, wrong), *counts]).verdict is Verdict.OUTSIDE
    record_property("alarms", f"{alarms} of {few}")
    assert alarms >= stats.binom.ppf(0.001, few, POWER)


def misses(found: Assessment, sizes: Counts, truth: Sequence[Floats]) -> bool:
    """Whether an interval misses the true share.

    Args:
        found: the audit.
        sizes: the messages of each hour, in each cluster.
        truth: for each cluster, the shares of each hour; as the mapping has them.
    """

    def is_missed(split: Split, shares: Floats) -> bool:
        first, last = ((at - START) // timedelta(hours=1) for at in (split.from_, split.to))
        means = np.average(shares[first:last], axis=0, weights=sizes[first:last])
        return any(
            not end.low <= 100 * means[int((end.destination or "v1")[1]) - 1] <= end.high
            for end in split.destinations
        )

    return any(
        is_missed(part, shares)
        for rule, shares in zip(found.rules, truth, strict=True)
        for part in (rule, *rule.buckets, *rule.regimes)
    ) or any(is_missed(total.total, np.mean(truth, axis=0)) for total in found.clusters)


CHANGES = [
    (clusters, by, per_hour, changed, confidence)
    for clusters, by, per_hour, changed in [
        (1, "day", 1_000, 0.03),
        (1, "day", 400, 0.05),
        (1, "day", 4_000, 0.024),
        (1, "day", 1_000, 0.02),  # no change
        (2, "hour", 1_000, 0.03),
    ]
    for confidence in (0.95, 0.99)
]


@pytest.mark.parametrize(
    ("clusters", "by", "per_hour", "changed", "confidence", "runs"),
    quick_and_slow(CHANGES, CHANGES[:1]),
)
def test_all_intervals_hold_together_where_a_split_changed(
    clusters: int,
    by: Literal["hour", "day"],
    per_hour: int,
    changed: float,
    confidence: float,
    runs: int,
    record_property: Callable[[str, object], None],
) -> None:
    """One change in 24 hours: the regimes are chosen by the data that they are judged by."""
    canary = Canary(clusters, 24, by, (2, 98), confidence=confidence)
    share = np.full(24, 0.02)
    share[9:] = changed
    shares = np.stack([share, 1 - share], axis=1)
    steady = np.tile(canary.shares, (24, 1))
    truth = [shares, *[steady] * (clusters - 1)]
    sizes = np.full(24, per_hour)
    rng = np.random.default_rng(5)
    missed = sum(
        misses(canary.audit([rng.multinomial(sizes, part) for part in truth]), sizes, truth)
        for _ in range(runs)
    )
    record_property("missed", str(missed))
    assert missed <= stats.binom.isf(0.001, runs, 1 - confidence)


RUNNING_ON = [(by, off) for by in ("hour", "day") for off in (0.0, 0.5)]


@pytest.mark.parametrize(("by", "off", "runs"), quick_and_slow(RUNNING_ON, RUNNING_ON[:1]))
def test_so_many_messages_would_decide_it(
    by: Literal["hour", "day"],
    off: float,
    runs: int,
    record_property: Callable[[str, object], None],
) -> None:
    """A canary that simply runs on, for as many more hours as the number takes."""
    per_hour = 400
    truth = 0.02 + off / 100
    canary = Canary(1, 2, by, (2, 98))
    seen = np.full((2, 2), per_hour) * (truth, 1 - truth)
    (rule,) = canary.audit([seen.astype(np.int64)]).rules
    assert rule.verdict is Verdict.UNDECIDED
    (needed,) = {
        end.messages_as_seen if off else end.messages_to_decide for end in rule.destinations
    }
    assert f"if v1.$1 stays at {100 * truth:.2f} %" in rule.reason
    hours = -(-needed // per_hour)
    sizes = hourly(needed, hours)
    rng = np.random.default_rng(6)
    decided = sum(
        canary.audit([rng.multinomial(sizes, (truth, 1 - truth))]).verdict is not Verdict.UNDECIDED
        for _ in range(runs)
    )
    record_property("decided", str(decided))
    assert decided >= stats.binom.ppf(0.001, runs, POWER)
