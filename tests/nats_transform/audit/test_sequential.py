"""Looks at a canary again and again: how often they alarm, and how soon; simulated."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from nats_transform.audit import (
    Criteria,
    MappingAudit,
    Verdict,
    assess,
    sequential,
    statistics,
)
from nats_transform.audit.statistics import Counts, Floats
from tests.nats_transform.audit.counts import came, canary, hour, in_force, tallies

CANARIES, LOOKS = 2_000, 200
CONFIDENCE = 0.99
SHARES = [(0.02, 0.01), (0.01, 0.01), (0.1, 0.02), (0.5, 0.05)]


def evidence(hits: Counts, messages: int, share: float, tolerance: float) -> Floats:
    """The evidence at every look that a share is off, either way."""
    hours = np.arange(hits.shape[-1])
    misses = messages - hits
    up = sequential.evidence(hits, misses, hours, share + tolerance, tolerance)
    down = sequential.evidence(misses, hits, hours, 1 - share + tolerance, tolerance)
    return np.asarray(np.logaddexp(up, down) - np.log(2))


@pytest.mark.parametrize(("share", "tolerance"), SHARES)
@pytest.mark.parametrize(
    "where",
    [
        "on the edge",  # where alarms are likeliest
        pytest.param("right", marks=pytest.mark.slow),
        pytest.param("moving within the tolerance", marks=pytest.mark.slow),
    ],
)
def test_correct_canaries_alarm_no_more_often_than_stated(
    share: float, tolerance: float, where: str
) -> None:
    rng = np.random.default_rng(1)
    off = {"right": 0.0, "on the edge": 1.0}.get(where, np.sin(np.arange(LOOKS) / 9))
    messages = statistics.messages_to_decide(share, tolerance, CONFIDENCE) // 40
    hits = rng.binomial(messages, share + tolerance * np.asarray(off), (CANARIES, LOOKS))
    alarms = (evidence(hits, messages, share, tolerance) >= -np.log(1 - CONFIDENCE)).any(axis=1)
    assert alarms.mean() <= 1 - CONFIDENCE


@pytest.mark.parametrize(("share", "tolerance"), SHARES)
@pytest.mark.parametrize(
    ("first", "median", "slowest"),
    [(0, 0.8, sequential.SLOWEST), pytest.param(100, 1.5, 2.6, marks=pytest.mark.slow)],
    ids=["from the start", "from hour 100 on"],
)
def test_a_split_that_is_off_is_caught_in_time(
    share: float, tolerance: float, first: int, median: float, slowest: float
) -> None:
    """The median and the 95th percentile of the delay, in messages of an audit with one look."""
    rng = np.random.default_rng(2)
    fixed = statistics.messages_to_decide(share, tolerance, CONFIDENCE)
    messages = fixed // 40
    truth = np.full(LOOKS + first, share)
    truth[first:] += 2 * tolerance
    hits = rng.binomial(messages, truth, (CANARIES, LOOKS + first))
    alarms = evidence(hits, messages, share, tolerance) >= -np.log(1 - CONFIDENCE)
    looks = np.where(alarms.any(axis=1), alarms.argmax(axis=1) + 1 - first, LOOKS)
    assert np.median(looks) * messages <= median * fixed
    assert np.percentile(looks, 95) * messages <= slowest * fixed


@pytest.mark.parametrize(("share", "tolerance"), SHARES)
def test_intervals_hold_at_all_looks_at_once(share: float, tolerance: float) -> None:
    rng = np.random.default_rng(3)
    fixed = statistics.messages_to_decide(share, tolerance, CONFIDENCE)
    # Every tenth look: the intervals of each are found by halving.
    hits = rng.binomial(fixed // 40, share, (CANARIES, LOOKS)).cumsum(axis=1)[:, 9::10]
    totals = fixed // 40 * np.arange(10, LOOKS + 1, 10)
    low, high = sequential.interval(hits, totals, share, tolerance, CONFIDENCE)
    assert ((low > share) | (high < share)).any(axis=1).mean() <= 1 - CONFIDENCE
    within = (low >= share - tolerance) & (high <= share + tolerance)
    assert np.median(totals[within.argmax(axis=1)]) <= fixed
    assert np.percentile(totals[within.argmax(axis=1)], 95) <= sequential.SLOWEST * fixed


def test_each_bet_wins_at_most_one_on_average() -> None:
    """What the guarantee rests on, exactly: for one message and every share that is fine."""
    for (share, tolerance), part in product(SHARES, (0, 0.3, 1)):
        edge = share + tolerance
        truth = edge * part
        won = np.exp(sequential.bets([1, 0], [0, 1], edge, tolerance))
        assert (truth * won[0] + (1 - truth) * won[1] <= 1 + 1e-12).all()
    assert sequential.weight(np.arange(10**6)).sum() == pytest.approx(1, abs=2e-6)


@pytest.mark.parametrize("edge", [0.0, 1.0, 1.2])
def test_an_edge_that_no_share_can_cross_is_no_evidence(edge: float) -> None:
    assert (sequential.evidence([5, 5], [5, 5], [0, 1], edge, 0.01) <= 0).all()


def look(hours: int, stale: int | None = None) -> MappingAudit:
    """The audit after some hours, one of which may have had 10 % for the canary."""
    rng = np.random.default_rng(4)
    hits = [int(rng.binomial(4000, 0.10 if n == stale else 0.02)) for n in range(hours)]
    counts = tallies([came(4000 - n, n) for n in hits], "east")
    criteria = Criteria(by="hour", sequential=True)
    (rule,) = assess(in_force(canary(98, 2)), counts, criteria).rules
    return rule


def test_the_stale_hour_is_found_at_its_look_and_stays_found() -> None:
    stale = 5
    seen = [look(hours, stale) for hours in (4, 5, 6, 24)]
    assert [rule.verdict is Verdict.OUTSIDE for rule in seen] == [False, False, True, True]
    rule = seen[-1]
    assert rule.alarm == hour(stale + 1)
    out = [bucket.from_ for bucket in rule.buckets if bucket.verdict is Verdict.OUTSIDE]
    assert out == [hour(stale)]
    assert "2026-03-01 05:00" in rule.reason
    assert rule.test is None
    right = look(24)
    assert (right.verdict, right.alarm) == (Verdict.WITHIN, None)


def test_all_intervals_share_the_error_of_the_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    of_intervals, interval = list[Floats](), sequential.interval

    def asked(*arguments: Any) -> tuple[Floats, Floats]:
        of_intervals.append(1 - arguments[-1])
        return interval(*arguments)

    monkeypatch.setattr(sequential, "interval", asked)
    look(24)
    # Each of the two ends is asked for by itself, for each of two shares.
    assert len(of_intervals) == 4
    for missed in of_intervals:
        assert len(missed) == 25
        assert 0 < missed.sum() <= 1 - CONFIDENCE
