"""Whether new subjects keep to the recommended limits, and how many values each level has."""

from __future__ import annotations

from collections.abc import Iterator

from nats_transform.migration.analysis import Analysis, Draft
from nats_transform.migration.database import Database
from nats_transform.migration.result import Level
from nats_transform.migration.tables.texts import MOST_BYTES, MOST_TOKENS

MOST_VALUES = 10_000
"""Up to this many values of a level are counted; if there are more, it is `at least` this many."""

_LEVELS = 16
_MESSAGES = {
    "too-many-tokens": f"these new subjects have more than {MOST_TOKENS} tokens",
    "too-long": f"these new subjects are longer than {MOST_BYTES} bytes",
}

_PREFIXES = "SELECT CASE $3 WHEN 'before' THEN before ELSE after END AS text FROM flows"
_RESULTS = "SELECT result AS text FROM outcomes WHERE side = $3"


class Hygiene(Analysis):
    """Counts subjects that are too long."""

    name = "hygiene"
    kinds = """
    SELECT 0, 'too-many-tokens', []::INT[], []::INT[], way, side, number, percent
    FROM ways JOIN forms USING (form) WHERE has_many_tokens
    UNION ALL
    SELECT 0, 'too-long', [], [], way, side, number, percent
    FROM ways JOIN forms USING (form) WHERE is_long
    """
    gains = "SELECT layer, code, about, way, number, percent FROM rises WHERE analysis = 'hygiene'"

    def findings(self, database: Database, layer: int) -> Iterator[Draft]:
        for code, _, count in database.counts(self.name):
            yield code, "", _MESSAGES[code], count


def levels(database: Database, most_tokens: int) -> tuple[Level, ...]:
    """How many different tokens each level has, until `MOST_VALUES` are found."""
    return tuple(
        Level(level, *(_values(database, level, side) for side in ("before", "after")))
        for level in range(1, min(_LEVELS, most_tokens) + 1)
    )


def _values(database: Database, level: int, side: str) -> int:
    # The first two tokens of all subjects are in `flows` already.
    texts = _PREFIXES if level <= 2 else _RESULTS
    ((count,),) = database.rows(
        f"""
        SELECT count(*) FROM (
          SELECT DISTINCT split_part(text::VARCHAR, '.', $1) AS token FROM ({texts})
          WHERE text IS NOT NULL AND token <> '' LIMIT $2
        )
        """,  # noqa: S608 - our own text
        level,
        MOST_VALUES,
        side,
    )
    return int(count)
