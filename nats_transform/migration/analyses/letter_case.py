"""New subjects that differ only in the case of letters.

nats-server tells them apart. A mistyped destination or a publisher that writes `EU` for `eu` splits
a stream of messages in two, and what stores subjects as names of files on a disk that takes both
for one, or in a table that compares without case, puts them together.
"""

from __future__ import annotations

from collections.abc import Iterator

from nats_transform.migration.analysis import Analysis, Draft
from nats_transform.migration.count import Count
from nats_transform.migration.database import Database

# Only what the mappings change, so that nothing is said of subjects that are so today.
_TWINS = """
SELECT hash64(lower(result::VARCHAR)) AS share, subject_id, row_id, subject, was, result,
       percent::BIGINT * messages AS parts
FROM outcomes WHERE side = 'after' AND result IS NOT NULL
"""


class LetterCase(Analysis):
    """Counts the new subjects that are one without the case of their letters."""

    name = "letter case"

    def findings(self, database: Database, layer: int) -> Iterator[Draft]:
        if not database.has_capitals:
            return
        database.run(f"""
        CREATE TABLE twins AS
        SELECT share FROM ({_TWINS} AND result <> was)
        WHERE share IN (
          SELECT share FROM ({_TWINS}) WHERE lower(result::VARCHAR) <> result::VARCHAR
        )
        GROUP BY share HAVING min(result) <> max(result)
        """)  # noqa: S608 - our own text
        ((groups, subjects, parts),) = database.rows(f"""
        SELECT count(DISTINCT share), count(DISTINCT subject_id), coalesce(sum(parts), 0)::HUGEINT
        FROM ({_TWINS}) SEMI JOIN twins USING (share)
        """)  # noqa: S608 - our own text
        if groups:
            examples = database.largest_groups(f"FROM ({_TWINS}) SEMI JOIN twins USING (share)")
            message = f"these new subjects are {groups:,} without the case of their letters"
            yield "letter-case", "", message, Count(int(parts), subjects, examples)
