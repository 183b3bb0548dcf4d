"""The order and the keys of archived messages, as the tests of chance see them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from jobs.audit.candidates import ByPattern, Candidate
from jobs.audit.draws import Measure, Measuring, joined
from jobs.audit.headline import headline
from jobs.audit.result import AuditResult
from jobs.pages.audit import render
from jobs.settings.warehouse import Warehouse
from nats_transform import AccountMappings, Destination, Mapping
from nats_transform.audit import End, Verdict, levels
from nats_transform.audit.chance import STRETCH
from nats_transform.kernel.counting import Coded
from nats_transform.mappings.shape import Shape
from tests.jobs.audit.rehearsal import observe
from tests.support.archive import message
from tests.support.rules import mappings as account

START = datetime(2026, 3, 1, tzinfo=UTC)
MESSAGES = 12_000
DESTINATIONS = [("v1.$2.$1", 90), ("shop.$2.v2.$1", 10)]
MAPPINGS = account({"shop.*.*": DESTINATIONS})
# The server takes each text once, so those of the second cluster are written in another way.
WEST = [("v1.$02.$01", 90, "w"), ("shop.$02.v2.$01", 10, "w")]
BY_CLUSTER = account({"shop.*.*": [*((*one, "e") for one in DESTINATIONS), *WEST]})
KEYS = np.random.default_rng(3).integers(0, 100, MESSAGES)
DRAWS = np.random.default_rng(4).random(MESSAGES)


def audited(
    folder: Path,
    is_canary: Callable[[int], bool],
    odd: str = "",
    mappings: AccountMappings = MAPPINGS,
) -> AuditResult:
    """The audit of messages of two clusters in turn; those of a stranger are between them."""
    rows = []
    for n in range(MESSAGES):
        subject = f"shop.{n % 7}.v2.c{KEYS[n]}" if is_canary(n) else f"v1.{n % 7}.c{KEYS[n]}"
        if odd and n == 7:
            subject = odd
        at = START + timedelta(seconds=n)
        rows.append(message(2 * n + 1, subject, at, stream="OUT", cluster=("e", "w")[n % 2]))
        rows.append(message(2 * n + 2, "other", at, stream="OUT"))
    return observe(Warehouse(dir=folder), mappings, rows)


@pytest.mark.parametrize("mappings", [MAPPINGS, BY_CLUSTER], ids=["all clusters", "each cluster"])
@pytest.mark.parametrize(
    ("is_canary", "verdict", "said"),
    [
        (lambda n: DRAWS[n] < 0.1, Verdict.WITHIN, "within the tolerance"),
        # In each cluster every tenth message.
        (lambda n: n % 20 < 2, Verdict.NOT_RANDOM, "shop.$2.v2.$1 follows itself too seldom"),
        (lambda n: KEYS[n] < 10, Verdict.NOT_RANDOM, "some keys have another split than others"),
    ],
    ids=["draws", "every tenth", "10 of 100 keys"],
)
def test_order_and_keys(
    tmp_path: Path,
    is_canary: Callable[[int], bool],
    verdict: Verdict,
    said: str,
    mappings: AccountMappings,
) -> None:
    result = audited(tmp_path, is_canary, mappings=mappings)
    assert result.verdict is verdict
    assert said in headline(result)
    assert result.fails("outside") is (verdict is Verdict.NOT_RANDOM)
    for rule in result.rules:
        assert {end.verdict for end in rule.destinations} == {Verdict.WITHIN}
        looked_at = {test.test: test.messages for test in rule.chance}
        whole = MESSAGES // 2 // STRETCH * STRETCH
        assert looked_at == {"runs": whole, "spacing": whole, "keys": MESSAGES // 2}
        assert len(rule.chance) == levels.tests_of(
            len(rule.destinations)
        )  # as many as share the error
    assert "Order and keys" in render(result)


def test_a_subject_that_the_kernel_takes_for_a_fault(tmp_path: Path) -> None:
    """A server stores a published `*` all the same; it has no key."""
    result = audited(tmp_path, lambda n: DRAWS[n] < 0.1, odd="v1.*.c1")
    assert result.verdict is Verdict.WITHIN
    keys = {test.messages for rule in result.rules for test in rule.chance if test.test == "keys"}
    assert keys == {MESSAGES // 2 - 1, MESSAGES // 2}


def test_a_dead_canary_that_no_cluster_shows_by_itself(tmp_path: Path) -> None:
    rows = [
        message(n, f"v1.{n % 7}.c", START, stream="OUT", cluster=f"c{n % 20}")
        for n in range(1, 1_001)
    ]
    result = observe(Warehouse(dir=tmp_path), MAPPINGS, rows)
    assert {rule.verdict for rule in result.rules} == {Verdict.UNDECIDED}
    assert result.verdict is Verdict.OUTSIDE
    assert result.fails("outside")
    assert "outside the tolerance: all clusters of shop.*.*" in headline(result)
    assert "shop.$2.v2.$1 got 0.00 % instead of 10 %" in headline(result)
    assert "none of the 20 clusters is outside the tolerance by itself" in render(result)


def test_what_others_publish_to_is_no_pattern(tmp_path: Path) -> None:
    """Of the messages with such a key, those of one destination only are certain."""
    rows = []
    for n in range(MESSAGES):
        key = "audit" if KEYS[n] < 25 else f"c{KEYS[n]}"
        subject = f"shop.1.v2.{key}" if DRAWS[n] < 0.1 else f"v1.1.{key}"
        rows.append(message(n + 1, subject, START + timedelta(seconds=n), stream="OUT"))
    result = observe(Warehouse(dir=tmp_path), MAPPINGS, rows, publishers=("v1.*.audit",))
    (rule,) = result.rules
    assert (rule.verdict, rule.chance) == (Verdict.WITHIN, ())
    assert any("shop.*.*, as to order and keys" in note for note in result.notes)


def test_destinations_of_many_clusters(tmp_path: Path) -> None:
    """More than a byte could number."""
    many = [(f"{c}{n}.$1", 1, c) for c in "abc" for n in range(100)]
    rows = [
        message(n, f"{c}{n // 3 % 100}.x", START, stream="OUT", cluster=c)
        for n in range(1, 3_001)
        for c in ["abc"[n % 3]]
    ]
    result = observe(Warehouse(dir=tmp_path), account({"s.*": many}), rows)
    assert [sum(end.count for end in rule.destinations) for rule in result.rules] == [1_000] * 3


def test_many_overlapping_patterns_take_the_room_of_what_is_there() -> None:
    rng = np.random.default_rng(1)
    layers = [Coded(rng.integers(0, 200, 5_000), [*map(str, range(199)), None]) for _ in range(8)]
    cells, fitting = joined(layers)
    for row in range(0, 5_000, 50):
        values = [layer.values[layer.numbers[row]] for layer in layers]
        assert fitting[cells[row]] == tuple(value for value in values if value is not None)
    assert len(fitting) <= 5_000


def test_a_sequential_audit_has_no_such_test(tmp_path: Path) -> None:
    """A p-value is right at one look only."""
    rows = [message(n, f"v1.1.c{n}", START, stream="OUT", cluster="e") for n in range(1, 600)]
    result = observe(Warehouse(dir=tmp_path), MAPPINGS, rows, tolerance=1, sequential=True)
    (rule,) = result.rules
    assert rule.chance == ()


def test_messages_of_several_batches_are_in_one_row() -> None:
    """And messages that two ends can have made, or that were stored before, are left out."""
    one, two = End("s", "a"), End("s", "b")
    ends = {(0, "s"): (one, two)}
    mapping = Mapping("s", [Destination("a", 50), Destination("b", 50)])
    made_by = [(one, "a"), (two, "b"), (one, "both"), (two, "both")]
    makers = [Candidate(0, mapping, end, Shape(text, text, True, {})) for end, text in made_by]
    measuring = Measuring(Measure(ends, ByPattern(makers), {(0, "s")}))
    patterns = ["a", "b", "both", "other", None]
    rng = np.random.default_rng(1)
    made, repeats = rng.integers(0, 5, 4_000), rng.integers(0, 2, 4_000)
    for rows in np.split(np.arange(4_000), [1, 7, 1_000]):
        measuring.add(
            0,
            Coded(np.zeros(len(rows), np.int64), ["east"]),
            [Coded(made[rows], patterns)],
            np.full(len(rows), 5, np.int16),
            Coded(repeats[rows], (False, True)),
        )
    (draws,) = measuring.draws.values()
    places = made[(made < 2) & (repeats == 0)]
    whole = places[: len(places) // STRETCH * STRETCH]
    assert draws.keys[5].tolist() == np.bincount(places).tolist()
    assert draws.stretches.sum(axis=1).tolist() == [len(whole) // STRETCH] * 2
    pairs = (whole[1:] == whole[:-1]) & (np.arange(1, len(whole)) % STRETCH > 0)
    assert draws.repeats.tolist() == [int((pairs & (whole[1:] == n)).sum()) for n in (0, 1)]
