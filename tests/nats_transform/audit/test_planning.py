"""How long a canary must run: test_coverage.py simulates that it is long enough."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from nats_transform.audit import Criteria
from nats_transform.audit.planning import WEEK, Audit, RulePlan, hour_of_week, hours_until, plan
from tests.support import rules

MONDAY = datetime(2026, 3, 2, tzinfo=UTC)


def planned(counts: dict[datetime, int], days: int = 7) -> RulePlan:
    last = MONDAY + timedelta(days=days, hours=-1)
    (rule,) = plan({("s", "east"): counts}, MONDAY, last, (2,), Audit(Criteria()))
    return rule


@pytest.mark.parametrize(
    "more",
    [
        {"by": "hour"},
        {"hours": 1_000},
        {"clusters": 6},
        {"destinations": 3},
        {"confidence": 0.999},
        {"power": 0.99},
    ],
    ids=str,
)
def test_whatever_an_audit_has_more_needs_more_messages(more: dict[str, Any]) -> None:
    def messages(asked: dict[str, Any]) -> int:
        judged = {name: asked.pop(name) for name in ("by", "confidence") if name in asked}
        hours = [MONDAY + timedelta(hours=n) for n in range(9)]
        counts = {("s", "east"): dict.fromkeys(hours, 500)}
        audit = Audit(Criteria(**judged), **asked)
        (rule,) = plan(counts, hours[0], hours[-1], (2,), audit)
        assert rule.canaries[0].messages is not None
        return rule.canaries[0].messages

    assert messages({**more}) > messages({})


@pytest.mark.parametrize(
    ("destinations", "asked", "others"),
    [
        ([], None, (98.0,)),
        ([("a", 100)], None, (98.0,)),
        ([("a", 98), ("b", 2)], None, (98.0,)),
        ([("a", 60), ("b", 10)], None, (32.6667, 65.3333)),  # the remainder of 30 stays
        ([("a", 75), ("b", 25), ("c", 0)], None, (0.0, 98.0)),
        ([("a", 98), ("b", 2)], 5, (24.5,) * 4),
    ],
    ids=["none", "one", "a canary", "remainder", "weight 0", "asked for"],
)
def test_the_other_destinations_get_what_the_canary_leaves(
    destinations: list[tuple[str, int]], asked: int | None, others: tuple[float, ...]
) -> None:
    mappings = rules.mappings({"s": destinations}) if destinations else None
    audit = Audit(Criteria(), destinations=asked)
    (rule,) = plan({("s", None): {MONDAY: 100}}, MONDAY, MONDAY, (2,), audit, mappings)
    assert rule.canaries[0].others == others


def test_so_many_hours_bring_so_many_messages() -> None:
    """Simulated weeks with nights, from every start: the plan is right on average."""
    rng = np.random.default_rng(1)
    rates = 40 + 400 * np.clip(np.sin(np.arange(WEEK) % 24 / 24 * 2 * np.pi - 2), 0, None)
    rates[120:] /= 3  # the weekend
    counts = {MONDAY + timedelta(hours=n): int(r) for n, r in enumerate(rates)}
    rule = planned(counts)
    (canary,) = rule.canaries
    for start in range(0, WEEK, 29):
        arrivals = rng.poisson(np.tile(np.roll(rates, -start), 20), (50, 20 * WEEK)).cumsum(axis=1)
        took = (arrivals >= canary.messages).argmax(axis=1) + 1
        assert abs(float(np.median(took)) - canary.hours[start]) <= 1.5
    assert canary.shortest == min(canary.hours)
    day, hour = str(canary.best_start).split()
    assert day in ("Mon", "Tue", "Wed", "Thu", "Fri")
    assert hour.endswith(":00")


def test_hours_that_were_never_seen_count_as_on_other_days() -> None:
    day = {MONDAY + timedelta(hours=n): 10 * (n + 1) for n in range(24)}
    rule = planned(day, days=1)
    assert rule.guessed == WEEK - 24
    assert rule.per_hour == tuple(10.0 * (n % 24 + 1) for n in range(WEEK))


def test_several_weeks_are_averaged_and_silent_hours_count() -> None:
    rule = planned({MONDAY: 10, MONDAY + timedelta(days=7): 30}, days=14)
    assert rule.per_hour == (20.0, *[0.0] * (WEEK - 1))
    assert rule.guessed == 0
    assert hours_until(np.array(rule.per_hour), 50) is not None


@pytest.mark.parametrize(
    ("rates", "messages", "from_monday"),
    [
        (np.full(WEEK, 10.0), 25, 2.5),
        (np.full(WEEK, 10.0), 10 * WEEK * 3, 3.0 * WEEK),
        (np.r_[0.0, 0.0, 5.0, np.zeros(WEEK - 3)], 5, 3.0),
        (np.r_[0.0, 0.0, 5.0, np.zeros(WEEK - 3)], 6, WEEK + 2.2),
        # Three weeks, of whose hours the sum is a little less than it should be.
        (np.r_[np.full(13, 100 / 13 / 3), np.zeros(WEEK - 13)], 100, 2 * WEEK + 13.0),
    ],
    ids=["part of an hour", "whole weeks", "after silence", "a week later", "rounded"],
)
def test_hours_until(rates: np.ndarray, messages: int, from_monday: float) -> None:
    assert hours_until(rates, messages)[0] == pytest.approx(from_monday)


def test_no_traffic_takes_for_ever() -> None:
    assert hours_until(np.zeros(WEEK), 1) is None
    assert planned({}).canaries[0].hours is None
    assert hour_of_week(MONDAY + timedelta(days=6, hours=23)) == WEEK - 1
