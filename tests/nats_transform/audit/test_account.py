"""The account of an audit: that it adds up, and that no share is within what it leaves open."""

from __future__ import annotations

from collections.abc import Mapping as AnyMapping

import pytest

from nats_transform import Destination, Mapping
from nats_transform.audit import (
    Account,
    Assessment,
    Criteria,
    Doubled,
    End,
    Hours,
    Tally,
    Verdict,
    assess,
)
from tests.nats_transform.audit.counts import SCOPE, START, came, canary, hour, in_force, tallies

HALVES, TENTH, CANARY = canary(50, 50), canary(90, 10), canary(99, 1)
MISSING = "of 100,000 published messages are missing"
DIRECT = "of 100,000 stored messages were not published to the mapping"
KEPT = "of 100,000 messages kept the mapping's source"


def audit(
    mapping: Mapping,
    hours: list[dict[str, int]],
    published: Hours | None = None,
    doubled: Doubled | None = None,
    criteria: Criteria | None = None,
) -> Assessment:
    """The verdict on the stored messages of each hour, by destination."""
    return assess(
        in_force(mapping),
        tallies(hours),
        criteria or Criteria(),
        published=None if published is None else {SCOPE: published},
        doubled=None if doubled is None else {SCOPE: doubled},
    )


def check(account: Account) -> None:
    """The account adds up, or says that it is not known what was published."""
    stored = account.attributed + account.ambiguous + (account.unmapped or 0)
    if account.published is None:
        assert account.missing is account.unpublished is None
        return
    assert account.missing is not None
    assert account.unpublished is not None
    assert min(account.missing, account.unpublished) >= 0
    assert account.published + account.unpublished == (
        stored + account.inferred + (account.doubled or 0) + account.missing
    )


@pytest.mark.parametrize("sequential", [False, True])
@pytest.mark.parametrize(
    ("mapping", "stored", "published", "verdict", "cause"),
    [
        (HALVES, came(50_000, 50_000), None, Verdict.WITHIN, ""),
        (HALVES, came(50_000, 50_000), 100_000, Verdict.WITHIN, ""),
        (HALVES, came(49_960, 49_980), 100_000, Verdict.WITHIN, ""),
        (HALVES, came(50_000, 5_460), 100_000, Verdict.OUTSIDE, f"44,540 {MISSING}"),
        # What is left of halves looks like 90 and 10 %.
        (TENTH, came(50_000, 5_460), 100_000, Verdict.OUTSIDE, f"44,540 {MISSING}"),
        (HALVES, came(49_900, 49_100), 100_000, Verdict.UNDECIDED, f"1,000 {MISSING}"),
        # What is missing may all be the canary's: the tolerance of a small weight is small.
        (CANARY, came(99_000, 100), 100_000, Verdict.OUTSIDE, f"900 {MISSING}"),
        (HALVES, {}, 100_000, Verdict.OUTSIDE, "100,000 of 100,000 published messages"),
        # Others publish to v1: 50 % look like 10 %.
        (TENTH, came(90_000, 10_000), 20_000, Verdict.OUTSIDE, f"80,000 {DIRECT}"),
        (HALVES, came(*[25_000] * 2, unmapped=50_000), None, Verdict.OUTSIDE, f"50,000 {KEPT}"),
        (HALVES, came(unmapped=50_000), None, Verdict.OUTSIDE, "50,000 of 50,000 messages kept"),
        (HALVES, came(50_000, 50_000, unmapped=100), None, Verdict.WITHIN, ""),
    ],
)
def test_verdicts(
    mapping: Mapping,
    stored: dict[str, int],
    published: int | None,
    verdict: Verdict,
    cause: str,
    sequential: bool,
) -> None:
    criteria = Criteria(sequential=sequential)
    for sent in (published, published and {START: published}):
        found = audit(mapping, [stored] if stored else [], sent, criteria=criteria)
        (rule,) = found.rules
        assert found.verdict is rule.verdict is verdict
        assert (rule.cause or "").startswith(cause)
        assert bool(rule.cause) == bool(cause)
        assert not cause or rule.reason == rule.cause
        (account,) = found.accounts
        check(account)
        assert (account.published, account.doubled) == (published, None)


def test_messages_stored_in_the_next_hour_are_not_missing() -> None:
    hours = [came(49_500, 49_500), came(50_500, 50_500), came(50_000, 50_000)]
    found = audit(HALVES, hours, {hour(n): 100_000 for n in range(3)})
    assert found.verdict is Verdict.WITHIN
    (account,) = found.accounts
    assert (account.missing, account.unpublished) == (0, 0)
    # But the direct messages of the evening do not stand in for those lost in the morning.
    hours = [came(45_000, 45_000), *[came(50_000, 50_000)] * 3, came(60_000, 50_000)]
    found = audit(HALVES, hours, {hour(n): 100_000 for n in range(5)})
    assert found.verdict is Verdict.OUTSIDE
    (account,) = found.accounts
    assert (account.missing, account.unpublished) == (10_000, 10_000)


def test_a_loss_of_one_hour_is_found_in_that_hour() -> None:
    hours = [*[came(50_000, 50_000)] * 100, came(50_000, 0)]
    published = {hour(n): 100_000 for n in range(101)}
    (rule,) = audit(HALVES, hours, published, criteria=Criteria(by="hour")).rules
    assert rule.verdict is Verdict.OUTSIDE
    assert [n for n, part in enumerate(rule.buckets) if part.verdict is Verdict.OUTSIDE] == [100]
    assert "50,000 of 100,000 published messages are missing" in rule.reason


