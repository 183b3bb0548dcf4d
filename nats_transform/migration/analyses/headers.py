"""Messages whose headers hold a position in a subject or a stream, which they leave."""

from __future__ import annotations

from collections.abc import Iterator

from nats_transform.errors import shown
from nats_transform.migration.analysis import Analysis, Draft
from nats_transform.migration.database import Database


def carried(database: Database) -> set[str]:
    """What headers of the messages hold on to."""
    return {word for (word,) in database.rows("SELECT DISTINCT unnest(carries) FROM ways")}


class Headers(Analysis):
    """Counts conditional publishes under a new subject, and ids that come to another stream."""

    name = "headers"
    is_layered = True
    gains = """
    SELECT layers.layer, 'condition-fails', []::INT[], a.way, a.number, a.percent
    FROM ways a CROSS JOIN layers
    WHERE a.side = 'after' AND a.result IS NOT NULL AND list_contains(a.carries, 'condition')
      AND NOT EXISTS (
        FROM ways b WHERE b.way = a.way AND b.side = 'before' AND b.result = a.result
      )
      AND NOT EXISTS (
        FROM stays s JOIN receivers r ON r.form = a.form AND r.how = 'captures'
          AND r.layer = s.layer AND r.receiver = s.stream
        WHERE s.way = a.way AND s.after = a.number AND s.layer = layers.layer
      )
    UNION ALL
    SELECT r.layer, 'ids-forgotten', [r.receiver], a.way, a.number, a.percent
    FROM ways a JOIN receivers r ON r.form = a.form AND r.how = 'captures'
    WHERE a.side = 'after' AND list_contains(a.carries, 'id') AND EXISTS (
      FROM ways b JOIN receivers x ON x.form = b.form AND x.how = 'captures'
      WHERE b.way = a.way AND b.side = 'before' AND x.layer = r.layer
    ) AND NOT EXISTS (
      FROM ways b JOIN receivers x ON x.form = b.form AND x.how = 'captures'
      WHERE b.way = a.way AND b.side = 'before' AND x.layer = r.layer AND x.receiver = r.receiver
    )
    """

    def prepare(self, database: Database) -> bool:
        return not database.once(carried).isdisjoint({"condition", "id"})

    def findings(self, database: Database, layer: int) -> Iterator[Draft]:
        streams = database.questions[layer].streams
        for code, numbers, count in database.counts(self.name, layer):
            if code == "condition-fails":
                message = (
                    "Nats-Expected-Last-Subject-Sequence is compared with the new subjects, which "
                    "have no messages: nats-server refuses what expects one (10071)"
                )
                yield code, "", message, count
            else:
                stream = shown(streams[numbers[0]].name)
                message = (
                    f"stream {stream} doesn't know their Nats-Msg-Id, so it stores retries too"
                )
                yield code, f"stream {stream}", message, count
