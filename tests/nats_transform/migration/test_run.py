"""Planted faults, each found with exact counts and nothing else reported."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nats import connect

from jobs.jetstream.process import nats_server
from nats_transform import AccountMappings, Destination, InvalidConfig, Mapping
from nats_transform.accounts.sharing import SharedStream
from nats_transform.config import parse_server_config
from nats_transform.errors import InvalidStream
from nats_transform.migration import (
    CODES,
    FROM_CHECK,
    DryRun,
    users_of,
)
from nats_transform.migration.analyses import collisions
from nats_transform.migration.count import messages
from nats_transform.streams.consumer import parse_consumer
from nats_transform.streams.stream import StreamConfig, parse_stream
from tests.nats_transform.plan.situations import SITUATIONS
from tests.support.dry_runs import CensusRow, dry_run

Weighted = list[tuple[str, int]]


def account(rules: dict[str, str | Weighted | list[Destination]]) -> AccountMappings:
    mappings = []
    for source, to in rules.items():
        listed = [(to, 100)] if isinstance(to, str) else to
        destinations = [d if isinstance(d, Destination) else Destination(*d) for d in listed]
        mappings.append(Mapping(source, destinations))
    return AccountMappings(mappings)


def rows(counts: dict[str | None, int], cluster: str | None = None) -> list[CensusRow]:
    return [CensusRow(subject, cluster, count, 10 * count) for subject, count in counts.items()]


def stream(name: str, *subjects: str, **more: Any) -> StreamConfig:
    return parse_stream({"name": name, "subjects": list(subjects), **more})


def consumer(stream: str, name: str, *filters: str) -> Any:
    return parse_consumer(
        {"stream_name": stream, "name": name, "config": {"filter_subjects": list(filters)}}
    )


@dataclass
class Scenario:
    """A census, what to try on it, and every finding: code, messages, subjects."""

    id: str
    census: Sequence[CensusRow]
    candidate: AccountMappings
    finds: list[tuple[str, float, int]]
    current: AccountMappings | None = None
    more: dict[str, Any] = field(default_factory=dict)
    permissions: str = ""


def fnv(key: object) -> int:
    """FNV-1a in 32 bits, written anew."""
    value = 0x811C9DC5
    for byte in str(key).encode():
        value = (value ^ byte) * 0x01000193 % 2**32
    return value


ORDERS = rows({"orders.eu": 5, "orders.us": 3})
MOVE = account({"orders.*": "shop.orders.$1"})
KEYS = rows({f"k.{n}": 1 for n in range(1, 41)})


def reads(name: str) -> dict[str, str]:
    """The consumer that a source or mirror reads."""
    return {"name": name, "deliver_subject": f"to.{name}"}


SCENARIOS = [
    Scenario("clean", ORDERS, MOVE, []),
    Scenario(
        "clean-with-everything",
        ORDERS,
        MOVE,
        [],
        more={
            "streams": [
                stream("S", "orders.*", "shop.orders.*", max_msgs_per_subject=5),
                {"name": "M", "mirror": {"name": "S"}},
            ],
            "consumers": [consumer("S", "all"), consumer("S", "eu", "*.eu", "shop.*.eu")],
        },
        permissions="{user: u, permissions: {publish: ['orders.>', 'shop.>'], subscribe: '>'}}",
    ),
    Scenario("clean-same", ORDERS, MOVE, [], current=MOVE),
    Scenario(
        "clean-weights",
        ORDERS,
        account({"orders.*": [("v1.$1", 98), ("v2.$1", 2)]}),
        [],
    ),
    Scenario("empty-census", [], AccountMappings(()), []),
    Scenario(
        "lost",
        rows({"orders": 100, "other": 10}),
        account({"orders": [("orders", 30), ("o.v2", 50)], "other": "o.other"}),
        [("lost", 20, 1)],
    ),
    Scenario(
        "lost-more-than-before",
        rows({"orders": 100}),
        account({"orders": [("orders", 30), ("o.v2", 50)]}),
        [("lost", 10, 1)],
        current=account({"orders": [("orders", 40), ("o.v2", 50)]}),
    ),
    Scenario(
        "illegal-result",
        rows({"a.x-y": 4, "a.-": 3, "a.b-*": 2}),
        account({"a.*": "b.{{split(1,-)}}.$1"}),
        [("illegal-result", 5, 2), ("check-split-empty", 9, 3)],
    ),
    Scenario(
        "illegal-subject",
        rows({"orders.eu": 5, "orders..eu": 2, None: 1}),
        MOVE,
        [("illegal-subject", 3, 2)],
    ),
    Scenario(
        "unmatched",
        rows({"orders.eu": 5, "orders.eu.late": 2, "billing": 7}),
        MOVE,
        [("unmatched", 9, 2)],
    ),
    Scenario(
        "no-longer-mapped",
        rows({"orders.eu": 5, "billing.1": 2}),
        MOVE,
        [("no-longer-mapped", 2, 1)],
        current=account({"orders.*": "o.$1", "billing.*": "b.$1"}),
    ),
    Scenario(
        "collision",
        rows({"o.eu.1": 5, "o.us.1": 3, "o.us.2": 2}),
        account({"o.*.*": "shop.$2"}),
        [("collision", 8, 2), ("irreversible", 10, 3)],
    ),
    Scenario(
        "collision-across-rules",
        rows({"a.1": 5, "b.1": 3, "b.2": 4}),
        account({"a.*": "c.$1", "b.*": "c.$1"}),
        [("collision", 8, 2), ("irreversible", 7, 2)],
    ),
    Scenario(
        "collision-of-two-mappings-each-on-its-own",
        rows({"o.eu.1": 5, "o.us.1": 3, "a.x": 2, "a.y": 2, "a.z": 1}),
        account({"o.*.*": "shop.$2", "a.*": "all"}),
        [("collision", 8, 2), ("collision", 5, 3), ("irreversible", 13, 5)],
    ),
    Scenario(
        "collision-with-what-stays",
        rows({"a.1": 5, "c.1": 3}),
        account({"a.*": "c.$1"}),
        [("collision", 8, 2), ("irreversible", 3, 1), ("unmatched", 3, 1)],
    ),
    Scenario(
        "collision-already",
        rows({"o.eu.1": 5, "o.us.1": 3, "o.us.2": 2}),
        account({"o.*.*": "shop.new.$2"}),
        [("collision-already", 8, 2), ("irreversible", 10, 3)],
        current=account({"o.*.*": "shop.$2"}),
    ),
    Scenario(
        "collision-only-partly-so-already",
        rows({"a.1": 5, "b.1": 3, "c.1": 4}),
        account({"a.*": "n.$1", "b.*": "n.$1", "c.*": "n.$1"}),
        [("collision", 12, 3), ("irreversible", 7, 2)],
        current=account({"a.*": "x.$1", "b.*": "x.$1", "c.*": "y.$1"}),
    ),
    Scenario(
        "irreversible",
        rows({"a.x-1": 5, "a.x-2": 3}),
        account({"a.*": "b.{{split(1,-)}}"}),
        [("irreversible", 8, 2), ("check-split-empty", 8, 2)],
    ),
    Scenario(
        "not-captured",
        rows({"orders.eu": 5, "orders.us": 3}),
        account({"orders.eu": "shop.eu", "orders.us": "orders.v2.us"}),
        [("not-captured", 5, 1)],
        more={"streams": [stream("S", "orders.>")]},
    ),
    Scenario(
        "not-captured-by-weight",
        rows({"orders.eu": 50}),
        account({"orders.*": [("orders.v1.$1", 98), ("shop.$1", 2)]}),
        [("not-captured", 1, 1)],
        more={"streams": [stream("S", "orders.>")]},
    ),
    Scenario(
        "captured-elsewhere",
        ORDERS,
        MOVE,
        [("captured-elsewhere", 8, 2)],
        more={"streams": [stream("S", "orders.>"), stream("T", "shop.>")]},
    ),
    Scenario(
        "captured-twice",
        ORDERS,
        MOVE,
        [("captured-twice", 8, 2), ("check-streams-overlap", 0, 0)],
        more={"streams": [stream("S", "orders.>", "shop.>"), stream("T", "shop.orders.*")]},
    ),
    Scenario(
        "newly-captured",
        ORDERS,
        MOVE,
        [("newly-captured", 8, 2)],
        more={"streams": [stream("S", "shop.>")]},
    ),
    Scenario(
        "ingress-stops",
        ORDERS,
        MOVE,
        [("ingress-stops", 8, 2)],
        more={
            "streams": [
                stream(
                    "S", ">", subject_transform={"src": "orders.*", "dest": "kept.$1"}, no_ack=True
                )
            ]
        },
    ),
    Scenario(
        "source-stops",
        ORDERS,
        account({"orders.eu": "shop.eu", "orders.us": "orders.v2.us"}),
        [("source-stops", 5, 1)],
        more={
            "streams": [
                stream("S", "orders.>", "shop.>"),
                {"name": "T", "sources": [{"name": "S", "filter_subject": "orders.>"}]},
            ]
        },
    ),
    Scenario(
        "the-consumer-of-a-source-filters",
        ORDERS,
        MOVE,
        [("source-stops", 5, 1), ("consumer-none", 5, 1)],
        more={
            "streams": [
                stream("S", "orders.*", "shop.>"),
                {"name": "T", "sources": [{"name": "S", "consumer": reads("eu")}]},
                {"name": "M", "mirror": {"name": "S", "consumer": reads("all")}},
            ],
            "consumers": [consumer("S", "eu", "*.eu"), consumer("S", "all")],
        },
    ),
    Scenario(
        "what-a-consumer-gives-is-renamed-no-more",
        ORDERS,
        account({"orders.eu": "shop.eu"}),
        [("source-stops", 5, 1), ("unmatched", 3, 1)],
        more={
            "streams": [
                stream("S", "orders.*", "shop.>"),
                {
                    "name": "T",
                    "sources": [
                        {
                            "name": "S",
                            "consumer": reads("all"),
                            "subject_transforms": [{"src": "orders.*", "dest": "copies.$1"}],
                        }
                    ],
                },
            ],
            "consumers": [consumer("S", "all")],
        },
    ),
    Scenario(
        "republish-stops",
        ORDERS,
        MOVE,
        [("republish-stops", 8, 2)],
        more={
            "streams": [
                stream("S", "orders.*", "shop.>", republish={"src": "orders.*", "dest": "copy.$1"})
            ]
        },
    ),
    Scenario(
        "republish-loop",
        ORDERS,
        MOVE,
        [("republish-loop", 8, 2)],
        more={
            "streams": [
                stream(
                    "S",
                    "orders.*",
                    "shop.orders.*",
                    republish={"src": "shop.orders.*", "dest": "u.$1"},
                ),
                stream("U", "u.*", republish={"src": "u.*", "dest": "shop.orders.$1"}),
            ]
        },
    ),
    Scenario(
        "republish-loop",
        ORDERS,
        MOVE,
        [("republish-loop", 8, 2)],
        more={
            "streams": [
                stream("S", "orders.*", "shop.orders.*"),
                {
                    "name": "MIRROR",
                    "mirror": {"name": "S"},
                    "republish": {"src": "shop.orders.*", "dest": "shop.orders.$1"},
                },
            ]
        },
    ),
    Scenario(
        "limit-discards",
        rows({"o.eu.1": 5, "o.us.1": 3, "o.us.2": 2}),
        account({"o.*.*": "n.$2"}),
        [("limit-discards", 2, 2), ("collision", 8, 2), ("irreversible", 10, 3)],
        more={"streams": [stream("S", "o.>", "n.>", max_msgs_per_subject=6)]},
    ),
    Scenario(
        "limit-refuses",
        rows({"o.eu.1": 5, "o.us.1": 3, "o.us.2": 2}),
        account({"o.*.*": "n.$2"}),
        [("limit-refuses", 3, 2), ("collision", 8, 2), ("irreversible", 10, 3)],
        more={
            "streams": [
                stream(
                    "S",
                    "o.>",
                    "n.>",
                    max_msgs_per_subject=5,
                    discard="new",
                    discard_new_per_subject=True,
                )
            ]
        },
    ),
    Scenario(
        "consumer-none",
        ORDERS,
        MOVE,
        [("consumer-none", 5, 1)],
        more={
            "streams": [stream("S", "orders.*", "shop.>")],
            "consumers": [consumer("S", "eu", "orders.eu"), consumer("S", "all")],
        },
    ),
    Scenario(
        "consumer-fewer-and-more",
        ORDERS,
        account({"orders.eu": "shop.orders.eu", "orders.us": "shop.us"}),
        [("consumer-fewer", 3, 1), ("consumer-more", 5, 1)],
        more={
            "streams": [stream("S", "orders.*", "shop.>")],
            "consumers": [
                consumer("S", "old", "orders.*", "shop.*.eu"),
                consumer("S", "new", "shop.orders.*"),
            ],
        },
    ),
    Scenario(
        "publish-denied",
        ORDERS,
        MOVE,
        [("publish-denied", 8, 2)],
        permissions="{user: u, permissions: {publish: 'orders.*'}}",
    ),
    Scenario(
        "publish-opened",
        ORDERS,
        MOVE,
        [("publish-opened", 5, 1)],
        permissions="{user: u, permissions: {publish: {allow: 'shop.>', deny: '*.*.us'}}}",
    ),
    Scenario(
        "subscribe-denied",
        ORDERS,
        MOVE,
        [("subscribe-denied", 3, 1)],
        permissions="{user: u, permissions: {subscribe: {deny: ['shop.orders.us']}}}",
    ),
    Scenario(
        "subscribe-opened",
        ORDERS,
        MOVE,
        [("subscribe-opened", 8, 2)],
        permissions="{user: u, permissions: {subscribe: ['shop.>']}}",
    ),
    Scenario(
        "partition-moves",
        KEYS,
        account({"k.*": "p.{{partition(4,1)}}.$1"}),
        [("partition-moves", *2 * [sum(fnv(n) % 3 != fnv(n) % 4 for n in range(1, 41))])],
        current=account({"k.*": "p.{{partition(3,1)}}.$1"}),
    ),
    Scenario(
        "partition-moves-by-key",
        rows({f"k.{a}.{b}": 1 for a in range(8) for b in range(8)}),
        account({"k.*.*": "p.{{partition(2,2)}}.$1.$2"}),
        [
            (
                "partition-moves",
                *2 * [sum(fnv(a) % 2 != fnv(b) % 2 for a in range(8) for b in range(8))],
            )
        ],
        current=account({"k.*.*": "p.{{partition(2,1)}}.$1.$2"}),
    ),
    Scenario(
        "partition-imbalance",
        rows({f"k.{n}": 1 + 200 * (n == 7) for n in range(1, 41)}),
        account({"k.*": "p.{{partition(3,1)}}.$1"}),
        [
            (
                "partition-imbalance",
                200 + sum(fnv(n) % 3 == fnv(7) % 3 for n in range(1, 41)),
                0,
            )
        ],
    ),
    Scenario(
        "partition-empty",
        rows({f"k.{next(n for n in range(99) if fnv(n) % 3 == p)}": 5 for p in (0, 2)}),
        account({"k.*": "p.{{partition(3,1)}}.$1"}),
        [("partition-empty", 0, 0)],
    ),
    Scenario(
        "rule-never-hit",
        ORDERS,
        account({"orders.*": "shop.orders.$1", "orders.*.old": "shop.old.$1"}),
        [("rule-never-hit", 0, 0)],
        more={"streams": [stream("S", "orders.>", "shop.>")], "stream": "S"},
    ),
    Scenario(
        "rule-not-seen",
        ORDERS,
        account({"orders.*": "shop.orders.$1", "bills.*": "shop.bills.$1"}),
        [("rule-not-seen", 0, 0)],
        more={
            "streams": [stream("S", "orders.*", "shop.>"), stream("T", "bills.*")],
            "stream": "S",
        },
    ),
    Scenario(
        "rule-not-seen-without-streams",
        ORDERS,
        account({"orders.*": "shop.orders.$1", "bills.*": "shop.bills.$1"}),
        [("rule-not-seen", 0, 0)],
    ),
    Scenario(
        # What the mapping in force brings into the stream can be in the archive.
        "rule-never-hit-of-what-is-mapped-today",
        ORDERS,
        account({"orders.*": "shop.orders.$1", "in.*": "shop.in.$1"}),
        [("rule-never-hit", 0, 0)],
        current=account({"in.*": "orders.in.$1"}),
        more={"streams": [stream("S", "orders.>", "shop.>")], "stream": "S"},
    ),
    Scenario(
        "rule-shadowed",
        ORDERS,
        account({"orders.*": "shop.orders.$1", "orders.eu": "shop.eu"}),
        [("rule-shadowed", 5, 1)],
    ),
    Scenario(
        "rule-overlap",
        rows({"a.b": 5, "x.b": 3}),
        account({"a.*": "n.a.$1", "*.b": "m.$1.b"}),
        [("rule-overlap", 5, 1)],
    ),
    Scenario(
        "rule-one-cluster",
        [
            CensusRow("a.1", "east", 5),
            CensusRow("a.1", "west", 1),
            CensusRow("b.1", "west", 2),
        ],
        account({"a.*": "n.a.$1", "b.*": "n.b.$1"}),
        [("rule-one-cluster", 2, 1)],
    ),
    Scenario(
        "check",
        rows({"orders.eu": 10}),
        account({"orders.*": [("v1.$1", 90)]}),
        [("check-remainder-kept", 10, 1)],
    ),
    Scenario(
        "too-many-tokens",
        rows({"a.bcdefghijklmnopq": 5, "a.b": 3}),
        account({"a.*": "n.$1.{{slicefromleft(1,1)}}"}),
        [("too-many-tokens", 5, 1)],
    ),
    Scenario(
        "too-long",
        rows({f"a.{'b' * 150}": 5, "a.b": 3}),
        account({"a.*": "n.$1.$1"}),
        [("too-long", 5, 1)],
    ),
    Scenario(
        "consumer-never",
        ORDERS,
        MOVE,
        [("consumer-never", 0, 0)],
        more={
            "streams": [stream("S", "orders.*", "shop.orders.*")],
            "stream": "S",
            "consumers": [
                consumer("S", "typo", "order.*"),
                consumer("S", "fine", "*.eu", "shop.orders.eu"),
            ],
        },
    ),
    Scenario(
        "consumer-never-of-a-stream-that-cannot-have-it",
        ORDERS,
        MOVE,
        [("consumer-never", 0, 0)],
        more={
            "streams": [stream("S", "orders.*", "shop.orders.*"), stream("T", "bills.*")],
            "stream": "S",
            "consumers": [consumer("T", "typo", "bill.*")],
        },
    ),
    Scenario(
        # Of what other streams capture, source or get by other mappings the archive has nothing.
        "consumer-not-seen",
        ORDERS,
        account({"orders.*": "shop.orders.$1", "bills.*": "shop.bills.$1"}),
        [("consumer-not-seen", 0, 0), ("rule-not-seen", 0, 0)],
        more={
            "streams": [
                stream("S", "orders.*", "shop.>"),
                stream("T", "bills.*"),
                stream("BOTH", sources=[{"name": "S"}, {"name": "T"}]),
                stream("FAR", mirror={"name": "S", "external": {"api": "$JS.hub.API"}}),
            ],
            "stream": "S",
            "consumers": [
                consumer("S", "bills", "shop.bills.*"),
                consumer("T", "bills", "bills.*"),
                consumer("BOTH", "bills", "bills.*"),
                consumer("FAR", "bills", "bills.*"),
            ],
        },
    ),
    Scenario(
        "consumer-never-of-a-mirror",
        ORDERS,
        MOVE,
        [("consumer-never", 0, 0)],
        more={
            "streams": [
                stream("S", "orders.*", "shop.orders.*"),
                stream("M", mirror={"name": "S"}),
            ],
            "stream": "S",
            "consumers": [consumer("M", "asia", "orders.asia", "shop.orders.asia")],
        },
    ),
    Scenario(
        "export-and-import-starve",
        ORDERS,
        MOVE,
        [("export-none", 8, 2), ("import-none", 8, 2), ("import-none", 5, 1)],
        more={
            "shared": [
                SharedStream("orders.>"),
                SharedStream("orders.>", "B"),
                SharedStream("orders.eu", "C"),
                SharedStream("else.>", "B"),
            ]
        },
    ),
    Scenario(
        "export-and-import-go-on",
        ORDERS,
        MOVE,
        [],
        more={
            "shared": [
                SharedStream(">"),
                SharedStream("*.orders.*", "B"),
                SharedStream("else.>", "B"),
            ]
        },
    ),
    Scenario(
        "another-import-of-the-account-goes-on",
        rows({"orders.eu": 5, "orders.us": 3, "bills.eu": 1}),
        account({"orders.eu": "shop.eu", "orders.us": "lost.us", "bills.*": "bills.v2.$1"}),
        [("import-fewer", 3, 1), ("import-none", 8, 2)],
        more={
            "shared": [
                *(SharedStream(filter, "B") for filter in ("orders.>", "shop.>")),
                *(SharedStream(filter, "C") for filter in ("orders.>", "bills.>")),
            ]
        },
    ),
    Scenario(
        "export-and-import-get-fewer",
        ORDERS,
        account({"orders.eu": "shop.orders.eu", "orders.us": "orders.us"}),
        [("check-changes-nothing", 3, 1), ("export-fewer", 5, 1), ("import-fewer", 5, 1)],
        more={"shared": [SharedStream("orders.*"), SharedStream("orders.>", "B")]},
    ),
    Scenario(
        "a-cluster-that-the-archive-does-not-name",
        rows({"orders.eu": 5}, "east"),
        account({"orders.*": [Destination("a.$1", 100, "wets"), Destination("b.$1")]}),
        [("cluster-not-seen", 5, 1)],
    ),
    Scenario(
        "a-cluster-that-there-is-not",
        rows({"orders.eu": 5}, "east"),
        account({"orders.*": [Destination("a.$1", 100, "wets"), Destination("b.$1")]}),
        [("check-unknown-cluster", 5, 1)],
        more={"clusters": ["east", "west"]},
    ),
    Scenario(
        "a-cluster-that-there-is",
        rows({"orders.eu": 5}, "east"),
        account({"orders.*": [Destination("a.$1", 100, "west"), Destination("b.$1")]}),
        [],
        more={"clusters": ["east", "west"]},
    ),
    Scenario(
        "subjects-of-the-server-are-not-unmatched",
        rows({"orders.eu": 5, "$KV.B.x": 3, "$O.B.M.x": 2, "else": 1}),
        MOVE,
        [("unmatched", 1, 1)],
    ),
    Scenario(
        "streams-without-a-part-in-it",
        ORDERS,
        MOVE,
        [("check-unreachable", 0, 0)],
        more={
            "streams": [
                stream("S", "orders.*", "shop.>", subject_transform={"src": "x", "dest": "y"}),
                stream("OTHER", "other", subject_transform={"src": "x", "dest": "y"}),
            ]
        },
    ),
    Scenario(
        "counter-restarts",
        ORDERS,
        MOVE,
        [("counter-restarts", 8, 2)],
        more={"streams": [stream("S", "orders.*", "shop.>", allow_msg_counter=True)]},
    ),
    Scenario(
        "schedule-not-mapped",
        ORDERS,
        MOVE,
        [("schedule-not-mapped", 8, 2)],
        more={"streams": [stream("S", "orders.*", "shop.>", allow_msg_schedules=True)]},
    ),
    Scenario(
        "condition-fails",
        [
            CensusRow("orders.eu", None, 5, carries="condition id"),
            CensusRow("orders.eu", None, 2, carries="id"),
            CensusRow("stay.eu", None, 3, carries="condition"),
        ],
        account({"orders.*": [Destination("shop.$1", 60), Destination("orders.$1", 40)]}),
        [("condition-fails", 3, 1), ("unmatched", 3, 1)],
    ),
    Scenario(
        "ids-forgotten",
        [
            CensusRow("orders.eu", None, 5, carries="id"),
            CensusRow("orders.us", None, 2, carries=""),
            CensusRow("bills.eu", None, 3, carries="id"),
            CensusRow("plain.eu", None, 4, carries="id"),
        ],
        account({"orders.*": "shop.$1", "bills.*": "paid.$1", "plain.*": "fancy.$1"}),
        [("ids-forgotten", 5, 1), ("captured-elsewhere", 7, 2), ("newly-captured", 4, 1)],
        more={
            "streams": [
                stream("OLD", "orders.*", "bills.*", "paid.*"),
                stream("NEW", "shop.*", "fancy.*"),
            ]
        },
    ),
    Scenario(
        "schedule-target-moves",
        rows({"orders.eu": 5}),
        MOVE,
        [("schedule-target-moves", 3, 2)],
        more={"named": {"Nats-Schedule-Target": {"orders.a": 2, "orders.b": 1, "elsewhere": 1}}},
    ),
    Scenario(
        "schedule-source-moves",
        rows({"orders.eu": 5}),
        MOVE,
        [("schedule-target-moves", 2, 1)],
        more={"named": {"Nats-Schedule-Source": {"orders.a": 2, "elsewhere": 1}}},
    ),
    Scenario(
        "header-not-mapped",
        rows({"orders.eu": 5}),
        MOVE,
        [("header-not-mapped", 2, 1)],
        more={"named": {"Answer-To": {"orders.a": 2, "a..b": 1}, "Other": {"elsewhere": 1}}},
    ),
    Scenario(
        "batch-split",
        ORDERS,
        account({"orders.*": [Destination("shop.$1", 75), Destination("canary.$1", 25)]}),
        [("batch-split", 2, 2), ("captured-elsewhere", 2, 2)],
        more={
            "streams": [
                stream("S", "orders.*", "shop.*", allow_atomic=True),
                stream("C", "canary.*", allow_atomic=True),
            ]
        },
    ),
    Scenario(
        "batches-and-counters-that-stay-together",
        ORDERS,
        account({"orders.*": [Destination("orders.$1", 75), Destination("shop.$1", 25)]}),
        [],
        account({"orders.*": [Destination("orders.$1", 25), Destination("shop.$1", 75)]}),
        more={
            "streams": [
                stream("S", "orders.*", "shop.*", allow_atomic=True, allow_msg_schedules=True)
            ]
        },
    ),
    *(
        Scenario(
            f"{flag}-and-conditions-with-a-transform-{kind}",
            [CensusRow("orders.eu", None, 5, carries="condition")],
            MOVE,
            codes,
            more={
                "streams": [
                    stream("S", "orders.*", "shop.>", subject_transform=renames, **{flag: True})
                ]
            },
        )
        for flag, code in (
            ("allow_msg_counter", "counter-restarts"),
            ("allow_msg_schedules", "schedule-not-mapped"),
        )
        for kind, renames, codes in (
            ("back", {"src": "shop.orders.*", "dest": "orders.$1"}, []),
            (
                "elsewhere",
                {"src": "shop.*.*", "dest": "shop.$2.$1"},
                [(code, 5, 1), ("condition-fails", 5, 1)],
            ),
        )
    ),
    Scenario(
        "mapped-twice",
        ORDERS,
        MOVE,
        [("mapped-twice", 5, 1)],
        more={"leaf_node": account({"shop.orders.eu": "store.eu"})},
    ),
    Scenario(
        "mapped-on-one-side",
        rows({"orders.eu": 5, "store": 1}),
        account({"orders.*": "shop.$1", "store": "shelf"}),
        [],
        more={"leaf_node": account({"orders.*": "store.$1"})},
    ),
    *(
        Scenario(
            f"counted-twice-with-{kind}",
            [CensusRow("orders.eu", None, 5, carries="counter")],
            MOVE,
            [("counter-restarts", 5, 1), *codes],
            more={
                "streams": [
                    stream("S", "orders.*", "shop.>", allow_msg_counter=True),
                    stream("SUM", sources=[{"name": "S", **rules}], allow_msg_counter=True),
                ]
            },
        )
        for kind, rules, codes in (
            (
                "one-name",
                {
                    "subject_transforms": [
                        {"src": "shop.orders.*", "dest": "orders.$1"},
                        {"src": "orders.*"},
                    ]
                },
                [("counted-twice", 5, 1)],
            ),
            ("two-names", {}, []),
        )
    ),
    Scenario(
        "counters-of-streams-that-nobody-gave",
        [
            CensusRow("orders.eu", None, 5, carries="counter"),
            CensusRow("orders.us", None, 2, carries="id"),
        ],
        MOVE,
        [("counter-restarts", 5, 1)],
    ),
    Scenario(
        "a-target-that-the-stream-renames",
        rows({"orders.eu": 5}),
        MOVE,
        [],
        more={
            "named": {"Nats-Schedule-Target": {"orders.a": 2}},
            "streams": [
                stream(
                    "S",
                    "orders.*",
                    "shop.>",
                    subject_transform={"src": "shop.orders.*", "dest": "orders.$1"},
                    allow_msg_schedules=True,
                )
            ],
        },
    ),
    Scenario(
        "letter-case",
        rows({"orders.EU": 5, "orders.eu": 3, "orders.us": 1}),
        MOVE,
        [("letter-case", 8, 2)],
    ),
    Scenario(
        "letter-case-of-what-stays",
        rows({"other.EU": 5, "other.eu": 3, "orders.us": 1}),
        MOVE,
        [("unmatched", 8, 2)],
    ),
    Scenario(
        "subject-explosion",
        rows({"a.1": 500, "a.2": 300}),
        account({"a.*": "n.$1.{{random(100)}}"}),
        [("subject-explosion", 0, 0), ("check-random-order", 800, 2)],
    ),
]


def run(scenario: Scenario, tmp_path: Path) -> DryRun:
    more = dict(scenario.more)
    more["streams"] = [
        one if isinstance(one, StreamConfig) else parse_stream(one)
        for one in more.get("streams", ())
    ]
    if scenario.permissions:
        path = tmp_path / "server.conf"
        path.write_text(f"authorization {{ users: [{scenario.permissions}] }}")
        more["users"] = users_of(parse_server_config(path))
    return dry_run(scenario.census, scenario.candidate, scenario.current, **more)


def denied(config: str, verb: str, subjects: Sequence[str]) -> set[str]:
    """The subjects that a real server does not let a user publish or subscribe to."""
    told: list[str] = []

    async def note(error: Exception) -> None:
        told.append(str(error))

    async def work(url: str) -> None:
        client = await connect(url, user="u", password="p", error_cb=note)  # noqa: S106 - local
        for subject in subjects:
            await (client.subscribe(subject) if verb == "subscribe" else client.publish(subject))
        await client.flush()  # the server answers in order,
        await client.flush()  # and the client calls `note` in a task of its own
        await client.close()

    with nats_server(config) as server:
        asyncio.run(work(server.url))
    # Of a publish the server names the subject after the mapping.
    return {one for one in subjects if any(re.search(rf'\b{one}"?$', text) for text in told)}


@pytest.mark.server
@pytest.mark.parametrize(
    "code", ["publish-denied", "publish-opened", "subscribe-denied", "subscribe-opened"]
)
def test_a_real_server_denies_what_was_foretold(code: str) -> None:
    (scenario,) = (one for one in SCENARIOS if one.id == code)
    assert scenario.candidate is MOVE
    verb, change = code.split("-")
    config = f"authorization {{users: [{scenario.permissions}]}}\n"
    config = config.replace("user: u", "user: u, password: p")
    old = {row.subject or "": row.messages for row in scenario.census}
    before = denied(config, verb, [*old])
    if verb == "publish":
        config += 'mappings { "orders.*": "shop.orders.$1" }'
    now = denied(config, verb, [*old] if verb == "publish" else [f"shop.{one}" for one in old])
    after = {one.removeprefix("shop.") for one in now}
    found = after - before if change == "denied" else before - after
    assert [(code, sum(old[one] for one in found), len(found))] == scenario.finds


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.id)
def test_scenario(scenario: Scenario, tmp_path: Path) -> None:
    found = run(scenario, tmp_path)
    told = [(f.code, f.messages, f.subjects) for f in found.findings]
    assert sorted(told) == sorted(scenario.finds)
    total = sum(row.messages for row in scenario.census)
    assert found.messages == total
    assert found.subjects == len({row.subject for row in scenario.census})
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
    planted = {code for scenario in SCENARIOS for code, _, _ in scenario.finds}
    planted |= {one.refused[0] for one in SITUATIONS if one.refused is not None}
    assert planted >= set(CODES)
    assert planted <= CODES.keys() | FROM_CHECK.keys()


def test_changes_are_grouped_by_pair_of_rules() -> None:
    found = dry_run(
        rows({"a.1": 5, "a.2": 7, "b.1": 3, "c": 2, "d": 1}),
        account({"a.*": "n.a.$1", "b.*": "n.b.$1", "d": "d.old"}),
        account({"a.*": "o.a.$1", "d": "d.old"}),
    )
    told = [(c.before, c.after, c.messages, c.subjects) for c in found.changes]
    assert told == [
        ("a.* -> o.a.$1", "a.* -> n.a.$1", 12, 2),
        (None, "b.* -> n.b.$1", 3, 1),
    ]
    assert [(e.subject, e.before, e.after) for e in found.changes[0].examples] == [
        ("a.2", "o.a.2", "n.a.2"),
        ("a.1", "o.a.1", "n.a.1"),
    ]
    assert (found.changed_messages, found.changed_subjects) == (15, 3)
    assert found.fates_after == {"mapped": 16, "unmatched": 2}
    assert found.bytes == 180
    flows = {(flow.before, flow.after): flow.messages for flow in found.flows}
    assert flows == {
        ("o.a", "n.a"): 12,
        ("b.1", "n.b"): 3,
        ("c", "c"): 2,
        ("d.old", "d.old"): 1,
    }


def test_a_weight_that_changes_moves_the_difference() -> None:
    found = dry_run(
        rows({"a.1": 1000}),
        account({"a.*": [("v1.$1", 90), ("v2.$1", 10)]}),
        account({"a.*": [("v1.$1", 98), ("v2.$1", 2)]}),
    )
    assert [(c.after, c.messages) for c in found.changes] == [("a.* -> v2.$1", 80)]
    assert found.findings == ()


def test_clusters_have_their_own_destinations() -> None:
    candidate = account(
        {"a.*": [Destination("east.$1", 100, "east"), Destination("west.$1", 100, "west")]}
    )
    found = dry_run([CensusRow("a.1", "east", 5), CensusRow("a.1", "west", 2)], candidate)
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
    cured = dry_run(rows(SENSORS), account({"telemetry.*.*.*": CUT.replace("telemetry", "t.$1")}))
    assert cured.is_reversible
    back = AccountMappings(cured.reverse)
    for subject in SENSORS:
        new = account({"telemetry.*.*.*": CUT.replace("telemetry", "t.$1")}).apply(subject).subject
        assert new is not None
        assert back.apply(new).subject == subject


TOKENS = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3).map(".".join)
RULES_OF = st.dictionaries(
    st.sampled_from(["a.*", "b.*", "*.c", "a", "a.*.*", "*.*.b"]),
    st.sampled_from(["x.$1", "x", "y.{{partition(2,1)}}"]),
    max_size=3,
)


@settings(max_examples=30)
@given(st.dictionaries(TOKENS, st.integers(1, 9), max_size=12), RULES_OF, RULES_OF)
def test_collisions_agree_with_a_count_by_hand(
    counts: dict[str, int], candidate: dict[str, str], current: dict[str, str]
) -> None:
    def valid(rules: dict[str, str]) -> AccountMappings:
        return account({s: d if "*" in s else "z" for s, d in rules.items()})

    new, old = valid(candidate), valid(current)
    found = dry_run(rows(dict(counts)), new, old)
    groups: dict[str | None, list[str]] = {}
    for subject in counts:
        groups.setdefault(new.apply(subject).subject, []).append(subject)
    merged = [group for group in groups.values() if len(group) > 1]
    already = [g for g in merged if len({old.apply(s).subject for s in g}) == 1]
    expected = {
        "collision": sum(counts[s] for g in merged if g not in already for s in g),
        "collision-already": sum(counts[s] for g in already for s in g),
    }
    # One finding for each mapping, or pair of mappings, that makes subjects one.
    told: Counter[str] = Counter()
    for finding in found.findings:
        told[finding.code] += int(finding.messages)
    assert {code: told[code] for code in expected} == expected
    changed = [s for s in counts if new.apply(s).subject != old.apply(s).subject]
    assert found.changed_messages == sum(counts[s] for s in changed)
    assert found.changed_subjects == len(changed)


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
accounts { ACME { users: [{user: d, permissions: {publish: "d.>"}}, {user: e}] } }
"""


