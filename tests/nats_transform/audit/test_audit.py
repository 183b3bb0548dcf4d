"""Verdicts on counts: what each rule of an audit says, and how often it is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from nats_transform import AccountMappings, Destination, Mapping
from nats_transform.audit import (
    Assessment,
    Criteria,
    End,
    MappingAudit,
    Period,
    Tally,
    Verdict,
    assess,
    is_audited,
)
from tests.nats_transform.audit.counts import START, came, canary, hour, in_force, tallies

CANARY = canary(98, 2)


def audit(mappings: Sequence[Mapping], counts: Sequence[Tally], **more: Any) -> Assessment:
    return assess(in_force(*mappings), counts, Criteria(), **more)


def one(assessment: Assessment) -> MappingAudit:
    (rule,) = assessment.rules
    return rule


@pytest.mark.parametrize(
    ("v1", "v2", "verdict", "reason"),
    [
        (98_000, 2_000, Verdict.WITHIN, "no share is more than 0.00 points off"),
        (96_000, 4_000, Verdict.OUTSIDE, "v2.$1 is 2.00 points above what is expected"),
        (100_000, 0, Verdict.OUTSIDE, "v2.$1 is 2.00 points below what is expected"),
        (98, 2, Verdict.UNDECIDED, "messages would decide it"),
        (97_000, 3_000, Verdict.UNDECIDED, "on the edge of the tolerance"),
        (0, 0, Verdict.NOTHING, "no message"),
    ],
    ids=["right", "doubled", "stuck", "few", "edge", "none"],
)
def test_verdicts(v1: int, v2: int, verdict: Verdict, reason: str) -> None:
    found = audit([CANARY], tallies([came(v1, v2)]))
    assert found.verdict is one(found).verdict is verdict
    assert reason in one(found).reason


@pytest.mark.parametrize("sequential", [False, True])
@pytest.mark.parametrize(
    ("weight", "tolerance", "got", "verdict"),
    [
        (1, 1, 0, Verdict.OUTSIDE),
        (1, 1, 6, Verdict.OUTSIDE),
        (1, 1, 200, Verdict.WITHIN),
        (2, 2, 0, Verdict.OUTSIDE),
        (2, 50, 0, Verdict.OUTSIDE),
        (98, 2, 20_000, Verdict.OUTSIDE),
        (50, 50, 0, Verdict.OUTSIDE),
        (50, 50, 20_000, Verdict.OUTSIDE),
    ],
)
def test_a_destination_without_messages_is_never_within(
    weight: int, tolerance: float, got: int, verdict: Verdict, sequential: bool
) -> None:
    counts = tallies([came(20_000 - got, got)])
    criteria = Criteria(tolerance, sequential=sequential)
    found = one(assess(in_force(canary(100 - weight, weight)), counts, criteria))
    assert found.verdict is verdict
    allowed = min(tolerance, weight / 2, 50 - weight / 2)
    assert [end.tolerance for end in found.destinations] == pytest.approx([allowed] * 2)


def test_a_mapping_without_messages_has_a_rule_and_no_say() -> None:
    other = Mapping("other", [Destination("a", 50)])
    counts = tallies([came(98_000, 2_000)])
    found = audit([CANARY, other], counts)
    assert [rule.verdict for rule in found.rules] == [Verdict.WITHIN, Verdict.NOTHING]
    assert found.verdict is Verdict.WITHIN
    # Nor a part of the error: a plan counts on what those with messages need.
    assert found.comparisons == audit([CANARY], counts).comparisons


def test_remainder_and_loss_are_ends() -> None:
    kept = Mapping("a", [Destination("b", 30)])
    lost = Mapping("c", [Destination("d", 30), Destination("c", 10)])
    counts = [
        *tallies([{"b": 30_000, "a": 70_000}], source="a"),
        *tallies([{"d": 30_000, "c": 10_000, "": 60_000}], source="c"),
    ]
    found = audit([kept, lost], counts)
    assert [[(e.destination, e.end, e.weight) for e in r.destinations] for r in found.rules] == [
        [("b", "destination", 30), ("a", "remainder", 70)],
        [("c", "destination", 10), ("d", "destination", 30), (None, "lost", 60)],
    ]
    assert found.verdict is Verdict.WITHIN


@pytest.mark.parametrize(
    ("mapping", "audited"),
    [
        (Mapping("a", [Destination("b")]), False),
        (Mapping("a", [Destination("b", 100), Destination("c", 0)]), True),
        (Mapping("a", [Destination("b", 99)]), True),
        (Mapping("a", [Destination("b"), Destination("c", 100, "east")]), True),
    ],
    ids=["plain", "weight 0", "remainder", "clusters"],
)
def test_what_is_audited(mapping: Mapping, audited: bool) -> None:
    assert is_audited(mapping) is audited


def test_a_bucket_that_is_outside_makes_the_rule_outside() -> None:
    hours = [came(98_000, 2_000)] * 47 + [came(92_000, 8_000)]
    criteria = Criteria(1.0, 0.99, "hour")
    rule = one(assess(in_force(CANARY), tallies(hours), criteria))
    assert rule.verdict is Verdict.OUTSIDE
    assert [bucket.verdict for bucket in rule.buckets] == [Verdict.WITHIN] * 47 + [Verdict.OUTSIDE]
    assert rule.destinations[0].verdict is Verdict.WITHIN
    assert "within over the whole time, but outside the tolerance" in rule.reason


def test_a_change_of_weights_splits_the_time_into_regimes() -> None:
    rng = np.random.default_rng(1)
    hours = [
        dict(zip(("v2.$1", "v1.$1"), rng.multinomial(3000, (p, 1 - p)).tolist(), strict=True))
        for p in [0.02] * 30 + [0.1] * 10 + [0.02] * 20
    ]
    rule = one(audit([CANARY], tallies(hours)))
    edges = [(regime.from_, regime.to) for regime in rule.regimes]
    assert edges == list(pairwise(map(hour, (0, 30, 40, 60))))
    assert [regime.verdict for regime in rule.regimes] == [
        Verdict.WITHIN,
        Verdict.OUTSIDE,
        Verdict.WITHIN,
    ]
    assert rule.verdict is Verdict.OUTSIDE


def test_each_version_is_held_against_its_own_time() -> None:
    change = hour(2)
    periods = [
        Period(AccountMappings([CANARY]), "one", None, change),
        Period(AccountMappings([canary(50, 50)]), "two", change, None),
    ]
    counts = [
        *tallies([came(49_000, 1_000)] * 2),
        *tallies([came(50_000, 50_000)] * 2, period=1, first=2),
    ]
    found = assess(periods, counts, Criteria())
    assert [(r.mapping_version, r.verdict, r.from_, r.to) for r in found.rules] == [
        ("one", Verdict.WITHIN, START, change),
        ("two", Verdict.WITHIN, change, hour(4)),
    ]


def test_a_total_that_hides_clusters_that_differ_is_called_out() -> None:
    counts = [
        *tallies([came(96_000, 4_000)], "east"),
        *tallies([came(100_000, 0)], "west"),
    ]
    found = audit([CANARY], counts)
    (total,) = found.clusters
    assert total.total.verdict is Verdict.WITHIN
    assert total.hides
    assert total.message == (
        "all clusters together are within the tolerance, but each of these is outside the "
        "tolerance: east, west"
    )
    assert total.same_split.p_value < 1e-9
    assert [rule.verdict for rule in found.rules] == [Verdict.OUTSIDE] * 2


def test_a_total_that_is_outside_as_a_cluster_is_hides_nothing() -> None:
    counts = [
        *tallies([came(90_000, 10_000)], "east"),
        *tallies([came(98_000, 2_000)], "west"),
    ]
    found = audit([CANARY], counts)
    (total,) = found.clusters
    assert [rule.verdict for rule in found.rules] == [Verdict.OUTSIDE, Verdict.WITHIN]
    assert total.total.verdict is Verdict.OUTSIDE
    assert not total.hides


def test_a_dead_canary_that_no_cluster_shows_by_itself() -> None:
    counts = [one for number in range(40) for one in tallies([came(400, 0)], f"c{number:02}")]
    found = audit([CANARY], counts)
    (total,) = found.clusters
    assert {rule.verdict for rule in found.rules} == {Verdict.UNDECIDED}
    assert found.verdict is total.total.verdict is Verdict.OUTSIDE
    assert total.hides
    assert total.message == (
        "none of the 40 clusters is outside the tolerance by itself, but all together are"
    )


def test_clusters_with_weights_of_their_own() -> None:
    mapping = Mapping("a", [Destination("b", 20), Destination("c", 60, "east")])
    counts = [
        *tallies([{"c": 60_000, "a": 40_000}], "east", source="a"),
        *tallies([{"b": 40_000, "a": 160_000}], "west", source="a"),
    ]
    found = audit([mapping], counts)
    assert found.verdict is Verdict.WITHIN
    (total,) = found.clusters
    expected = {end.destination: end.expected for end in total.total.destinations}
    assert expected == pytest.approx({"b": 100 * 40 / 300, "c": 20, "a": 200 / 3})
    assert not total.hides
    assert total.same_split is None


def test_ambiguous_messages_widen_the_interval() -> None:
    certain = tallies([came(98_000, 2_000)])
    both = (End("shop.*", "v1.$1"), End("shop.*", "v2.$1"))
    for count, verdict in ((500, Verdict.WITHIN), (2_000, Verdict.UNDECIDED)):
        rule = one(audit([CANARY], [*certain, Tally(None, START, both, count)]))
        assert (rule.messages, rule.ambiguous) == (100_000, count)
        assert rule.verdict is verdict
        canary, stable = rule.destinations
        assert canary.low < 100 * 2_000 / (100_000 + count)
        assert canary.high > 100 * (2_000 + count) / (100_000 + count)
        assert stable.low < 100 * 98_000 / (100_000 + count)
        assert rule.test is None


def test_messages_of_another_publisher_widen_one_side() -> None:
    certain = tallies([came(98_000, 2_000)])
    foreign = (End("shop.*", "v2.$1"), End("", "another publisher"))
    found = one(audit([CANARY], [*certain, Tally(None, START, foreign, 3_000)]))
    alone = one(audit([CANARY], certain))
    assert found.destinations[0].low == alone.destinations[0].low
    assert found.destinations[0].high > 4.8
    assert found.verdict is Verdict.UNDECIDED


def test_hidden_ends_leave_shares_of_the_rest() -> None:
    mapping = Mapping("a", [Destination("b", 30), Destination("c", 10)])
    hidden = frozenset({End("a", "a"), End("a", "")})
    counts = tallies([{"b": 75_000, "c": 25_000}], source="a")
    rule = one(audit([mapping], counts, hidden=hidden))
    assert [(e.destination, e.weight, e.expected) for e in rule.destinations] == [
        ("c", 10, 25),
        ("b", 30, 75),
    ]
    assert rule.verdict is Verdict.WITHIN


@pytest.mark.parametrize("by_hour", [True, False])
def test_a_hidden_end_is_inferred_from_what_was_published(by_hour: bool) -> None:
    mapping = Mapping("a", [Destination("b", 30), Destination("a", 10)])
    hidden = frozenset({End("a", "")})
    counts = tallies([{"b": 15_000, "a": 5_000}] * 2, source="a")
    hours = {hour(0): 50_000, hour(1): 50_000}
    published = {(0, "a", None): hours if by_hour else 100_000}
    rule = one(audit([mapping], counts, hidden=hidden, published=published))
    lost = rule.destinations[-1]
    assert (lost.end, lost.inferred, lost.count, lost.weight) == ("lost", True, 60_000, 60)
    assert rule.verdict is Verdict.WITHIN
    assert rule.messages == 100_000


def test_one_visible_destination_alone_decides_nothing() -> None:
    counts = tallies([{"v2.$1": 50_000}])
    hidden = frozenset({End("shop.*", "v1.$1")})
    rule = one(audit([CANARY], counts, hidden=hidden))
    assert rule.verdict is Verdict.UNDECIDED
    assert "only one destination" in rule.reason
    rule = one(audit([CANARY], counts, hidden=hidden, published={(0, "shop.*", None): 50_000 * 50}))
    assert rule.verdict is Verdict.WITHIN


def test_a_destination_of_another_cluster_has_weight_nothing() -> None:
    mapping = Mapping("a", [Destination("b", 100), Destination("c", 100, "east")])
    counts = tallies([{"b": 9_000, "c": 1_000}], "west", source="a")
    rule = one(audit([mapping], counts))
    assert [(e.destination, e.end, e.weight) for e in rule.destinations] == [
        ("b", "destination", 100),
        ("c", "unlisted", 0),
    ]
    assert rule.verdict is Verdict.OUTSIDE


# ---- How often a verdict is wrong


MAPPINGS = [
    CANARY,
    Mapping("t.*", [Destination("u.$1", 30), Destination("w.$1", 10)]),
    Mapping("e.*", [Destination("f.$1", 50), Destination("g.$1", 5, "east")]),
]
SPLITS = {
    ("shop.*", "east"): {"v2.$1": 0.02, "v1.$1": 0.98},
    ("shop.*", "west"): {"v2.$1": 0.02, "v1.$1": 0.98},
    ("t.*", "east"): {"w.$1": 0.1, "u.$1": 0.3, "t.*": 0.6},
    ("e.*", "east"): {"g.$1": 0.05, "e.*": 0.95},
}
RUNS = 250


def simulated(rng: np.random.Generator, sizes: dict[tuple[str, str], int]) -> Iterator[Tally]:
    for (source, cluster), shares in SPLITS.items():
        for at in (hour(0), hour(9), hour(18)):
            counts = rng.multinomial(sizes[source, cluster] // 3, list(shares.values()))
            for destination, count in zip(shares, counts.tolist(), strict=True):
                yield Tally(cluster, at, (End(source, destination),), count)


@pytest.mark.parametrize("off", [2.0, -2.0], ids=["above", "below"])
def test_the_stated_number_of_messages_finds_a_split_that_is_off(off: float) -> None:
    """Power at the sample size that the audit itself asked for, off by twice the tolerance."""
    rng = np.random.default_rng(7)
    few = list(simulated(rng, dict.fromkeys(SPLITS, 300)))
    asked: dict[tuple[str, str], int] = {}
    for rule in audit(MAPPINGS, few).rules:
        needed = [end.messages_to_decide for end in rule.destinations]
        asked[rule.source, rule.cluster] = max(n for n in needed if n is not None)
    found = right = 0
    for _ in range(RUNS):
        counts = list(simulated(rng, {scope: n + 3 for scope, n in asked.items()}))
        # One rule off by twice the tolerance of 1 point, all others right.
        source, cluster, ends = "t.*", "east", SPLITS["t.*", "east"]
        shares = [ends["w.$1"] + off / 100, ends["u.$1"], ends["t.*"] - off / 100]
        counts = [tally for tally in counts if tally.ends[0].source != source]
        drawn = rng.multinomial(asked[source, cluster], shares).tolist()
        counts += tallies([dict(zip(ends, drawn, strict=True))], cluster, source=source)
        verdicts = {(r.source, r.cluster): r.verdict for r in audit(MAPPINGS, counts).rules}
        found += verdicts.pop((source, cluster)) is Verdict.OUTSIDE
        right += all(verdict is Verdict.WITHIN for verdict in verdicts.values())
    assert found / RUNS >= 0.95
    assert right / RUNS >= 0.95**3 - 0.02  # three rules, each with a power of 0.95
