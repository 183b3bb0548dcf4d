"""Mistakes that people make in migrations: tests/cases/mistakes.yaml, and what takes numbers.

A side is what somebody rolls out: mappings, streams, consumers, permissions. A mistake says what
`check` and the dry run must find on its wrong side, and what a real nats-server then does; on the
right side nothing is found. `current` is in force before, where it is not "".
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scipy.stats import binom

from tests.cases import load

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

    @classmethod
    def counts(cls, seen: Any) -> Any:
        """What a server does, with each count such as `70 % of 1000` in its place."""
        if isinstance(seen, dict):
            return {name: cls.counts(value) for name, value in seen.items()}
        drawn = re.fullmatch(r"(\d+) % of (\d+)", str(seen))
        return cls(int(drawn[2]), int(drawn[1])) if drawn else seen

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


def side(given: Mapping[str, Any]) -> Side:
    """A side of a row: what is no field of it is what the server does."""
    both = {"name": "S", "subjects": ["orders.*", "shop.*"]}
    told = {"mappings": '"orders.*": "shop.$1"', "streams": [both], **given}
    seen = {name: told.pop(name) for name in [*told] if name not in Side.__dataclass_fields__}
    return Side(**told, seen=About.counts(seen))


def mistake(row: dict[str, Any]) -> Mistake:
    """A row of tests/cases/mistakes.yaml."""
    tables = {name: [*map(tuple, row[name])] for name in row.keys() & {"finds", "checks", "notes"}}
    sides = {name: side(row[name]) for name in ("wrong", "right")}
    return Mistake(**({"census": {"orders.eu": 5, "orders.us": 3}} | row | tables | sides))


def fnv(key: object) -> int:
    """FNV-1a in 32 bits, written anew."""
    value = 0x811C9DC5
    for byte in str(key).encode():
        value = (value ^ byte) * 0x01000193 % 2**32
    return value


KEYS = {f"k.{n}": 1 for n in range(1, 41)}
MOVING = sum(fnv(n) % 3 != fnv(n) % 4 for n in range(1, 41))
PAIRS = range(30)
HALF = About(30, 50, sure=30)
OLD_PAIRS = {"name": "S", "subjects": ["old.>", "one.>", "two.>"]}


def in_pairs(end: str, **tokens: object) -> Side:
    """A side with two mappings for each number; `end` is how the source of the second ends."""
    lines = [f'"old.{n}.*.y": "one.{n}.$1", "old.{n}.{end}": "two.{n}.$1"' for n in PAIRS]
    return Side("\n".join(lines), [OLD_PAIRS], seen={"tokens": {"S": tokens}})


def partitioned(prefix: str, count: int, *subjects: str) -> Side:
    """A side that puts the keys into so many partitions."""
    stored = {f"{prefix}.{fnv(n) % count}.{n}": 1 for n in range(1, 41)}
    config = {"name": "S", "subjects": ["k.*", *subjects]}
    mapping = f'"k.*": "{prefix}.{{{{partition({count},1)}}}}.$1"'
    return Side(mapping, [config], seen={"stored": {"S": stored}})


MISTAKES = [
    *map(mistake, load("mistakes.yaml")),
    Mistake(
        # nats-server tries them in an order of its own: some pairs go one way, some the other.
        "overlapping-sources",
        {f"old.{n}.{end}": 1 for n in PAIRS for end in ("x.y", "x.z", "z.y")},
        in_pairs("x.*", one=HALF, two=HALF),
        in_pairs("*.z", one=60, two=30),
        [("warning", "rule-overlap", 1, 1)] * 30,
        [("warning", "overlap")] * 30,
    ),
    Mistake(
        "partition-change",
        KEYS,
        partitioned("p", 4, "p.>"),
        partitioned("q", 3, "p.>", "q.>"),
        [("warning", "partition-moves", MOVING, MOVING)],
        current='"k.*": "p.{{partition(3,1)}}.$1"',
    ),
]
"""A new mistake is a row."""