def test_users_and_what_they_may(tmp_path: Path) -> None:
    path = tmp_path / "server.conf"
    path.write_text(PERMISSIONS)
    tree = parse_server_config(path)
    a, b, n, c = users_of(tree)
    assert [user.name for user in (a, b, n, c)] == ["a", "b", "N", "c"]
    allowed: Callable[[Any, str], bool] = lambda side, subject: side.allows(subject)  # noqa: E731
    assert allowed(a.publish, "orders.1")
    assert not allowed(a.publish, "x.1")
    assert allowed(a.subscribe, "anything")
    assert [s for s in ("x.1", "x.no", "y", "z") if allowed(b.publish, s)] == ["x.1", "y"]
    assert not allowed(b.subscribe, "s.1")
    assert not allowed(n.publish, "anything")
    assert not allowed(c.subscribe, "s.1")
    assert allowed(c.subscribe, "t")
    assert [user.name for user in users_of(tree, "ACME")] == ["d"]
    with pytest.raises(InvalidConfig, match="no account 'NONE'"):
        users_of(tree, "NONE")


@pytest.mark.parametrize(
    ("permissions", "error"),
    [
        ("{publish: 7}", r":1:\d+: expected a subject, found a whole number"),
        ("{publish: 'a..b'}", r":1:\d+: this permission is not a valid subject"),
        ("{publish: 'a q'}", r":1:\d+: this permission is not a valid subject"),
        ("7", r":1:\d+: expected a section in braces, found a whole number"),
    ],
)
def test_bad_permissions(permissions: str, error: str, tmp_path: Path) -> None:
    path = tmp_path / "server.conf"
    path.write_text(f"authorization {{ users: [{{user: u, permissions: {permissions}}}] }}")
    with pytest.raises(InvalidConfig, match=error):
        users_of(parse_server_config(path))


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {"config": {}},
        {"stream_name": "S", "config": {}},
        {"stream_name": "S", "name": "c", "config": {"filter_subject": 7}},
        {"stream_name": "S", "name": "c", "config": {"filter_subjects": [7]}},
    ],
    ids=str,
)
def test_bad_consumers(data: object) -> None:
    with pytest.raises(InvalidStream) as error:
        parse_consumer(data)
    assert "\n" not in str(error.value)


