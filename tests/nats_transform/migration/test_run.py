"""Planted faults, each found with exact counts and nothing else reported."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from jobs.jetstream.process import nats_server
from nats_transform import AccountMappings, Destination, InvalidConfig
from nats_transform.accounts.sharing import SharedStream, SharedSubject, Shares
from nats_transform.config import parse_server_config
from nats_transform.config.permissions import User, users_of
from nats_transform.migration import CODES, FROM_CHECK, DryRun
from nats_transform.migration.analyses import collisions
from nats_transform.migration.count import messages
from nats_transform.streams.consumer import Consumer
from nats_transform.streams.stream import parse_stream
from tests.cases import account as account_of
from tests.cases import load
from tests.conformance.client import Client
from tests.conformance.test_permissions import takes
from tests.nats_transform.migration.mistakes import fnv
from tests.nats_transform.plan.situations import SITUATIONS
from tests.support.dry_runs import CensusRow, dry_run
from tests.support.files import written
from tests.support.refused import refused
from tests.support.rules import mappings as account


def rows(counts: dict[str | None, int], cluster: str | None = None) -> list[CensusRow]:
    return [CensusRow(subject, cluster, count, 10 * count) for subject, count in counts.items()]


ORDERS = {"orders.eu": 5, "orders.us": 3}
MOVE = {"orders.*": "shop.orders.$1"}
KEYS = range(1, 41)
PAIRS = [(a, b) for a in range(8) for b in range(8)]
MOVING = sum(fnv(n) % 3 != fnv(n) % 4 for n in KEYS)
MOVING_PAIRS = sum(fnv(a) % 2 != fnv(b) % 2 for a, b in PAIRS)
WITH_SEVEN = sum(fnv(n) % 3 == fnv(7) % 3 for n in KEYS)
BY_THREE = {"k.*": "p.{{partition(3,1)}}.$1"}

SCENARIOS: list[dict[str, Any]] = [
    *load("dry_run.yaml"),
    {
        "id": "partition-moves",
        "census": {f"k.{n}": 1 for n in KEYS},
        "mappings": {"k.*": "p.{{partition(4,1)}}.$1"},
        "current": BY_THREE,
        "finds": [["partition-moves", MOVING, MOVING]],
    },
    {
        "id": "partition-moves-by-key",
        "census": {f"k.{a}.{b}": 1 for a, b in PAIRS},
        "mappings": {"k.*.*": "p.{{partition(2,2)}}.$1.$2"},
        "current": {"k.*.*": "p.{{partition(2,1)}}.$1.$2"},
        "finds": [["partition-moves", MOVING_PAIRS, MOVING_PAIRS]],
    },
    {
        "id": "partition-imbalance",
        "census": {f"k.{n}": 1 + 200 * (n == 7) for n in KEYS},
        "mappings": BY_THREE,
        "finds": [["partition-imbalance", 200 + WITH_SEVEN, 0]],
    },
    {
        "id": "partition-empty",
        "census": {f"k.{next(n for n in range(99) if fnv(n) % 3 == p)}": 5 for p in (0, 2)},
        "mappings": BY_THREE,
        "finds": [["partition-empty", 0, 0]],
    },
    {
        "id": "too-long",
        "census": {f"a.{'b' * 150}": 5, "a.b": 3},
        "mappings": {"a.*": "n.$1.$1"},
        "finds": [["too-long", 5, 1]],
    },
]


def census_of(scenario: dict[str, Any]) -> list[CensusRow]:
    census = scenario.get("census", ORDERS)
    if isinstance(census, dict):
        return rows(census)
    return [CensusRow(**{"cluster": None, **row}) for row in census]


def run(scenario: dict[str, Any], tmp_path: Path) -> DryRun:
    users: Sequence[User] = ()
    if "permissions" in scenario:
        text = json.dumps({"authorization": {"users": [user_of(scenario)]}})
        users = users_of(parse_server_config(written(tmp_path / "server.conf", text)))
    current, other = (scenario.get(name) for name in ("current", "leaf_node"))
    return dry_run(
        census_of(scenario),
        account_of(scenario.get("mappings", MOVE)),
        None if current is None else account_of(current),
        streams=[parse_stream(one) for one in scenario.get("streams", ())],
        consumers=[
            Consumer(*name.split("."), tuple(filters))
            for name, filters in scenario.get("consumers", {}).items()
        ],
        users=users,
        clusters=scenario.get("clusters", ()),
        shared=[SharedStream(*one) for one in scenario.get("shared", ())],
        names=["A"],
        shares={"A": Shares((), tuple(SharedSubject(*one) for one in scenario.get("imports", ())))},
        stream=scenario.get("stream", ""),
        named=scenario.get("named"),
        leaf_node=None if other is None else account_of(other),
    )


def user_of(scenario: dict[str, Any], **more: str) -> dict[str, Any]:
    return {"user": "u", **more, "permissions": scenario["permissions"]}


def denied(config: str, verb: str, subjects: Sequence[str]) -> set[str]:
    """The subjects that a real server does not let a user publish or subscribe to."""
    found = set()
    with nats_server(config) as server:
        for subject in subjects:
            with Client(server.url, "u") as client:
                (client.publish if verb == "publish" else client.subscribe)(subject)
                found |= set() if takes(client) else {subject}
    return found


@pytest.mark.server
@pytest.mark.parametrize(
    "code", ["publish-denied", "publish-opened", "subscribe-denied", "subscribe-opened"]
)
def test_a_real_server_denies_what_was_foretold(code: str) -> None:
    (scenario,) = (one for one in SCENARIOS if one["id"] == code)
    assert scenario.keys() == {"id", "permissions", "finds"}
    verb, change = code.split("-")
    config = json.dumps({"authorization": {"users": [user_of(scenario, password="secret")]}})  # noqa: S106
    before = denied(config, verb, [*ORDERS])
    if verb == "publish":
        config = f"{config[:-1]}, {json.dumps({'mappings': MOVE})[1:]}"
    prefix = "" if verb == "publish" else "shop."
    now = denied(config, verb, [prefix + one for one in ORDERS])
    after = {one.removeprefix("shop.") for one in now}
    found = after - before if change == "denied" else before - after
    assert [[code, sum(ORDERS[one] for one in found), len(found)]] == scenario["finds"]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario["id"])
def test_scenario(scenario: dict[str, Any], tmp_path: Path) -> None:
    found = run(scenario, tmp_path)
    told = [[f.code, f.messages, f.subjects] for f in found.findings]
    assert sorted(told) == sorted(scenario.get("finds", []))
    census = census_of(scenario)
    total = sum(row.messages for row in census)
    assert found.messages == total
    assert found.subjects == len({row.subject for row in census})
    for finding in found.findings:
        assert finding.share == pytest.approx(100 * finding.messages / total)
        assert bool(finding.examples) == bool(finding.subjects)
        sizes = [example.messages for example in finding.examples]
        if not finding.code.startswith(("collision", "limit")):
            assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize(
    ("there", "counts"),
    [
        # 80 of 100 messages go as shop.eu; the rest of orders.eu and shop.us keep their subjects.
        ({"shop.*": "store.$1"}, [80]),
        ({"orders.*": [Destination("store.$1", 50), Destination("orders.$1", 50)]}, [80, 10]),
        ({"x": "orders.eu"}, [80]),
        ({"shop.*": "orders.$1"}, [80, 80]),
    ],
)
def test_weights_on_both_sides_of_a_leaf_node(
    there: dict[str, Any], counts: Sequence[float]
) -> None:
    census = [*rows({"orders.eu": 60, "shop.us": 3}, "east"), *rows({"orders.eu": 40}, "west")]
    here = account({"orders.*": [Destination("shop.$1", 80), Destination("orders.$1", 20)]})
    found = dry_run(census, here, leaf_node=account(there)).findings
    assert [f.messages for f in found if f.code == "mapped-twice"] == counts
    # What both sides map today is no news.
    assert not any(
        f.code == "mapped-twice" for f in dry_run(census, here, here, leaf_node=here).findings
    )


def test_every_code_is_planted() -> None:
    planted = {code for scenario in SCENARIOS for code, _, _ in scenario.get("finds", ())}
    planted |= {one.refused[0] for one in SITUATIONS if one.refused is not None}
    assert planted >= set(CODES)
    assert planted <= CODES.keys() | FROM_CHECK.keys()


def test_a_change_shows_its_largest_subjects() -> None:
    new, old = account({"a.*": "n.$1"}), account({"a.*": "o.$1"})
    found = dry_run(rows({"a.1": 5, "a.2": 7}), new, old)
    (change,) = found.changes
    examples = [(e.subject, e.before, e.after) for e in change.examples]
    assert examples == [("a.2", "o.2", "n.2"), ("a.1", "o.1", "n.1")]
    assert found.bytes == 120


def test_a_weight_that_changes_moves_the_difference() -> None:
    found = dry_run(
        rows({"a.1": 1000}),
        account({"a.*": [("v1.$1", 90), ("v2.$1", 10)]}),
        account({"a.*": [("v1.$1", 98), ("v2.$1", 2)]}),
    )
    assert [(c.after, c.messages) for c in found.changes] == [("a.* -> v2.$1", 80)]
    assert found.findings == ()


def test_clusters_have_their_own_destinations() -> None:
    candidate = account({"a.*": [("east.$1", 100, "east"), ("west.$1", 100, "west")]})
    found = dry_run([*rows({"a.1": 5}, "east"), *rows({"a.1": 2}, "west")], candidate)
    assert found.fates_after == {"mapped": 7}
    assert {(f.after, f.messages) for f in found.flows} == {("east.1", 5), ("west.1", 2)}
    assert found.clusters == ("east", "west")
    assert found.subjects == 1


def test_partition_balance() -> None:
    counts = {n: n for n in range(1, 31)}
    found = dry_run(
        rows({f"k.{n}": count for n, count in counts.items()}),
        account({"k.*": "p.{{partition(5,1)}}.$1"}),
    )
    (balance,) = found.partitions
    by_partition = [sum(c for n, c in counts.items() if fnv(n) % 5 == p) for p in range(5)]
    assert list(balance.counts) == by_partition
    assert balance.keys == 30
    assert balance.busiest == pytest.approx(max(by_partition) * 5 / sum(by_partition))
    assert balance.largest[:2] == (("30", fnv(30) % 5, 30), ("29", fnv(29) % 5, 29))
    for count, busiest in balance.nearby:
        sums = [sum(c for n, c in counts.items() if fnv(n) % count == p) for p in range(count)]
        assert busiest == pytest.approx(max(sums) * count / sum(sums))
    assert [count for count, _ in balance.nearby] == [2, 3, 4, 6, 7, 8]


def test_partitions_without_messages_have_no_balance() -> None:
    assert dry_run(rows({"k.1": 0}), account(BY_THREE)).partitions == ()


def test_levels_count_distinct_tokens() -> None:
    found = dry_run(
        rows({"a.1": 1, "a.2": 1, "b.1": 1}), account({"a.*": "n.a.$1", "b.*": "n.b.$1"})
    )
    assert [(one.before, one.after) for one in found.levels] == [(2, 1), (2, 2), (0, 2)]


def test_five_thousand_rules_find_what_one_by_one_finds() -> None:
    rules = {f"a{n}.*": f"n.a{n}.$1" for n in range(5000)}
    found = dry_run(rows({f"a{n}.x": n + 1 for n in range(5000)}), account(rules))
    assert found.findings == ()
    assert found.fates_after == {"mapped": 5000 * 5001 // 2}


CUT = "telemetry.{{splitfromleft(1,3)}}.$2.$3"
SENSORS = {"telemetry.ab1234.x.y": 3, "telemetry.ab1.x.y": 2, "telemetry.ab1234.z.y": 1}


def test_a_token_that_is_cut_comes_back_where_it_also_stands_whole() -> None:
    """What the cure of `irreversible` says, tried."""
    cut = dry_run(rows(SENSORS), account({"telemetry.*.*.*": CUT}))
    (finding,) = [one for one in cut.findings if one.code == "irreversible"]
    assert "only pieces of wildcard 1 of telemetry.*.*.*" in finding.message
    assert "{{wildcard(n)}} even beside the pieces" in finding.cure
    whole = account({"telemetry.*.*.*": CUT.replace("telemetry", "t.$1")})
    cured = dry_run(rows(SENSORS), whole)
    assert cured.is_reversible
    back = AccountMappings(cured.reverse)
    for subject in SENSORS:
        assert back.apply(whole.apply(subject).subject or "").subject == subject


PERMISSIONS = """
authorization {
  default_permissions: {publish: "orders.>"}
  users: [
    {user: a}
    {user: b, permissions: {publish: {allow: ["x.*", "y"], deny: "x.no"}, subscribe: "s.> q"}}
    {nkey: N, permissions: {allow_responses: true}}
    {user: c, permissions: {subscribe: {deny: "s.>"}}}
  ]
}
accounts { ACME { users: [{user: d, permissions: {publish: "d.>"}}, {user: e}] }, B {} }
"""


def test_users_and_what_they_may(tmp_path: Path) -> None:
    path = tmp_path / "server.conf"
    tree = parse_server_config(written(path, PERMISSIONS))
    a, b, n, c = users_of(tree)
    assert [user.name for user in (a, b, n, c)] == ["a", "b", "N", "c"]
    for side, subjects, allowed in (
        (a.publish, ("orders.1", "x.1"), ["orders.1"]),
        (a.subscribe, ("anything",), ["anything"]),
        (b.publish, ("x.1", "x.no", "y", "z"), ["x.1", "y"]),
        (b.subscribe, ("s.1",), []),
        (n.publish, ("anything",), []),
        (c.subscribe, ("s.1", "t"), ["t"]),
    ):
        assert [subject for subject in subjects if side.allows(subject)] == allowed
    assert [user.name for user in users_of(tree, "ACME")] == ["d"]
    with refused(InvalidConfig, "no-account-of-permissions", account="NONE"):
        users_of(tree, "NONE")
    with refused(InvalidConfig, "account-without-permissions", others="'$G', 'ACME'"):
        users_of(tree, "B")
    assert users_of(parse_server_config(written(path, "accounts { B {} }"))) == []


@pytest.mark.parametrize(
    ("permissions", "code"),
    [
        ("{publish: 7}", "permission-not-text"),
        ("{publish: 'a..b'}", "permission-not-a-subject"),
        ("{publish: 'a q'}", "permission-not-a-subject"),
        ("7", "not-a-section"),
    ],
)
def test_bad_permissions(permissions: str, code: str, tmp_path: Path) -> None:
    text = f"authorization {{ users: [{{user: u, permissions: {permissions}}}] }}"
    with refused(InvalidConfig, code) as caught:
        users_of(parse_server_config(written(tmp_path / "server.conf", text)))
    assert caught.value.line == 1


def test_each_mapping_that_merges_subjects_has_its_own_finding() -> None:
    census = rows(
        {"o.eu.1": 5, "o.us.1": 3, "a.x.1": 4, "a.y.1": 2, "p.1": 1, "q.1": 1, "s": 1, "z": 3}
    )
    census += rows({"o.eu.1": 1}, "east")
    candidate = account(
        {"a.*.*": "all.$2", "o.*.*": "shop.$2", "p.*": "n.$1", "q.*": "n.$1", "s": "z"}
    )
    found = dry_run(census, candidate).findings
    merged = [f for f in found if f.code == "collision"]
    told, cause = "2 subjects become 1", "because the new subject leaves out wildcard 1 of"
    assert [(f.about, f.messages, f.message) for f in merged] == [
        ("mapping o.*.*", 9, f"{told}, {cause} o.*.*"),
        ("mapping a.*.*", 6, f"{told}, {cause} a.*.*"),
        ("mapping s and subjects without a mapping", 4, told),
        ("mapping p.* and mapping q.*", 2, told),
    ]
    assert [{e.subject for e in f.examples} for f in merged] == [
        {"o.eu.1", "o.us.1"}, {"a.x.1", "a.y.1"}, {"s", "z"}, {"p.1", "q.1"}
    ]  # fmt: skip


def test_mappings_that_are_too_many_share_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collisions, "MOST_MAPPINGS", 2)
    counts = {f"{name}.{n}": size for size, name in enumerate("abcd", 1) for n in (1, 2)}
    candidate = account({f"{name}.*": f"all.{name}" for name in "abcd"})
    merged = [f for f in dry_run(rows(dict(counts)), candidate).findings if f.code == "collision"]
    assert sorted((f.about, f.messages, f.subjects) for f in merged) == [
        ("mapping c.*", 6, 2), ("mapping d.*", 8, 2), ("other mappings", 6, 4)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("count", "told"),
    [
        (0, "0 messages"),
        (1, "fewer than 1 message"),
        (99, "fewer than 1 message"),
        (100, "1 message"),
        (101, "about 1 message"),
        (36_069_298, "about 360,700 messages"),
        (1234, "about 12 messages"),
        (123_450, "about 1,234 messages"),
        (99_999_900, "999,999 messages"),
    ],
)
def test_messages_in_words(count: int, told: str) -> None:
    assert messages(count) == told


def test_a_consumer_without_a_filter_of_a_stream_without_messages() -> None:
    streams = [
        parse_stream({"name": "S", "subjects": ["orders.*"]}),
        parse_stream({"name": "T", "sources": [{"name": "S", "filter_subject": "order.*"}]}),
    ]
    run = dry_run(
        [CensusRow("orders.eu", None, 1)],
        account({"a": "b"}),
        streams=streams,
        consumers=[Consumer("T", "all")],
        stream="S",
    )
    (message,) = (one.message for one in run.findings if one.code == "consumer-never")
    assert message == "the stream gets no message, today or after the switch"


def test_subjects_that_reach_nobody_today_may_become_one() -> None:
    lost = account({source: [(source, 0)] for source in ("a", "b")})
    found = dry_run(rows({"a": 2, "b": 3}), account({"a": "c", "b": "c"}), lost)
    assert [(one.code, one.messages) for one in found.findings if "collision" in one.code] == [
        ("collision", 5)
    ]
