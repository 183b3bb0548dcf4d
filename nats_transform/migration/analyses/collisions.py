"""Different subjects that become the same, and the number of distinct subjects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from nats_transform.errors import shown
from nats_transform.mappings.mapping import Mapping
from nats_transform.mappings.symbolic import dropped
from nats_transform.migration.analysis import Analysis, Draft
from nats_transform.migration.count import EXAMPLES, Count
from nats_transform.migration.database import Database

MOST_MAPPINGS = 200
"""Up to this many mappings get a finding of their own for each code; the rest share one."""

# Hashes stand for results, see `Database`.
# A result that leads back to its subject is shared only if it is also the result of a subject to
# which it does not lead back, so most results need no grouping.
_MERGED = """
CREATE TABLE merged AS
WITH stray AS (
  SELECT DISTINCT hash64(o.result) AS result FROM outcomes o JOIN ways w USING (way, number)
  WHERE o.side = 'after' AND w.side = 'after' AND NOT comes_back AND w.result IS NOT NULL
),
members AS (
  SELECT hash64(o.result) AS result, subject_id, coalesce(min(covering[1]), -1) AS mapping,
         sum(o.percent::BIGINT * messages) AS parts
  FROM outcomes o JOIN ways w USING (way, number)
  WHERE o.side = 'after' AND w.side = 'after' AND w.result IS NOT NULL
    AND hash64(o.result) IN (FROM stray)
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


# The first and the last of the mappings that make the results; those with few messages together.
_BY_MAPPINGS = """
WITH pairs AS (
  SELECT first, last, sum(parts)::HUGEINT AS parts, sum(subjects)::BIGINT AS subjects,
         count(*) AS results, arg_min(result, (-parts, result), 5) AS largest,
         row_number() OVER (ORDER BY sum(parts) DESC, first, last) AS place
  FROM merged WHERE is_new = $1 GROUP BY first, last
)
SELECT CASE WHEN place <= $2 THEN [first, last] END AS mappings, sum(parts)::HUGEINT,
       sum(subjects)::BIGINT, sum(results)::BIGINT, arg_min(largest, place)
FROM pairs GROUP BY mappings ORDER BY min(place)
"""


_SHARED = """
SELECT hash64(result) AS share, subject_id, row_id, subject, was, result,
       percent::BIGINT * messages AS parts
FROM outcomes WHERE side = 'after' AND hash64(result) IN (SELECT unnest($1))
"""


class Distinct(NamedTuple):
    """How many distinct results there are; `drawn` counts each text of a `random()`."""

    before: int
    after: int
    drawn: int


class Collisions(Analysis):
    """Counts the subjects that share a result with others."""

    name = "collisions"

    def findings(self, database: Database, layer: int) -> Iterator[Draft]:
        database.run(_MERGED)
        for is_new, code in ((True, "collision"), (False, "collision-already")):
            for numbers, parts, subjects, results, largest in database.rows(
                _BY_MAPPINGS, is_new, MOST_MAPPINGS
            ):
                message = f"{subjects:,} subjects become {results:,}"
                known = database.questions[0].candidate.mappings
                mappings = [known[number] for number in sorted(set(numbers or ())) if number >= 0]
                if dropped := _dropped(mappings):
                    message += f", because the new subject leaves out {dropped}"
                count = Count(int(parts), subjects, database.largest_groups(_SHARED, largest))
                yield code, _about(numbers, mappings), message, count


def count_distinct(database: Database) -> Distinct:
    """How many distinct subjects there are."""
    before, after = (
        database.rows(
            "SELECT count(DISTINCT hash64(result)) FROM outcomes "
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
      SELECT subject_id, hash64(result), max(draws) AS draws,
             sum(percent::BIGINT * messages)::HUGEINT AS parts
      FROM outcomes JOIN ends USING (way, number) WHERE side = 'after' GROUP BY ALL
    )
    """)
    return Distinct(before, after, after + int(drawn))


class Explosion(Analysis):
    """Says when there will be far more subjects than today."""

    name = "explosion"

    def findings(self, database: Database, layer: int) -> Iterator[Draft]:
        distinct = database.once(count_distinct)
        if distinct.drawn > 2 * max(distinct.before, distinct.after):
            message = f"there can be up to {distinct.drawn:,} distinct subjects, and "
            message += f"today there are {distinct.before:,}"
            yield "subject-explosion", "", message, Count()


def _about(numbers: Sequence[int] | None, mappings: Sequence[Mapping]) -> str:
    if numbers is None:
        return "other mappings"
    about = " and ".join(f"mapping {shown(mapping.source)}" for mapping in mappings)
    if -1 not in numbers:
        return about
    return f"{about} and subjects without a mapping" if about else "subjects without a mapping"


def _dropped(mappings: Iterable[Mapping]) -> str:
    """The wildcards that a destination of some mappings leaves out."""
    wildcards = {
        f"wildcard {number} of {shown(mapping.source)}": None
        for mapping in mappings
        for transform in mapping.transforms
        for number, _ in dropped(transform)
    }
    return ", ".join(list(wildcards)[:EXAMPLES])
