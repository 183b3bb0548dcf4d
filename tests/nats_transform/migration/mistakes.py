"""Mistakes that people make in migrations, each beside what they should have written.

A side is what somebody rolls out: mappings, streams, consumers, permissions. A mistake says what
`check` and the dry run must find on its wrong side, and what a real nats-server then does; on the
right side nothing is found. `current` is in force before, where it is not "".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scipy.stats import binom

ACCOUNT = "SHOP"
OTHER = "OTHER"
"""The account of the publishers, and another one."""

Config = Mapping[str, Any]
Found = tuple[str, str, float, int]
"""Severity, code, messages, subjects."""


class About:
    """A count that chance decides: so many, each with a percentage, and some that are sure."""

    def __init__(self, count: int, percent: int, sure: int = 0) -> None:
        low, high = binom.interval(1 - 1e-9, count, percent / 100)
        self.low, self.high = sure + low, sure + high

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int) and self.low <= other <= self.high

    def __hash__(self) -> int:
        raise TypeError("no key")

    def __repr__(self) -> str:
        return f"{self.low:g} to {self.high:g}"


@dataclass(frozen=True)
class Side:
    """What somebody rolls out.

    Attributes:
        mappings: what stands in `mappings {...}`.
        streams: their configurations.
        consumers: the filters, by "STREAM.NAME".
        permissions: of the user who publishes.
        imports: filters that the other account imports, and the account exports.
        holder: the account that has the mappings.
        seen: what the server does: `refused` (error codes by stream), `stored` (counts by stream
            and subject), `tokens` (counts by stream and first token), `pending` (by consumer),
            `denied` (publishes), `imported` (messages of the other account).
    """

    mappings: str
    streams: Sequence[Config] = ()
    consumers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    permissions: str = ""
    imports: Sequence[str] = ()
    holder: str = ACCOUNT
    seen: Mapping[str, Any] = field(default_factory=dict)

    def server_config(self, account: str = ACCOUNT, other: str = OTHER) -> str:
        """The accounts as they stand in a server configuration."""
        may = f", permissions: {self.permissions}" if self.permissions else ""
        exports = ", ".join(f"{{stream: {json.dumps(one)}}}" for one in self.imports)
        imports = ", ".join(
            f"{{stream: {{account: {account}, subject: {json.dumps(one)}}}}}"
            for one in self.imports
        )
        mappings = {self.holder: f"mappings {{ {self.mappings} }}"}
        return f"""
          {account} {{
            jetstream: enabled
            users: [
              {{user: {account}-admin, password: secret}},
              {{user: {account}-app, password: secret{may}}}
            ]
            exports: [{exports}]
            {mappings.get(ACCOUNT, "")}
          }}
          {other} {{
            users: [{{user: {other}-user, password: secret}}]
            imports: [{imports}]
            {mappings.get(OTHER, "")}
          }}
        """


@dataclass(frozen=True)
class Mistake:
    """A mistake, what is found of it, and the same without it.

    Attributes:
        census: messages by subject, as they are published.
        finds: all that the dry run finds on the wrong side.
        checks: severity and code of all that `check` finds there.
        notes: what `check` tells of the right side; no more than an info.
        refused: the dry run refuses the wrong side; its code, or the server's words.
        clusters: that there are.
    """

    id: str
    census: Mapping[str, int]
    wrong: Side
    right: Side
    finds: Sequence[Found] = ()
    checks: Sequence[tuple[str, str]] = ()
    notes: list[tuple[str, str]] = field(default_factory=list)
    refused: str = ""
    current: str = ""
    clusters: Sequence[str] = ()


def stream(name: str, *subjects: str, **more: Any) -> Config:
    return {"name": name, "subjects": list(subjects), **more}


def copying(*filters: str) -> Config:
    """A stream that sources what these cover."""
    transforms = [{"src": one, "dest": ""} for one in filters]
    return COPY | {"sources": [{"name": "S", "subject_transforms": transforms}]}


def side(mappings: str, *streams: Config, **more: Any) -> Side:
    """A side, of which more is told: fields of it, and what the server does."""
    fields = {name: more.pop(name) for name in Side.__dataclass_fields__ if name in more}
    return Side(mappings, streams, seen=more, **fields)


def moved(*streams: Config, **more: Any) -> Side:
    """A side whose mapping moves the orders; without streams, there is one that stores all."""
    return side(MOVE, *(streams or [BOTH]), **more)


def fnv(key: object) -> int:
    """FNV-1a in 32 bits, written anew."""
    value = 0x811C9DC5
    for byte in str(key).encode():
        value = (value ^ byte) * 0x01000193 % 2**32
    return value


ORDERS = {"orders.eu": 5, "orders.us": 3}
MOVE = '"orders.*": "shop.$1"'
MOVED = {"shop.eu": 5, "shop.us": 3}
BOTH = stream("S", "orders.*", "shop.*")
SHOP = stream("S", "orders.>", "shop.>")
SIX_OF_EACH = {**SHOP, "max_msgs_per_subject": 6}
MOVED_WELL = moved(stored={"S": MOVED})
KEPT_WELL = moved(
    {**BOTH, "subject_transform": {"src": "*.*", "dest": "kept.$1.$2"}},
    stored={"S": {"kept.shop.eu": 5, "kept.shop.us": 3}},
)
REGIONS = {"orders.eu.1": 5, "orders.us.1": 3, "orders.us.2": 2}
REGIONS_MOVED = {"shop.1.eu": 5, "shop.1.us": 3, "shop.2.us": 2}
KEYS = {f"k.{n}": 1 for n in range(1, 41)}
MOVING = sum(fnv(n) % 3 != fnv(n) % 4 for n in range(1, 41))
PAIRS = range(30)
HALF = About(30, 50, sure=30)
OLD_PAIRS = stream("S", "old.>", "one.>", "two.>")
SETTINGS = {"config.eu.theme": 4, "config.us.theme": 1, "config.us.size": 1}
SETTINGS_MOVED = {"last.theme.eu": 1, "last.theme.us": 1, "last.size.us": 1}
LAST = stream("LAST", "last.>", max_msgs_per_subject=1)
COPY: Config = {"name": "COPY"}
CANARY = '"orders.*": [{dest: "orders.old.$1", weight: 70}, {dest: "new.$1", weight: 30}]'
CAUGHT = ("info", "caught-by-stream")


def partitioned(prefix: str, count: int) -> dict[str, int]:
    """Where the keys are stored."""
    return {f"{prefix}.{fnv(n) % count}.{n}": 1 for n in range(1, 41)}


MISTAKES = [
    Mistake(
        "limit-of-a-subject",
        REGIONS,
        side('"orders.*.*": "shop.$2"', SIX_OF_EACH, stored={"S": {"shop.1": 6, "shop.2": 2}}),
        side('"orders.*.*": "shop.$2.$1"', SIX_OF_EACH, stored={"S": REGIONS_MOVED}),
        [
            ("error", "collision", 8, 2),
            ("error", "limit-discards", 2, 2),
            ("warning", "irreversible", 10, 3),
        ],
        [("warning", "wildcards-dropped")],
    ),
    Mistake(
        "uncaptured",
        ORDERS,
        moved(stream("S", "orders.*"), stored={"S": {}}),
        MOVED_WELL,
        [("error", "not-captured", 8, 2)],
        [("warning", "escapes-stream")],
    ),
    Mistake(
        "uncaptured-in-part",
        ORDERS,
        moved(
            stream("S", "orders.*", "shop.eu"),
            COPY | {"sources": [{"name": "S", "filter_subject": "orders.*"}]},
            consumers={"S.old": ["orders.*"]},
            stored={"S": {"shop.eu": 5}, "COPY": {}},
            pending={"S.old": 0},
        ),
        moved(
            BOTH,
            copying("orders.*", "shop.*"),
            consumers={"S.old": ["orders.*", "shop.*"]},
            stored={"S": MOVED, "COPY": MOVED},
            pending={"S.old": 8},
        ),
        [
            ("error", "consumer-none", 8, 2),
            ("error", "not-captured", 3, 1),
            ("warning", "source-stops", 5, 1),
        ],
        [("warning", "escapes-stream"), ("warning", "source-stops")],
    ),
    Mistake(
        "uncaptured-canary",
        {"orders.a": 400, "orders.b": 600},
        side(CANARY, stream("S", "orders.>"), tokens={"S": {"orders": About(1000, 70)}}),
        side(
            CANARY,
            stream("S", "orders.>", "new.*"),
            tokens={"S": {"orders": About(1000, 70), "new": About(1000, 30)}},
        ),
        [("error", "not-captured", 300, 2)],
        [("warning", "escapes-stream")],
    ),
    Mistake(
        # nats-server tries them in an order of its own: some pairs go one way, some the other.
        "overlapping-sources",
        {f"old.{n}.{end}": 1 for n in PAIRS for end in ("x.y", "x.z", "z.y")},
        side(
            "\n".join(f'"old.{n}.*.y": "one.{n}.$1", "old.{n}.x.*": "two.{n}.$1"' for n in PAIRS),
            OLD_PAIRS,
            tokens={"S": {"one": HALF, "two": HALF}},
        ),
        side(
            "\n".join(f'"old.{n}.*.y": "one.{n}.$1", "old.{n}.*.z": "two.{n}.$1"' for n in PAIRS),
            OLD_PAIRS,
            tokens={"S": {"one": 60, "two": 30}},
        ),
        [("warning", "rule-overlap", 1, 1)] * 30,
        [("warning", "overlap")] * 30,
    ),
    Mistake(
        "starved-consumer",
        ORDERS,
        moved(consumers={"S.eu": ["orders.eu"], "S.all": []}, pending={"S.eu": 0, "S.all": 8}),
        moved(
            consumers={"S.eu": ["orders.eu", "shop.eu"], "S.all": []},
            pending={"S.eu": 5, "S.all": 8},
        ),
        [("error", "consumer-none", 5, 1)],
    ),
    Mistake(
        "denials",
        ORDERS,
        moved(
            permissions="{publish: ['orders.*', 'shop.eu']}", denied=3, stored={"S": {"shop.eu": 5}}
        ),
        moved(permissions="{publish: ['orders.*', 'shop.*']}", denied=0, stored={"S": MOVED}),
        [("error", "publish-denied", 3, 1)],
    ),
    Mistake(
        "partition-change",
        KEYS,
        side(
            '"k.*": "p.{{partition(4,1)}}.$1"',
            stream("S", "k.*", "p.>"),
            stored={"S": partitioned("p", 4)},
        ),
        side(
            '"k.*": "q.{{partition(3,1)}}.$1"',
            stream("S", "k.*", "p.>", "q.>"),
            stored={"S": partitioned("q", 3)},
        ),
        [("warning", "partition-moves", MOVING, MOVING)],
        current='"k.*": "p.{{partition(3,1)}}.$1"',
    ),
    Mistake(
        "republish-cycle",
        ORDERS,
        moved({**BOTH, "republish": {"src": ">", "dest": ">"}}, refused={"S": 10052}),
        moved({**BOTH, "republish": {"src": ">", "dest": "copy.>"}}, stored={"S": MOVED}),
        checks=[("error", "refused")],
        refused="cycle",
    ),
    Mistake(
        "overlapping-source-filters",
        ORDERS,
        moved(BOTH, copying("shop.*", "shop.eu"), refused={"COPY": 10147}),
        moved(BOTH, copying("orders.*", "shop.*"), stored={"S": MOVED, "COPY": MOVED}),
        checks=[("error", "refused")],
        refused="overlap",
    ),
    Mistake(
        "overlapping-sources-of-a-stream",
        ORDERS,
        moved(
            BOTH,
            COPY | {"sources": [{"name": "S"}, {"name": "S", "filter_subject": "shop.eu"}]},
            stored={"S": MOVED, "COPY": {"shop.eu": 10, "shop.us": 3}},
        ),
        moved(BOTH, COPY | {"sources": [{"name": "S"}]}, stored={"S": MOVED, "COPY": MOVED}),
        [("warning", "stored-twice", 5, 1), ("warning", "check-sourced-twice", 0, 0)],
        [("warning", "sourced-twice")],
    ),
    Mistake(
        # What the weights leave over keeps its subject.
        "short-weights",
        {"orders.eu": 200},
        side(
            '"orders.*": [{dest: "shop.$1", weight: 60}, {dest: "v2.$1", weight: 20}]',
            stream("S", "orders.*", "shop.*", "v2.*"),
            tokens={"S": {"shop": About(200, 60), "v2": About(200, 20), "orders": About(200, 20)}},
        ),
        side(
            '"orders.*": [{dest: "shop.$1", weight: 80}, {dest: "v2.$1", weight: 20}]',
            stream("S", "orders.*", "shop.*", "v2.*"),
            tokens={"S": {"shop": About(200, 80), "v2": About(200, 20)}},
        ),
        [("warning", "check-remainder-kept", 200, 1)],
        [("warning", "remainder-kept")],
    ),
    Mistake(
        # With the source among the destinations, what the weights leave over is lost.
        "short-weights-with-the-source",
        {"orders": 200},
        side(
            "orders: [{destination: orders, weight: 30}, {destination: shop, weight: 50}]",
            stream("S", "orders", "shop"),
            tokens={"S": {"orders": About(200, 30), "shop": About(200, 50)}},
        ),
        side(
            "orders: [{destination: orders, weight: 50}, {destination: shop, weight: 50}]",
            stream("S", "orders", "shop"),
            tokens={"S": {"orders": About(200, 50), "shop": About(200, 50)}},
        ),
        [("error", "lost", 40, 1)],
        [("info", "loss")],
    ),
    Mistake(
        "unknown-cluster",
        ORDERS,
        side(
            '"orders.*": [{destination: "shop.east.$1", weight: 100, cluster: esat}'
            ', {destination: "shop.all.$1", weight: 100}]',
            stream("S", "orders.*", "shop.>"),
            stored={"S": {"shop.all.eu": 5, "shop.all.us": 3}},
        ),
        side(
            '"orders.*": [{destination: "shop.east.$1", weight: 100, cluster: east}'
            ', {destination: "shop.all.$1", weight: 100}]',
            stream("S", "orders.*", "shop.>"),
            stored={"S": {"shop.east.eu": 5, "shop.east.us": 3}},
        ),
        [("error", "check-unknown-cluster", 8, 2)],
        [("error", "unknown-cluster")],
        clusters=["east", "west"],
    ),
    Mistake(
        "starved-import",
        ORDERS,
        moved(imports=["orders.*"], imported=0),
        moved(imports=["orders.*", "shop.*"], imported=8),
        [("error", "export-none", 8, 2), ("error", "import-none", 8, 2)],
        [("warning", "escapes-export")],
    ),
    Mistake(
        "escaped-export",
        ORDERS,
        side(MOVE, imports=["orders.>"], imported=0),
        side('"orders.*": "orders.v2.$1"', imports=["orders.>"], imported=8),
        [("error", "export-none", 8, 2), ("error", "import-none", 8, 2)],
        [("warning", "escapes-export")],
    ),
    Mistake(
        "last-values-collapse",
        SETTINGS,
        side('"config.*.*": "last.$2"', LAST, stored={"LAST": {"last.theme": 1, "last.size": 1}}),
        side('"config.*.*": "last.$2.$1"', LAST, stored={"LAST": SETTINGS_MOVED}),
        [
            ("error", "collision", 5, 2),
            ("error", "limit-discards", 1, 2),
            ("warning", "irreversible", 6, 3),
        ],
        [("warning", "wildcards-dropped"), CAUGHT],
        current='"config.*.*": "last.$1.$2"',
        notes=[CAUGHT],
    ),
    Mistake(
        "overlapping-streams",
        ORDERS,
        moved(BOTH, stream("T", "shop.eu"), refused={"T": 10065}, stored={"S": MOVED}),
        moved(BOTH, stream("T", "shops.eu"), refused={}, stored={"S": MOVED, "T": {}}),
        [("error", "check-streams-overlap", 0, 0), ("warning", "captured-twice", 5, 1)],
        [("error", "streams-overlap"), CAUGHT],
    ),
    Mistake(
        "mirror-filter",
        ORDERS,
        moved(
            BOTH,
            COPY | {"mirror": {"name": "S", "filter_subject": "orders.*"}},
            stored={"S": MOVED, "COPY": {}},
        ),
        moved(
            BOTH,
            COPY | {"mirror": copying("orders.*", "shop.*")["sources"][0]},
            stored={"S": MOVED, "COPY": MOVED},
        ),
        [("error", "mirror-filter", 0, 0), ("warning", "source-stops", 8, 2)],
        [("warning", "mirror-filter")],
    ),
    Mistake(
        "ingress-mismatch",
        ORDERS,
        moved(
            {**BOTH, "subject_transform": {"src": "orders.*", "dest": "kept.$1"}},
            stored={"S": MOVED},
        ),
        KEPT_WELL,
        [("warning", "ingress-stops", 8, 2)],
    ),
    Mistake(
        "ingress-mismatch-from-the-start",
        ORDERS,
        moved(
            {**BOTH, "subject_transform": {"src": "bills.*", "dest": "kept.$1"}},
            stored={"S": MOVED},
        ),
        KEPT_WELL,
        [("warning", "check-unreachable", 0, 0)],
        [("warning", "unreachable")],
    ),
    Mistake(
        "typo-in-a-source",
        ORDERS,
        side('"ordres.*": "shop.$1"', BOTH, stored={"S": ORDERS}),
        MOVED_WELL,
        [("info", "rule-not-seen", 0, 0), ("warning", "unmatched", 8, 2)],
        [CAUGHT],
    ),
    Mistake(
        "mistyped-consumer-filter",
        ORDERS,
        moved(consumers={"S.eu": ["order.eu", "shops.eu"]}, pending={"S.eu": 0}),
        moved(consumers={"S.eu": ["orders.eu", "shop.eu"]}, pending={"S.eu": 5}),
        [("warning", "consumer-never", 0, 0)],
    ),
    Mistake(
        "wrong-account",
        ORDERS,
        moved(holder=OTHER, stored={"S": ORDERS}),
        MOVED_WELL,
        refused="account-without-mappings",
    ),
]
"""A new mistake is a row."""
