"""The tables of a dry run in DuckDB, which runs the queries of the analyses.

What attackers control (subjects, names) is in the tables and never in the text of a query.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import duckdb
import pyarrow as pa

from nats_transform.errors import NatsTransformError
from nats_transform.migration.count import Count, whole
from nats_transform.migration.findings import Example
from nats_transform.migration.question import Question
from nats_transform.subject import decode

T = TypeVar("T")

MEMORY = "200MB"
"""What DuckDB may use. Beyond that it writes into the folder of the tables."""

_SMALL = ("ways", "forms", "receivers")
_GAINS = """
CREATE TABLE kinds (analysis VARCHAR, layer INT, code VARCHAR, about INT[], kind INT[], way INT,
                    side VARCHAR, number INT, percent INT);
CREATE TABLE gains (analysis VARCHAR, layer INT, code VARCHAR, about INT[], way INT, number INT,
                    percent INT);
"""
# Kinds of ends that become likelier, each with the likeliest of these ends and with the gain.
_RISES = """
CREATE TABLE rises AS
SELECT analysis, layer, code, about, kind, way,
       arg_max(number, (percent, -number)) FILTER (side = 'after') AS number,
       sum(percent) FILTER (side = 'after')
       - coalesce(sum(percent) FILTER (side = 'before'), 0) AS percent
FROM kinds GROUP BY ALL HAVING percent > 0
"""
# What every end of every way has of messages, subjects with one row, and the largest subjects.
# The rows of a subject in several clusters that look the same are one example.
_COUNTED = """
CREATE TABLE counted AS
WITH ends AS NOT MATERIALIZED (FROM outcomes WHERE side = 'after'),
shown AS (
  SELECT way, number, messages, subject, was, result FROM ends WHERE rows = 1
  UNION ALL
  SELECT DISTINCT way, number, messages, subject, was, result FROM ends WHERE rows > 1
),
largest AS (
  SELECT way, number, arg_min({messages: messages, subject: subject, was: was, result: result},
                              (-messages, coalesce(subject, ''::BLOB), coalesce(result, ''::BLOB)),
                              5) AS examples
  FROM shown GROUP BY ALL
),
sums AS (
  SELECT way, number, sum(messages)::BIGINT AS messages, count(*) FILTER (rows = 1) AS alone
  FROM ends GROUP BY ALL
)
FROM sums JOIN largest USING (way, number)
"""
_WAY_MESSAGES = """
CREATE TABLE way_messages AS
SELECT way, messages FROM counted JOIN ways USING (way, number)
WHERE side = 'after' AND is_likeliest
"""
_COUNTS = """
WITH own AS (
  SELECT *, row_number() OVER (PARTITION BY analysis, layer, code, about, way ORDER BY number) = 1
            AS is_first
  FROM gains
),
several AS (
  SELECT analysis, layer, code, about, count(DISTINCT subject_id) AS subjects
  FROM gains JOIN outcomes USING (way, number) WHERE side = 'after' AND rows > 1 GROUP BY ALL
),
sums AS (
  SELECT analysis, layer, code, about, sum(messages * percent) AS parts,
         sum(alone) FILTER (is_first) AS alone
  FROM own JOIN counted USING (way, number) GROUP BY ALL
),
shown AS (
  SELECT DISTINCT analysis, layer, code, about, e.messages * percent AS parts, e.subject, e.was,
                  e.result
  FROM gains JOIN counted USING (way, number), unnest(examples) AS t(e)
),
largest AS (
  SELECT analysis, layer, code, about,
         arg_min({subject: subject, was: was, result: result, parts: parts},
                 (-parts, coalesce(subject, ''::BLOB), coalesce(result, ''::BLOB)), 5) AS examples
  FROM shown GROUP BY ALL
)
SELECT analysis, layer, code, about, parts::HUGEINT, (alone + coalesce(subjects, 0))::HUGEINT,
       examples
