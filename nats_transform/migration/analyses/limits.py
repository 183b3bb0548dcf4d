"""Streams that will drop or refuse more messages, because subjects share a limit."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from nats_transform.errors import shown
from nats_transform.migration.analysis import Analysis, Draft
from nats_transform.migration.count import PARTS, Count, messages
from nats_transform.migration.database import Database
from nats_transform.streams.stream import StreamConfig

# Results with more messages than the least limit, or that a stream also stores by other names. A
# result that leads back to its subject is shared only with results that do not, so most need no
# grouping: see `collisions`.
_CROWDED = """
CREATE TABLE crowded AS
WITH kept AS (
  SELECT DISTINCT form FROM receivers r JOIN limited l
  ON l.layer = r.layer AND l.stream = r.receiver WHERE how = 'keeps'
),
ends AS NOT MATERIALIZED (
  SELECT o.side, hash64(o.result) AS stored, o.form, w.comes_back, w.draws, rows, subject_id,
         messages, o.percent
  FROM outcomes o JOIN ways w USING (side, way, number)
  WHERE o.form IN (FROM kept)
),
stray AS (
  SELECT DISTINCT stored FROM ends WHERE NOT comes_back
  UNION SELECT hash64(stored) FROM renamed
)
SELECT side, stored, any_value(form) AS form, any_value(draws) AS draws,
       sum(percent::BIGINT * messages) AS parts,
       min(subject_id) AS first, max(subject_id) AS last
FROM ends
WHERE rows > 1 OR 100 * messages > (SELECT min(room) FROM limited) OR stored IN (FROM stray)
GROUP BY side, stored
HAVING parts > (SELECT min(room) FROM limited)
    OR stored IN (SELECT hash64(stored) FROM renamed)
"""
_OVER = """
CREATE OR REPLACE TABLE over AS
WITH stored AS (
  SELECT side, stored, draws, parts, first, last FROM crowded JOIN receivers USING (form)
  WHERE how = 'keeps' AND layer = $1 AND receiver = $2
  UNION ALL
  SELECT side, hash64(stored), draws, percent::BIGINT * messages, subject_id, subject_id
  FROM renamed WHERE layer = $1 AND stream = $2
)
-- The numbers of a `random()` share the messages equally, and each has the room of a subject.
SELECT side, stored, sum(parts) - $3::HUGEINT * max(draws) AS parts,
       min(first) <> max(last) AS is_shared
FROM stored GROUP BY side, stored HAVING sum(parts) > $3::HUGEINT * max(draws)
"""
_STORED = """
SELECT hash64(result) AS share, subject_id, row_id, subject, was, result,
       percent::BIGINT * messages AS parts
FROM outcomes JOIN receivers USING (form)
WHERE side = 'after' AND how = 'keeps' AND layer = $1 AND receiver = $2
UNION ALL
SELECT hash64(stored), subject_id, 0, subject, was, stored, percent::BIGINT * messages
FROM renamed WHERE side = 'after' AND layer = $1 AND stream = $2
"""


class Limits(Analysis):
    """Counts the messages beyond the limits of streams, without those that are so today."""

    name = "limits"
    is_layered = True

    def prepare(self, database: Database) -> bool:
        limited = [
            (layer, number, stream.max_msgs_per_subject * PARTS)
            for layer, question in enumerate(database.questions)
            for number, stream in enumerate(question.streams)
            if stream.max_msgs_per_subject > 0
        ]
        database.table("limited", limited, layer=pa.int32(), stream=pa.int32(), room=pa.int64())
        if limited:
            database.run(_CROWDED)
        return bool(limited)

    def findings(self, database: Database, layer: int) -> Iterator[Draft]:
        for number, stream in enumerate(database.questions[layer].streams):
            if stream.max_msgs_per_subject > 0:
                yield from self._of_stream(database, layer, number, stream)

    def _of_stream(
        self, database: Database, layer: int, number: int, stream: StreamConfig
    ) -> Iterator[Draft]:
        database.run(_OVER, layer, number, stream.max_msgs_per_subject * PARTS)
        ((rise,),) = database.rows(
            "SELECT coalesce(sum(CASE side WHEN 'after' THEN parts ELSE -parts END), 0)::HUGEINT "
            "FROM over"
        )
        if rise <= 0:
            return
        # Not every subject that is over the limit shares it with another.
        ((subjects,),) = database.rows(
            f"SELECT count(*) FROM (SELECT DISTINCT share, subject_id FROM ({_STORED}) "  # noqa: S608
            "WHERE share IN (SELECT stored FROM over WHERE side = 'after' AND is_shared))",
            layer,
            number,
        )
        largest = database.rows("""
        SELECT stored FROM over WHERE side = 'after' AND is_shared
        ORDER BY parts DESC, stored LIMIT 5
        """)
        examples = database.largest_groups(
            f"FROM ({_STORED}) WHERE share IN (SELECT unnest($3))",
            layer,
            number,
            [entry for (entry,) in largest],
        )
        code = "limit-refuses" if stream.discard_new_per_subject else "limit-discards"
        message = f"the stream keeps {stream.max_msgs_per_subject:,} messages of each subject, and "
        message += f"some subjects become one: {messages(int(rise))} more are "
        message += "refused" if stream.discard_new_per_subject else "discarded"
        count = Count(int(rise), subjects, examples)
        yield code, f"stream {shown(stream.name)}", message, count
