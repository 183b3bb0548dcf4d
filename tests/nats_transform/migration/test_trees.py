"""The tree of the namespace before and after: exact sums, the largest first, bounded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from nats_transform import AccountMappings
from nats_transform.migration.analyses import changes, trees
from nats_transform.migration.result import OTHER, Branch
from nats_transform.streams.stream import parse_stream
from tests.support.dry_runs import CensusRow, dry_run
from tests.support.rules import mappings

CANDIDATE = mappings(
    {
        "orders.*.*": "shop.$1",
        "moves.*": [("far.$1", 75), ("orders.new.$1", 25)],
        "half": [("half", 20), ("full", 30)],
    }
)
CENSUS = [
    *(CensusRow(f"orders.{region}.{n}", None, 10 + n) for region in ("eu", "us") for n in range(7)),
    CensusRow("moves.a", "east", 4),
    CensusRow("moves.a", "west", 4),
    CensusRow("half", None, 10),
    CensusRow("caf\u00e9.\udcff.a\\x41", None, 2),
    CensusRow("alone", None, 1),
]
STREAMS = [parse_stream({"name": "ALL", "subjects": ["orders.>", "shop.*", "moves.*", "half"]})]


def flat(branch: Branch, path: str = "") -> Iterator[tuple[str, Branch]]:
    for part in branch.branches:
        name = f"{path}.{part.token}" if path else part.token
        yield name, part
        yield from flat(part, name)


def test_each_branch_has_its_messages_and_what_is_at_stake() -> None:
    before, after = dry_run(CENSUS, CANDIDATE, streams=STREAMS).trees
    found = {name: (b.messages, b.lost, b.uncaptured, b.merged) for name, b in flat(before)}
    assert next(iter(found)) == "orders"
    assert (before.messages, before.lost, after.lost) == (203, 5, 0)
    assert found["orders"] == (182, 0, 0, 182)
    assert found["orders.eu"] == (91, 0, 0, 91)
    assert found["orders.eu.6"] == (16, 0, 0, 16)
    assert found["moves.a"] == (8, 0, 6, 0)
    assert found["half"] == (10, 5, 3, 0)
    assert found["caf\u00e9.\udcff.a\\x41"] == (2, 0, 0, 0)
    assert found["alone"] == (1, 0, 0, 0)
    eu = dict(flat(before))["orders.eu"]
    assert [part.token for part in eu.branches] == ["6", "5", "4", "3"]
    assert eu.left_out == 3
    found = {name: (b.messages, b.lost, b.uncaptured, b.merged) for name, b in flat(after)}
    assert found["shop.eu"] == (91, 0, 0, 91)
    assert found["far"] == (6, 0, 6, 0)
    assert found["orders.new.a"] == (2, 0, 0, 0)
    assert found["half"] == (2, 0, 0, 0)


def test_branches_add_up_when_weights_decide_today() -> None:
    current = mappings({"moves.*": [("a.$1", 50), ("b", 50)]})
    found = dry_run(CENSUS, CANDIDATE, current, streams=STREAMS)
    sums: Counter[str] = Counter()
    for flow in found.flows:
        sums[(flow.before or "").split(".")[0]] += flow.messages
    assert {b.token: b.messages for b in found.trees[0].branches} == dict(sums)
    assert (sums["a"], sums["b"]) == (4, 4)


def test_the_smallest_flows_become_one(monkeypatch: pytest.MonkeyPatch) -> None:
    every = dry_run(CENSUS, CANDIDATE, streams=STREAMS).flows
    monkeypatch.setattr(changes, "MOST_FLOWS", 4)
    found = dry_run(CENSUS, CANDIDATE, streams=STREAMS).flows
    assert found[:2] == every[:2]
    (other,) = (flow for flow in found if flow.before == OTHER)
    rest = every[2:]
    assert other.messages == sum(flow.messages for flow in rest)
    assert other.uncaptured == sum(flow.uncaptured for flow in rest) == 9
    assert len(found) == 3


def test_a_tree_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    census = [CensusRow(f"{n % 20}.{n % 7}.{n % 11}.{n}.x", None, 1 + n) for n in range(3000)]
    before, after = dry_run(census, AccountMappings([])).trees
    assert before == after
    assert max(name.count(".") for name, _ in flat(before)) == 3
    assert len(list(flat(before))) == 8 + 8 * 6 + 8 * 6 * 4 + 8 * 6 * 4 * 2
    assert before.left_out == 12
    monkeypatch.setattr(trees, "DEEP", 2999)
    before, _ = dry_run(census, AccountMappings([])).trees
    assert len(list(flat(before))) == 8 + 8 * 6


@pytest.mark.parametrize("subject", [None, ".."])
def test_a_tree_without_legal_subjects_is_empty(subject: str | None) -> None:
    empty = Branch("", 0, 0, 0, 0)
    assert dry_run([CensusRow(subject, None, 1)], CANDIDATE).trees == (empty, empty)