def test_one_number_for_all_hours_leaves_open_which_hour_misses_messages() -> None:
    halves = came(50_000, 50_000)
    hours = [halves, came(47_000, 47_000)]
    (rule,) = audit(HALVES, hours, 200_000, criteria=Criteria(by="hour")).rules
    assert rule.verdict is Verdict.OUTSIDE
    assert {part.verdict for part in rule.buckets} == {Verdict.UNDECIDED}
    # An hour that is off by more than is missing is outside all the same.
    hours = [halves, came(80_000, 20_000)]
    (rule,) = audit(HALVES, hours, 200_100, criteria=Criteria(by="hour")).rules
    assert [part.verdict for part in rule.buckets] == [Verdict.WITHIN, Verdict.OUTSIDE]


@pytest.mark.parametrize(
    ("published", "doubled", "expected"),
    [
        # published, doubled, missing, unpublished
        (100_000, Doubled(10_000), (100_000, 10_000, 0, 10_000)),
        (110_000, Doubled(10_000), (110_000, 10_000, 0, 0)),
        (105_000, Doubled(10_000), (105_000, 10_000, 0, 5_000)),
        (130_000, Doubled(10_000), (130_000, 10_000, 20_000, 0)),
        ({START: 100_000}, Doubled(10_000, 0), (100_000, 10_000, 0, 10_000)),
        ({START: 100_000}, Doubled(10_000, 10_000), (110_000, 10_000, 0, 0)),
        ({START: 100_000}, Doubled(10_000, 15_000), (110_000, 10_000, 0, 0)),
        ({START: 100_500}, Doubled(10_000, 0), (100_500, 10_000, 500, 10_000)),
        ({START: 99_000}, Doubled(10_000, 10_000), (109_000, 10_000, 0, 1_000)),
    ],
)
def test_what_is_doubled(
    published: Hours, doubled: Doubled, expected: tuple[int | None, ...]
) -> None:
    (account,) = audit(HALVES, [came(50_000, 50_000)], published, doubled).accounts
    check(account)
    found = (account.published, account.doubled, account.missing, account.unpublished)
    assert found == expected


def test_a_cluster_whose_messages_are_all_missing_is_no_cluster_without_messages() -> None:
    counts = tallies([came(50_000, 50_000)], "east")
    published: AnyMapping = {(0, "shop.*", name): {START: 100_000} for name in ("east", "west")}
    found = assess(in_force(HALVES), counts, Criteria(), published=published)
    assert [(rule.cluster, rule.verdict) for rule in found.rules] == [
        ("east", Verdict.WITHIN),
        ("west", Verdict.OUTSIDE),
    ]


def test_declared_publishers_do_not_stand_in_for_what_is_missing() -> None:
    ends = (End("shop.*", "v1.$1"), End("", "another publisher"))
    for canaries, verdict in ((2_000, Verdict.UNDECIDED), (10_000, Verdict.OUTSIDE)):
        counts = [Tally(None, START, ends, 90_000), *tallies([{"v2.$1": canaries}])]
        published: AnyMapping = {SCOPE: {START: 20_000}}
        found = assess(in_force(TENTH), counts, Criteria(), published=published)
        assert found.verdict is verdict
        check(found.accounts[0])


def test_one_visible_destination_shows_that_the_mapping_was_not_in_force() -> None:
    hidden = frozenset({End("shop.*", "v1.$1")})
    for unmapped, verdict in ((90_000, Verdict.OUTSIDE), (500, Verdict.UNDECIDED)):
        counts = tallies([{"v2.$1": 1_000, "shop.*": unmapped}])
        found = assess(in_force(CANARY), counts, Criteria(), hidden=hidden)
        assert found.verdict is verdict
        why = "hadn't loaded it" if verdict is Verdict.OUTSIDE else "only one destination"
        assert why in found.rules[0].reason


EAST = Mapping("shop.*", [Destination("v1.$1", 100, "east"), Destination("v2.$1", 100)])


@pytest.mark.parametrize("by_hour", [False, True])
def test_what_nobody_could_see_is_not_within(by_hour: bool) -> None:
    """All that was published is taken for the one destination, which the archive does not hold."""
    hidden = frozenset({End("shop.*", "v1.$1")})
    published: AnyMapping = {(0, "shop.*", "east"): {START: 50_000} if by_hour else 50_000}
    found = assess(in_force(EAST), [], Criteria(), hidden=hidden, published=published)
    (rule,) = found.rules
    assert (rule.verdict, found.accounts[0].inferred) == (Verdict.UNDECIDED, 50_000)
    assert "can't hold the messages of any destination" in rule.reason


def test_one_visible_destination_shows_that_the_weights_are_of_another_cluster() -> None:
    west = [Destination("w1.$1", 50, "west"), Destination("w2.$1", 50, "west")]
    mapping = Mapping("shop.*", [*CANARY.destinations, *west])
    hidden = frozenset({End("shop.*", "v1.$1"), End("shop.*", "w1.$1")})
    for strange, verdict in ((90_000, Verdict.OUTSIDE), (500, Verdict.UNDECIDED)):
        counts = tallies([{"v2.$1": 1_000, "w2.$1": strange}], "east")
        found = assess(in_force(mapping), counts, Criteria(), hidden=hidden)
        assert found.verdict is verdict
        assert ("only one dest" in found.rules[0].reason) is (verdict is Verdict.UNDECIDED)
