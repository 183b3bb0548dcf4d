"""Subjects whose result differs between the mappings, and where their messages go."""

from __future__ import annotations

from collections.abc import Iterator

from nats_transform.errors import shown
from nats_transform.mappings.mapping import Fate
from nats_transform.migration.analysis import Analysis, Draft
from nats_transform.migration.count import PARTS, Count, whole
from nats_transform.migration.database import Database, text
from nats_transform.migration.result import OTHER, Change, Flow

MOST_FLOWS = 20_000
"""If there are more flows, the smallest of them become one."""

_MESSAGES = {
    "lost": "the weights of the candidate lose these messages",
    "illegal-result": "the candidate makes these subjects illegal",
    "illegal-subject": "these archived subjects are not legal",
    "unmatched": "no mapping of the candidate covers these subjects",
    "no-longer-mapped": "the current mapping covers these subjects, and the candidate does not",
}

# Subjects before and after, and what is at stake of their messages. Where weights decide today,
# each result of today goes to each of the candidate.
_MOVES = """
CREATE {view} moves AS
WITH drawn AS (
  SELECT way FROM ways WHERE side = 'before' AND is_legal GROUP BY way HAVING count(*) > 1
),
legal AS (SELECT DISTINCT way FROM ways WHERE is_legal),
moved AS (
  SELECT was AS before, result AS after, was_prefix AS before_start, prefix AS after_start,
         way, number, percent * messages AS parts
  FROM outcomes WHERE side = 'after' AND way IN (FROM legal) AND way NOT IN (FROM drawn)
  UNION ALL
  SELECT b.result, a.result, b.prefix, a.prefix, a.way, a.number,
         b.percent::BIGINT * a.percent * a.messages // 100
  FROM outcomes a JOIN outcomes b USING (row_id)
  WHERE a.side = 'after' AND b.side = 'before'
    AND a.way IN (FROM drawn) AND b.way IN (FROM drawn)
),
nowhere AS (
  SELECT DISTINCT way, number FROM kinds SEMI JOIN (
    SELECT way FROM gains WHERE analysis = 'delivery' AND layer = 0 AND code = 'not-captured'
  ) USING (way)
  WHERE analysis = 'delivery' AND layer = 0 AND code = 'captured' AND side = 'after'
    AND len(kind) = 0
),
shared AS (SELECT result FROM merged WHERE is_new)
SELECT before, after, before_start, after_start, parts,
       CASE WHEN nowhere.way IS NULL THEN 0 ELSE parts END AS uncaptured,
       CASE WHEN nowhere.way IS NULL AND shared.result IS NOT NULL THEN parts ELSE 0 END AS merged
FROM moved LEFT JOIN nowhere USING (way, number) LEFT JOIN shared ON shared.result = hash64(after);
CREATE TABLE flows AS
SELECT before_start AS before, after_start AS after, sum(parts) AS parts,
       sum(uncaptured) AS uncaptured, sum(merged) AS merged
FROM moves GROUP BY ALL
"""


