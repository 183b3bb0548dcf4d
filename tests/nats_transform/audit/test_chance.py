"""Tests of chance: what no draw for each message makes is found, and what draws make is not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from nats_transform.audit import Assessment, Criteria, End, Verdict, assess, chance
from nats_transform.audit.chance import KEYS, STRETCH, Draws
from nats_transform.audit.levels import CHANCE
from tests.nats_transform.audit.counts import SCOPE, came, canary, in_force, tallies

MESSAGES, CUSTOMERS = 100 * STRETCH, 100


def audit(
    places: np.ndarray,
    keys: np.ndarray,
    weights: tuple[int, ...] = (10, 90),
    criteria: Criteria | None = None,
) -> Assessment:
    """The audit of messages in order, each with the place of its destination and its key."""
    mapping = canary(*weights)
    draws = Draws.none([End(mapping.source, end.subject) for end in mapping.destinations])
    draws.add_order(places[: len(places) // STRETCH * STRETCH])
    draws.add_keys(keys * 7919 % KEYS, places)
    hours = [np.bincount(part, minlength=len(weights)) for part in np.array_split(places, 24)]
    counts = tallies(came(*hour.tolist()) for hour in hours)
    return assess(in_force(mapping), counts, criteria or Criteria(), draws={SCOPE: draws})


def customers(rng: np.random.Generator) -> np.ndarray:
    """Whose order each message is; the first ones order most."""
    return np.minimum(rng.geometric(0.03, MESSAGES) - 1, CUSTOMERS - 1)


NUMBERS = np.arange(MESSAGES)


@pytest.mark.parametrize(
    ("weights", "places", "tests"),
    [
        ((10, 90), lambda rng, _: np.sign(NUMBERS % 10), {"runs", "spacing"}),
        ((1, 99), lambda rng, _: np.sign(NUMBERS % 100), {"spacing"}),
        ((50, 50), lambda rng, _: NUMBERS % 2, {"runs", "spacing"}),
        # Each draw holds for two messages, or for eight.
        ((10, 90), lambda rng, _: np.repeat(rng.random(MESSAGES // 2) >= 0.1, 2), {"runs"}),
        ((2, 98), lambda rng, _: np.repeat(rng.random(MESSAGES // 8) >= 0.02, 8), {"runs"}),
        ((10, 90), lambda rng, _: NUMBERS // 256 % 10 > 0, set()),
        ((10, 90), lambda rng, keys: keys % 10 > 0, {"keys"}),
        # Twice the share for half of the keys, nothing for the others.
        ((10, 90), lambda rng, keys: rng.random(MESSAGES) >= 0.2 * (keys % 2), {"keys"}),
    ],
    ids=[
        "every tenth",
        "every hundredth",
        "in turn",
        "two by two",
        "eight by eight",
        "whole stretches",
        "10 of 100 keys",
        "half of the keys",
    ],
)
def test_a_split_that_no_random_server_makes_is_found(
    weights: tuple[int, ...],
    places: Callable[[np.random.Generator, np.ndarray], np.ndarray],
    tests: set[str],
) -> None:
    rng = np.random.default_rng(8)
    keys = rng.integers(0, CUSTOMERS, MESSAGES)
    found = audit(np.asarray(places(rng, keys), np.uint8), keys, weights)
    (rule,) = found.rules
    assert tests <= {test.test for test in rule.chance if not test.is_random}
    if tests:
        assert found.verdict is rule.verdict
        assert rule.verdict in (Verdict.NOT_RANDOM, Verdict.OUTSIDE)
        assert "chance doesn't explain" in rule.reason or rule.verdict is Verdict.OUTSIDE
    if tests == {"keys"}:
        assert {end.verdict for end in rule.destinations} <= {Verdict.WITHIN, Verdict.UNDECIDED}
        assert rule.verdict is Verdict.NOT_RANDOM


@pytest.mark.parametrize("runs", [25, pytest.param(2_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("weights", [(2, 98), (50, 50), (1, 9, 30, 60)])
def test_draws_are_seldom_taken_for_something_else(weights: tuple[int, ...], runs: int) -> None:
    """Also where the share moves within its tolerance from hour to hour."""
    criteria = Criteria(confidence=0.9)
    rng = np.random.default_rng(9)
    shares = np.cumsum(weights) / 100
    wrong = 0
    for _ in range(runs):
        places = np.searchsorted(shares, rng.random(MESSAGES), side="right").astype(np.uint8)
        (rule,) = audit(places, customers(rng), weights, criteria).rules
        assert {test.test for test in rule.chance} == {"runs", "spacing", "keys"}
        wrong += rule.verdict is Verdict.NOT_RANDOM
    assert wrong <= stats.binom.isf(0.001, runs, CHANCE * (1 - criteria.confidence))


def test_a_share_that_moves_slowly_is_not_an_order() -> None:
    rng = np.random.default_rng(10)
    share = 0.1 + 0.09 * np.sin(NUMBERS / 4_000)
    (rule,) = audit((rng.random(MESSAGES) >= share).astype(np.uint8), customers(rng)).rules
    assert [test.test for test in rule.chance if not test.is_random] in ([], ["keys"])


@pytest.mark.parametrize("share", [0.01, 0.5])
@pytest.mark.parametrize("stretches", [4, 100])
def test_the_bound_holds_in_its_tail(share: float, stretches: int) -> None:
    """The p-values of runs and spacing are never too small, whatever the number of messages."""
    rng = np.random.default_rng(11)
    ends = [End("s", "a"), End("s", "b")]
    values: dict[str, list[float]] = {"runs": [], "spacing": []}
    for _ in range(400):
        draws = Draws.none(ends)
        draws.add_order((rng.random(stretches * STRETCH) >= share).astype(np.uint8))
        for finding in chance.findings(draws):
            values[finding.test].append(finding.p_value)
    for p in values.values():
        for level in (0.3, 0.1, 0.03, 0.01):
            assert np.count_nonzero(np.array(p) <= level) <= stats.binom.isf(1e-4, len(p), level)


def test_what_cannot_be_tested_is_left_out() -> None:
    ends = [End("s", "a"), End("s", "b")]
    assert list(chance.findings(Draws.none(ends))) == []
    draws = Draws.none(ends)
    draws.add_order(np.zeros(STRETCH, np.uint8))
    draws.add_keys(np.zeros(STRETCH, np.int16), np.zeros(STRETCH, np.uint8))
    assert [finding.p_value for finding in chance.findings(draws)] == [1.0, 1.0]
