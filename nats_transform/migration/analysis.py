"""The interface of the analyses of a dry run, and the counting for them all in one reading."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar, TypeAlias

from nats_transform.migration.count import Count
from nats_transform.migration.database import Database, example

Draft: TypeAlias = tuple[str, str, str, Count]
"""What a finding is made from: its code, what it is about, its message and its count."""


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


class Analysis(ABC):
    """One part of a dry run: queries over the tables, and the text of the findings.

    Attributes:
        name: the name of the analysis.
        is_layered: whether it looks at streams, consumers, users or other accounts, which differ
            between the layers of a question.
        kinds: a query for kinds of ends; the table `rises` has those that become likelier, and with
            which end and percent. Columns: `layer`, `code`, `about` and `kind` (numbers), `way`,
            `side`, `number`, `percent`.
        gains: a query for the ends that are counted, with the percent of their messages. Columns:
            `layer`, `code`, `about`, `way`, `number` of an end after the switch, `percent`.
    """

    name: ClassVar[str]
    is_layered: ClassVar[bool] = False
    kinds: ClassVar[str] = ""
    gains: ClassVar[str] = ""

    def prepare(self, database: Database) -> bool:
        """Make the small tables that the queries need.

        Returns:
            whether there is something to look at. Otherwise the queries are not run: DuckDB needs
            longer to plan one than to find that a table is empty.
        """
        return True

    @abstractmethod
    def findings(self, database: Database, layer: int) -> Iterator[Draft]:
        """The findings in a layer. `database.counts` has the sums of `gains`."""


def count_ends(database: Database, analyses: Sequence[Analysis]) -> Sequence[Analysis]:
    """Count what analyses want to know of the ends of ways, all in one reading.

    Returns:
        the analyses that have something to look at.
    """
    database.run(_GAINS)
    analyses = [analysis for analysis in analyses if analysis.prepare(database)]
    for analysis in analyses:
        if analysis.kinds:
            database.run(f"INSERT INTO kinds SELECT '{analysis.name}', * FROM ({analysis.kinds})")  # noqa: S608 - our own text
    database.run(_RISES)
    for analysis in analyses:
        if analysis.gains:
            database.run(f"INSERT INTO gains SELECT '{analysis.name}', * FROM ({analysis.gains})")  # noqa: S608 - our own text
    database.run(_COUNTED)
    database.run(_WAY_MESSAGES)
    for name, layer, code, about, parts, subjects, examples in database.rows(_COUNTS):
        count = Count(int(parts), int(subjects), tuple(map(example, examples)))
        database.counted(name, layer, (code, tuple(about), count))
    return analyses
