"""Different subjects that become the same, and the number of distinct subjects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from nats_transform.errors import shown
from nats_transform.mapping import Mapping
from nats_transform.migration.analysis import Analysis, Told
from nats_transform.migration.count import EXAMPLES, Count
from nats_transform.migration.database import Database
from nats_transform.symbolic import dropped

MOST_MAPPINGS = 200
"""Up to this many mappings get a finding of their own for each code; the rest share one."""

# Hashes of 64 bits stand for results. The chance that two of 9 million have the same is 2e-6.
# A result that leads back to its subject is shared only if it is also the result of a subject to
# which it does not lead back, so most results need no grouping.
_MERGED = """
CREATE TABLE merged AS
WITH stray AS (
  SELECT DISTINCT hash(o.result) AS result FROM outcomes o JOIN ways w USING (way, number)
  WHERE o.side = 'after' AND w.side = 'after' AND NOT comes_back AND w.result IS NOT NULL
),
members AS (
  SELECT hash(o.result) AS result, subject_id, coalesce(min(covering[1]), -1) AS mapping,
         sum(o.percent::BIGINT * messages) AS parts
  FROM outcomes o JOIN ways w USING (way, number)
  WHERE o.side = 'after' AND w.side = 'after' AND w.result IS NOT NULL
    AND hash(o.result) IN (FROM stray)
  GROUP BY ALL
),
-- Subjects that the current mapping merges too have a result today that all of them have.
before AS (
  SELECT result, max(subjects) AS subjects FROM (
    SELECT m.result, b.result AS was, count(DISTINCT m.subject_id) AS subjects
    FROM members m JOIN outcomes b USING (subject_id)
    WHERE b.side = 'before' AND b.result IS NOT NULL GROUP BY ALL
  ) GROUP BY ALL
)
SELECT result, min(mapping) AS first, max(mapping) AS last, sum(parts) AS parts,
       count(*) AS subjects, count(*) <> coalesce(max(before.subjects), 0) AS is_new
FROM members LEFT JOIN before USING (result) GROUP BY ALL HAVING count(*) > 1
"""


@dataclass(frozen=True, slots=True)
class _Merged:
    """Subjects that become the same as others because of the same mapping or mappings.

    Attributes:
        mappings: the numbers of the first and the last of the candidate's mappings that make them;
            -1 stands for no mapping.
        parts: the number of messages, in parts.
        subjects: the number of subjects that are merged.
        results: the number of subjects that they become.
        largest: the results with the most messages.
    """

    mappings: tuple[int, int]
    parts: int
    subjects: int
    results: int
    largest: list[int]


_OTHERS = (-2, -2)
"""This stands for all further mappings, if there are too many to tell each apart."""


@dataclass(frozen=True, slots=True)
class Distinct:
    """How many distinct subjects there are.

    Attributes:
        before, after: the number under the current mapping and under the candidate, where a
            `random()` counts as one text.
        drawn: the number under the candidate, with the different texts of every `random()`.
    """

    before: int
    after: int
    drawn: int


class Collisions(Analysis):
    """Counts the subjects that share a result with others."""

    name = "collisions"

    def findings(self, database: Database, layer: int) -> Iterator[Told]:
        database.run(_MERGED)
        for is_new, code in ((True, "collision"), (False, "collision-already")):
            rows = database.rows(
                """
                SELECT first, last, sum(parts)::HUGEINT, sum(subjects)::BIGINT, count(*),
                       arg_min(result, (-parts, result), 5)
                FROM merged WHERE is_new = ? GROUP BY ALL ORDER BY sum(parts) DESC, first, last
                """,
                is_new,
            )
            merged = [_Merged((first, last), *rest) for first, last, *rest in rows]
            for one in _folded(merged):
                yield self._told(database, code, one)

    def _told(self, database: Database, code: str, one: _Merged) -> Told:
        candidate = database.questions[0].candidate
        message = f"{one.subjects:,} subjects become {one.results:,}"
        mappings = [candidate.mappings[n] for n in sorted(set(one.mappings)) if n >= 0]
        if dropped := _dropped(mappings):
            message += f"; the new subject leaves out {dropped}"
        examples = database.largest_groups(
            """
            SELECT hash(result) AS share, subject_id, row_id, subject, was, result,
                   percent::BIGINT * messages AS parts
            FROM outcomes WHERE side = 'after' AND hash(result) IN (SELECT unnest($1))
            """,
            one.largest,
        )
        return code, _about(one, mappings), message, Count(int(one.parts), one.subjects, examples)


def count_distinct(database: Database) -> Distinct:
    """How many distinct subjects there are."""
    before, after = (
        database.rows(
            "SELECT count(DISTINCT hash(result)) FROM outcomes "
            "WHERE side = ? AND result IS NOT NULL",
            side,
        )[0][0]
        for side in ("before", "after")
    )
    ((drawn,),) = database.rows("""
    WITH ends AS (
      SELECT way, number, draws FROM ways WHERE side = 'after' AND draws > 1 AND result IS NOT NULL
    )
    SELECT coalesce(sum(least(draws, (parts + 99) // 100) - 1), 0)::HUGEINT FROM (
      SELECT subject_id, hash(result), max(draws) AS draws,
             sum(percent::BIGINT * messages)::HUGEINT AS parts
      FROM outcomes JOIN ends USING (way, number) WHERE side = 'after' GROUP BY ALL
    )
    """)
    return Distinct(before, after, after + int(drawn))


class Explosion(Analysis):
    """Says when there will be far more subjects than today."""

    name = "explosion"

    def findings(self, database: Database, layer: int) -> Iterator[Told]:
        distinct = database.once(count_distinct)
        if distinct.drawn > 2 * max(distinct.before, distinct.after):
            message = f"there can be up to {distinct.drawn:,} distinct subjects; "
            message += f"today there are {distinct.before:,}"
            yield "subject-explosion", "", message, Count()


def _about(one: _Merged, mappings: Sequence[Mapping]) -> str:
    if one.mappings == _OTHERS:
        return "other mappings"
    about = " and ".join(f"mapping {shown(mapping.source)}" for mapping in mappings)
    if -1 not in one.mappings:
        return about
    return f"{about} and subjects without a mapping" if about else "subjects without a mapping"


def _dropped(mappings: Iterable[Mapping]) -> str:
    """The wildcards that a destination of some mappings leaves out."""
    found = {
        f"wildcard {number} of {shown(mapping.source)}": None
        for mapping in mappings
        for transform in mapping.transforms
        for number, _ in dropped(transform)
    }
    return ", ".join(list(found)[:EXAMPLES])


def _folded(merged: list[_Merged]) -> list[_Merged]:
    """The largest entries, and one entry for all others together."""
    rest = merged[MOST_MAPPINGS:]
    if not rest:
        return merged
    total = _Merged(
        _OTHERS,
        sum(one.parts for one in rest),
        sum(one.subjects for one in rest),
        sum(one.results for one in rest),
        rest[0].largest,
    )
    return [*merged[:MOST_MAPPINGS], total]
