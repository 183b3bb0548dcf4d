"""Weighted, cluster-scoped mappings: every row of tests/cases/mappings.yaml, and the draw."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from nats_transform import (
    AccountMappings,
    Fate,
    InvalidMapping,
    NatsTransformError,
    Outcome,
    errors,
)
from tests import cases
from tests.support.refused import refused
from tests.support.rules import mapping, mappings

CASES = [pytest.param(case, id=case["id"]) for case in cases.load("mappings.yaml")]


def end_of(outcome: Outcome) -> str:
    return outcome.subject if outcome.subject is not None else str(outcome.fate)


@pytest.mark.parametrize("case", CASES)
def test_the_cases(case: dict[str, Any]) -> None:
    if "error" in case:
        with pytest.raises(NatsTransformError) as refused:
            cases.account(case["mappings"])
        assert type(refused.value) is getattr(errors, case["error"])
        return
    account = cases.account(case["mappings"])
    subject, cluster = case["subject"], case.get("cluster")
    exact: Counter[str] = Counter()
    for outcome, percent in account.outcomes(subject, cluster):
        exact[end_of(outcome)] += percent
    drawn = Counter(end_of(account.apply(subject, cluster, draw)) for draw in range(100))
    assert exact == case["outcomes"]
    assert drawn == case["outcomes"]


def test_draws_are_shared_out_in_ascending_order_of_weight() -> None:
    account = mappings({"foo": [("big", 60), ("small", 10)]})
    ends = [account.apply("foo", draw=draw).subject for draw in range(100)]
    assert ends == ["small"] * 10 + ["foo"] * 30 + ["big"] * 60


def test_equal_weights_keep_the_order_of_the_configuration() -> None:
    shares = mapping("foo", [("b", 50), ("a", 50)]).shares()
    assert [share.destination for share in shares] == ["b", "a"]


def test_an_outcome_says_what_made_it() -> None:
    account = mappings({"foo.*": [("bar.$1", 30)]})
    for draw, subject, destination in ((29, "bar.a", "bar.$1"), (30, "foo.a", "foo.*")):
        outcome = Outcome(subject, Fate.MAPPED, "foo.*", destination, draw=draw)
        assert account.apply("foo.a", draw=draw) == outcome
    assert account.apply("fox.a") == Outcome("fox.a", Fate.UNMATCHED)


def test_one_destination_at_100_percent_is_not_drawn() -> None:
    assert mappings({"foo": "bar"}).apply("foo", draw=50).draw is None


@pytest.mark.parametrize("subject", ["a..b", "", ".", "a.*", ">", "a."])
def test_an_illegal_subject_is_invalid_whatever_the_mapping(subject: str) -> None:
    outcome = mappings({">": "x.>"}).apply(subject)
    assert outcome.fate is Fate.INVALID
    assert outcome.subject is None
    assert outcome.reason


def test_an_empty_destination_is_told_apart() -> None:
    outcome = mappings({"foo": ""}).apply("foo")
    assert outcome.fate is Fate.INVALID
    assert outcome.reason
    assert "crashes" in outcome.reason


def test_a_second_mapping_of_the_same_source_takes_the_place_of_the_first() -> None:
    pairs = [("foo", "one"), ("*", "any"), ("foo", "two")]
    account = AccountMappings([mapping(*pair) for pair in pairs])
    assert account.apply("foo").subject == "two"
    assert len(account.mappings) == 2


def test_a_partition_of_a_literal_beside_another_mapping_hashes_the_subject() -> None:
    account = mappings({"foo": "bar.{{partition(1000)}}", "other": "x"})
    assert account.apply("foo").subject == "bar.261"
    assert AccountMappings(account.mappings[::-1]).apply("foo").subject == "bar.223"


@pytest.mark.parametrize("draw", [-1, 100])
def test_a_draw_out_of_range_is_refused(draw: int) -> None:
    with refused(ValueError, "draw-out-of-range"):
        mappings({"foo": [("bar", 30)]}).apply("foo", draw=draw)


def test_what_is_refused_says_which_mapping() -> None:
    with refused(InvalidMapping, "mapping-weight", destination="'bar'", weight=101):
        mapping("foo", [("bar", 101)])


def test_a_replay_repeats_itself_and_keeps_to_the_weights() -> None:
    account = mappings({"foo": [("bar", 20)]})
    first, again, other = (
        [account.replay("foo", stream="S", seq=seq, seed=seed).subject for seq in range(10_000)]
        for seed in (0, 0, 1)
    )
    assert first == again != other
    # Binomial: 2,000 expected, standard deviation 40.
    assert 1_800 < first.count("bar") < 2_200