def test_each_mapping_that_merges_subjects_has_its_own_finding() -> None:
    census = rows({"o.eu.1": 5, "o.us.1": 3, "a.x.1": 4, "a.y.1": 2, "p.1": 1, "q.1": 1, "z": 1})
    candidate = account({"a.*.*": "all.$2", "o.*.*": "shop.$2", "p.*": "n.$1", "q.*": "n.$1"})
    found = dry_run(census, candidate).findings
    merged = [f for f in found if f.code == "collision"]
    assert [(f.about, f.messages, f.message) for f in merged] == [
        (
            "mapping o.*.*",
            8,
            "2 subjects become 1, because the new subject leaves out wildcard 1 of o.*.*",
        ),
        (
            "mapping a.*.*",
            6,
            "2 subjects become 1, because the new subject leaves out wildcard 1 of a.*.*",
        ),
        ("mapping p.* and mapping q.*", 2, "2 subjects become 1"),
    ]
    assert [{e.subject for e in f.examples} for f in merged] == [
        {"o.eu.1", "o.us.1"}, {"a.x.1", "a.y.1"}, {"p.1", "q.1"}
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


def test_users_of_another_account_are_not_overlooked(tmp_path: Path) -> None:
    path = tmp_path / "server.conf"
    path.write_text(
        "accounts { ACME { users: [{user: d, permissions: {publish: 'd.>'}}] }\n B {} }"
    )
    tree = parse_server_config(path)
    assert [user.name for user in users_of(tree, "ACME")] == ["d"]
    for account in ("$G", "B"):
        with pytest.raises(InvalidConfig, match=r"but users of 'ACME' do.*--permissions-account"):
            users_of(tree, account)
    path.write_text("accounts { B {} }")
    assert users_of(parse_server_config(path)) == []


def test_subjects_that_reach_nobody_today_may_become_one() -> None:
    lost = [Mapping(source, [Destination(source, 0)]) for source in ("a", "b")]
    merged = [Mapping(source, [Destination("c")]) for source in ("a", "b")]
    rows = [CensusRow("a", None, 2), CensusRow("b", None, 3)]
    found = dry_run(rows, AccountMappings(merged), AccountMappings(lost))
    assert [(one.code, one.messages) for one in found.findings if "collision" in one.code] == [
        ("collision", 5)
    ]