class Changes(Analysis):
    """Counts the subjects and messages that change."""

    name = "changes"
    kinds = """
    SELECT 0, 'changed', []::INT[], [coalesce(result, -1)], way, side, number, percent
    FROM ways WHERE is_legal
    UNION ALL
    SELECT 0, 'lost', [], [], way, side, number, percent FROM ways WHERE is_legal AND fate = 'lost'
    UNION ALL
    SELECT 0, 'illegal-result', [], [], way, side, number, percent
    FROM ways LEFT JOIN forms USING (form)
    WHERE ways.is_legal AND (fate = 'invalid' OR NOT forms.is_legal)
    """
    gains = """
    SELECT layer, code, about, way, number, percent FROM rises WHERE analysis = 'changes'
    UNION ALL
    SELECT 0, 'change', [coalesce(b.share, -1), coalesce(a.share, -1)], a.way, a.number, r.percent
    FROM rises r JOIN ways a ON a.way = r.way AND a.side = 'after' AND a.number = r.number
    JOIN ways b ON b.way = r.way AND b.side = 'before' AND b.number = 0
    WHERE r.code = 'changed'
    UNION ALL
    SELECT 0, 'illegal-subject', [], way, number, 100
    FROM ways WHERE side = 'after' AND NOT is_legal
    UNION ALL
    -- Subjects of the server itself ($KV.>, $O.>) belong to no namespace that moves.
    SELECT 0, CASE WHEN b.mapping < 0 THEN 'unmatched' ELSE 'no-longer-mapped' END, [],
           a.way, a.number, 100
    FROM ways a JOIN ways b ON b.way = a.way AND b.side = 'before' AND b.number = 0
    WHERE a.side = 'after' AND a.is_legal AND len(a.covering) = 0
      AND (b.mapping >= 0 OR NOT a.is_of_server)
    """

    def findings(self, database: Database, layer: int) -> Iterator[Draft]:
        for code, _, count in database.counts(self.name):
            if code in _MESSAGES:
                yield code, "", _MESSAGES[code], count


def changed(database: Database) -> Count:
    """The messages and subjects whose result differs."""
    counts = [count for code, _, count in database.counts(Changes.name) if code == "changed"]
    return counts[0] if counts else Count()


def changes(database: Database, messages: int) -> tuple[Change, ...]:
    """The changes, one for each pair of rules, the largest first."""
    rules = [_rule(*share) for share in database.shares]
    largest = [
        (rules[before] if before >= 0 else None, rules[after] if after >= 0 else None, count)
        for code, about, count in database.counts(Changes.name)
        if code == "change"
        for before, after in [about]
    ]
    largest.sort(key=lambda change: (-change[2].parts, change[0] or "", change[1] or ""))
    total = max(1, messages * PARTS)
    return tuple(
        Change(before, after, whole(n.parts), n.subjects, 100 * n.parts / total, n.examples)
        for before, after, n in largest
    )


def flows(database: Database) -> tuple[Flow, ...]:
    """The flows between prefixes, the largest first.

    The view or table `moves` has them by subject, and the table `flows` keeps them all.
    """
    database.run(_MOVES.format(view=database.view))
    rows = database.rows(
        "FROM flows ORDER BY parts DESC, coalesce(before, ''::BLOB), coalesce(after, ''::BLOB) "
        "LIMIT ?",
        MOST_FLOWS + 1,
    )
    kept = rows if len(rows) <= MOST_FLOWS else rows[: MOST_FLOWS // 2]
    listed = [(text(before), text(after), list(map(int, sums))) for before, after, *sums in kept]
    if len(kept) < len(rows):
        (everything,) = database.rows(
            "SELECT sum(parts)::HUGEINT, sum(uncaptured)::HUGEINT, sum(merged)::HUGEINT FROM flows"
        )
        known = [sum(column) for column in zip(*(sums for *_, sums in listed), strict=True)]
        rest = [whole_sum - sum_ for whole_sum, sum_ in zip(everything, known, strict=True)]
        listed.append((OTHER, OTHER, rest))
        listed.sort(key=lambda flow: -flow[2][0])
    return tuple(Flow(before, after, *map(whole, sums)) for before, after, sums in listed)


def fates(database: Database) -> tuple[dict[str, float], dict[str, float]]:
    """The number of messages of each fate, before and after."""
    rows = database.rows("""
      SELECT side, fate, sum(percent * messages)::HUGEINT
      FROM ways JOIN way_messages USING (way) GROUP BY ALL
    """)
    parts = {(side, fate): int(sum_) for side, fate, sum_ in rows}
    before, after = (
        {fate.value: whole(n) for fate in Fate if (n := parts.get((side, fate.value), 0))}
        for side in ("before", "after")
    )
    return before, after


def _rule(source: str, destination: str | None) -> str:
    if destination == source:  # the remainder of the weights, or the source among its destinations
        return f"{shown(source)}, which keeps the subject"
    return f"{shown(source)} -> {'nobody' if destination is None else shown(destination)}"
