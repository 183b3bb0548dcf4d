"""The namespace as a tree of tokens, before and after, with what is at stake in each branch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pyarrow as pa

from nats_transform.mappings.subject import decode
from nats_transform.migration.count import whole
from nats_transform.migration.database import Database
from nats_transform.migration.result import Branch

_MOST = (8, 6, 4, 3)
"""How many branches a branch has, by level: a page of all of them is below half a megabyte."""
DEEP = 500_000
"""With more subjects than this the tree has two levels: others take too long to count."""
# A subject may be no UTF-8. DuckDB's text has escapes for all but ASCII, also for backslashes.
_LEVEL = """
WITH rows AS (
  SELECT {start} AS start, {side} AS subject, parts, uncaptured, merged,
         CASE WHEN after IS NULL THEN parts ELSE 0 END AS lost
  FROM {table}
),
sums AS (
  SELECT {parent} AS parent, split_part(subject::VARCHAR, '.', $1) AS token,
         sum(parts)::HUGEINT AS parts, sum(lost)::HUGEINT AS lost,
         sum(uncaptured)::HUGEINT AS uncaptured, sum(merged)::HUGEINT AS merged
  FROM rows WHERE parent IN (FROM {kept}) AND token <> '' GROUP BY parent, token
)
SELECT parent, count(*),
       arg_min({{token: token, sums: [parts, lost, uncaptured, merged]}}, (-parts, token), $2)
FROM sums GROUP BY parent
"""
_ALL = """
SELECT sum(parts)::HUGEINT, sum(CASE WHEN after IS NULL THEN parts ELSE 0 END)::HUGEINT,
       sum(uncaptured)::HUGEINT, sum(merged)::HUGEINT
FROM flows WHERE {side} IS NOT NULL
"""
# The branch of a subject at each level; `flows` has the first two tokens of all subjects.
_PARENTS = (
    "''",
    "split_part(start::VARCHAR, '.', 1)",
    "start::VARCHAR",
    "start::VARCHAR || '.' || split_part(subject::VARCHAR, '.', 3)",
)


def tree(database: Database, side: Literal["before", "after"], subjects: int) -> Branch:
    """The namespace under the current mapping or under the candidate.

    The largest branches are kept, some levels deep. `flows` has made the tables that it reads.
    """
    (sums,) = database.rows(_ALL.format(side=side))
    if sums[0] is None:  # nothing legal
        return Branch("", 0, 0, 0, 0)
    kept = f"{side}_0"
    database.table(kept, [("",)], name=pa.string())
    below: dict[str, tuple[Sequence[Mapping[str, Any]], int]] = {}
    levels = list(zip(_MOST, _PARENTS, strict=True))
    for level, (most, parent) in enumerate(levels[: 2 if subjects > DEEP else None], 1):
        table, start = ("flows", side) if level <= 2 else ("moves", f"{side}_start")
        query = _LEVEL.format(start=start, side=side, table=table, parent=parent, kept=kept)
        rows = database.rows(query, level, most)
        below |= {name: (largest, count) for name, count, largest in rows}
        kept = f"{side}_{level}"
        names = [(_below(name, b["token"]),) for name, _, largest in rows for b in largest]
        database.table(kept, names, name=pa.string())
    return _branch("", "", sums, below)


def _branch(
    name: str,
    token: str,
    sums: Sequence[int],
    below: Mapping[str, tuple[Sequence[Mapping[str, Any]], int]],
) -> Branch:
    largest, count = below.get(name, ((), 0))
    branches = tuple(
        _branch(_below(name, b["token"]), b["token"], b["sums"], below) for b in largest
    )
    messages, lost, uncaptured, merged = map(whole, sums)
    left_out = count - len(branches)
    return Branch(_token(token), messages, lost, uncaptured, merged, branches, left_out)


def _below(name: str, token: str) -> str:
    return f"{name}.{token}" if name else token


def _token(escaped: str) -> str:
    """A token as everywhere else, from one of DuckDB's."""
    raw = re.sub(
        rb"\\x([0-9A-F]{2})", lambda match: bytes.fromhex(match[1].decode()), escaped.encode()
    )
    return decode(raw)