FROM sums LEFT JOIN several USING (analysis, layer, code, about)
JOIN largest USING (analysis, layer, code, about)
"""


# Two examples of each group are enough to show what the group is.
_GROUPS = """
WITH members AS (
  SELECT share, subject_id, sum(parts)::HUGEINT AS parts, any_value(subject) AS subject,
         arg_min(was, row_id) AS was, any_value(result) AS result
  FROM ({}) GROUP BY share, subject_id
),
ordered AS (
  SELECT *, sum(parts) OVER (PARTITION BY share) AS of_group,
         row_number() OVER (PARTITION BY share ORDER BY parts DESC, subject, result) AS place
  FROM members
)
SELECT {{subject: subject, was: was, result: result, parts: parts}} FROM ordered WHERE place <= 2
ORDER BY of_group DESC, share, place LIMIT 5
"""


class HasGains(Protocol):
    """What the counting needs of an analysis: its name, and the text of its queries.

    Attributes:
        kinds: a query for kinds of ends; `rises` has those that become likelier.
        gains: a query for ends that the analysis counts, with the percent of their messages.
    """

    name: ClassVar[str]
    kinds: ClassVar[str]
    gains: ClassVar[str]

    def prepare(self, database: Database) -> None:
        """Make the small tables that the queries need."""


class Database:
    """The tables of a dry run.

    Args:
        folder: the folder with the files of the tables; DuckDB writes there too.
        questions: the layers of the question.
        shares: the source and destination of each share of a mapping.
        has_capitals: whether some new subject has a capital letter.
    """

    def __init__(
        self,
        folder: Path,
        questions: Sequence[Question],
        shares: Sequence[tuple[str, str | None]],
        has_capitals: bool,
    ) -> None:
        self.questions, self.shares, self.has_capitals = questions, shares, has_capitals
        self._connection = duckdb.connect(
            ":memory:",
            config={
                "memory_limit": MEMORY,
                "threads": min(4, os.cpu_count() or 1),
                "temp_directory": str(folder / "spill"),
                "preserve_insertion_order": False,
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
            },
        )
        for file in sorted(folder.glob("*.parquet")):
            relation = self._connection.read_parquet(str(file))
            (relation.create if file.stem in _SMALL else relation.create_view)(file.stem)
        numbers = [(number,) for number in range(len(questions))]
        self.table("layers", pa.schema({"layer": pa.int32()}), numbers)
        self._once: dict[object, Any] = {}
        self._counts: dict[tuple[str, int], list[tuple[str, tuple[int, ...], Count]]] = {}

    def close(self) -> None:
        """Close the database, which frees its memory and its files."""
        self._connection.close()

    def table(self, name: str, schema: pa.Schema, rows: Sequence[tuple[object, ...]]) -> None:
        """Make a small table."""
        columns = list(zip(*rows, strict=True)) or [()] * len(schema)
        arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
        self._connection.from_arrow(pa.table(arrays, schema=schema)).create(name)

    def run(self, query: str, *parameters: object) -> None:
        """Run a query without a result."""
        self._ask(query, parameters)

    def rows(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        return self._ask(query, parameters).fetchall()

    def _ask(self, query: str, parameters: Sequence[object]) -> duckdb.DuckDBPyConnection:
        try:
            return self._connection.execute(query, parameters)
        except (duckdb.OutOfMemoryException, duckdb.IOException) as error:
            reason = str(error).partition("\n")[0]
            raise NatsTransformError(
                f"the tables of the dry run cannot be read: {reason}; make room for temporary "
                "files, or set TMPDIR to a folder that has room"
            ) from error

    def once(self, work: Callable[[Database], T]) -> T:
        """What some work on the database gives; it is done the first time only."""
        if work not in self._once:
            self._once[work] = work(self)
        found: T = self._once[work]
        return found

    def largest_groups(self, query: str, *parameters: object) -> tuple[Example, ...]:
        """Examples of subjects that share something, the largest groups first.

        Args:
            query: gives `share`, `subject_id`, `row_id`, `subject`, `was`, `result` and `parts`.
            parameters: the parameters of the query.
        """
        rows = self.rows(_GROUPS.format(query), *parameters)
        return tuple(example(found) for (found,) in rows)

    def count(self, analyses: Sequence[HasGains]) -> None:
        """Count what the analyses want to know of the ends of ways, all in one reading."""
        self.run(_GAINS)
        for one in analyses:
            one.prepare(self)
            if one.kinds:
                self.run(f"INSERT INTO kinds SELECT '{one.name}', * FROM ({one.kinds})")  # noqa: S608 - our own text
        self.run(_RISES)
        for one in analyses:
            if one.gains:
                self.run(f"INSERT INTO gains SELECT '{one.name}', * FROM ({one.gains})")  # noqa: S608 - our own text
        self.run(_COUNTED)
        self.run(_WAY_MESSAGES)
        for name, layer, code, about, parts, subjects, examples in self.rows(_COUNTS):
            count = Count(int(parts), int(subjects), tuple(map(example, examples)))
            self._counts.setdefault((name, layer), []).append((code, tuple(about), count))

    def counts(self, name: str, layer: int = 0) -> list[tuple[str, tuple[int, ...], Count]]:
        """What an analysis counted: codes, the numbers of what they are about, and counts."""
        return self._counts.get((name, layer), [])


def example(found: dict[str, Any]) -> Example:
    """An example, from a row of a query."""
    return Example(
        text(found["subject"]), text(found["was"]), text(found["result"]), whole(found["parts"])
    )


def text(raw: bytes | None) -> str | None:
    """The text of some bytes."""
    return None if raw is None else decode(raw)
