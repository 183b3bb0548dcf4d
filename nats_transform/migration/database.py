"""The tables of a dry run in DuckDB, which runs the queries of the analyses.

What attackers control (subjects, names) is in the tables and never in the text of a query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import duckdb
import pyarrow as pa

from nats_transform.mappings.subject import decode
from nats_transform.migration.connection import connect, in_one_line
from nats_transform.migration.count import Count, whole
from nats_transform.migration.findings import Example
from nats_transform.migration.question import Question

T = TypeVar("T")
Counted: TypeAlias = tuple[str, tuple[int, ...], Count]
"""A code, the numbers of what it is about, and the count."""

FEW = 64 * 2**10
"""Files up to this size, in bytes, have few rows."""

_WHAT = "the dry run's tables cannot be read"
_TABLES = ("ways", "stays", "forms", "receivers")
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


# DuckDB's hash takes 8 bytes at a time and forgets much of the last one, so texts that differ in
# such places often have the same: `test_names_of_one_width_are_different_subjects`. From the fifth
# byte on they are other places. By chance alone, two of 9 million results share it with 2e-6.
_HASH64 = "CREATE MACRO hash64(text) AS hash(text, text[5:])"


class Database:
    """The tables of a dry run.

    Args:
        folder: the folder with the files of the tables; DuckDB writes there too.
        questions: the layers of the question.
        shares: the source and destination of each share of a mapping.
        has_capitals: whether some new subject has a capital letter.

    Attributes:
        view: VIEW, or TABLE where there are few rows: each query plans its views anew, which then
            takes longer than all else.
    """

    def __init__(
        self,
        folder: Path,
        questions: Sequence[Question],
        shares: Sequence[tuple[str, str | None]],
        has_capitals: bool,
    ) -> None:
        self.questions, self.shares, self.has_capitals = questions, shares, has_capitals
        self._connection = connect(folder)
        self._connection.execute(_HASH64)
        files = sorted(folder.glob("*.parquet"))
        has_few = all(file.stat().st_size <= FEW for file in files)
        self.view = "TABLE" if has_few else "VIEW"
        if has_few:
            self._connection.execute("SET threads = 1")  # others would only wait for work
        for file in files:
            relation = self._connection.read_parquet(str(file))
            is_table = has_few or file.stem in _TABLES
            (relation.create if is_table else relation.create_view)(file.stem)
        numbers = [(number,) for number in range(len(questions))]
        self.table("layers", numbers, layer=pa.int32())
        self._once: dict[object, Any] = {}
        self._counts: dict[tuple[str, int], list[Counted]] = {}

    def close(self) -> None:
        """Close the database, which frees its memory and its files."""
        self._connection.close()

    def table(self, name: str, rows: Sequence[tuple[object, ...]], /, **types: pa.DataType) -> None:
        """Make a small table, whose columns have these names and types."""
        columns = list(zip(*rows, strict=True)) or [()] * len(types)
        arrays = [pa.array(c, kind) for c, kind in zip(columns, types.values(), strict=True)]
        self._connection.from_arrow(pa.table(arrays, names=list(types))).create(name)

    def run(self, query: str, *parameters: object) -> None:
        """Run a query without a result."""
        self._ask(query, parameters)

    def rows(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        return self._ask(query, parameters).fetchall()

    def batches(self, query: str) -> Iterator[pa.RecordBatch]:
        """The rows of a query, in Arrow columns; at least one batch."""
        with in_one_line(_WHAT):
            reader = self._connection.sql(query).to_arrow_reader()
            yield pa.RecordBatch.from_pylist([], reader.schema)
            yield from reader

    def _ask(self, query: str, parameters: Sequence[object]) -> duckdb.DuckDBPyConnection:
        with in_one_line(_WHAT):
            return self._connection.execute(query, parameters)

    def once(self, work: Callable[[Database], T]) -> T:
        """What some work on the database gives; it is done the first time only."""
        if work not in self._once:
            self._once[work] = work(self)
        result: T = self._once[work]
        return result

    def clusters(self) -> tuple[str, ...]:
        """The clusters that the census names, sorted."""
        names = self.rows("SELECT DISTINCT cluster FROM ways WHERE cluster <> ''::BLOB")
        return tuple(sorted(decode(name) for (name,) in names))

    def largest_groups(self, query: str, *parameters: object) -> tuple[Example, ...]:
        """Examples of subjects that share something, the largest groups first.

        Args:
            query: gives `share`, `subject_id`, `row_id`, `subject`, `was`, `result` and `parts`.
            parameters: the parameters of the query.
        """
        rows = self.rows(_GROUPS.format(query), *parameters)
        return tuple(example(fields) for (fields,) in rows)

    def counted(self, name: str, layer: int, count: Counted) -> None:
        """Keep a count of an analysis."""
        self._counts.setdefault((name, layer), []).append(count)

    def counts(self, name: str, layer: int = 0) -> list[Counted]:
        """What an analysis counted."""
        return self._counts.get((name, layer), [])


def example(fields: dict[str, Any]) -> Example:
    """An example, from a row of a query."""
    return Example(
        text(fields["subject"]), text(fields["was"]), text(fields["result"]), whole(fields["parts"])
    )


def text(raw: bytes | None) -> str | None:
    """The text of some bytes."""
    return None if raw is None else decode(raw)
