"""Counters, schedules and atomic batches, which a new subject breaks."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from nats_transform.errors import shown
from nats_transform.migration.analysis import Analysis, Told
from nats_transform.migration.database import Database
from nats_transform.stream_features import MESSAGES, features


class Features(Analysis):
    """Counts the messages that leave the subjects of such streams."""

    name = "features"
    is_layered = True
    gains = """
    SELECT f.layer, f.code, [f.stream], a.way, a.number, a.percent
    FROM features f JOIN ways a ON a.side = 'after' AND a.result IS NOT NULL
    WHERE EXISTS (
      FROM ways b JOIN receivers r ON r.form = b.form AND r.how = 'captures'
      WHERE b.way = a.way AND b.side = 'before' AND r.layer = f.layer AND r.receiver = f.stream
    ) AND NOT EXISTS (
      FROM ways b WHERE b.way = a.way AND b.side = 'before' AND b.result = a.result
    ) AND NOT (f.code <> 'batch-split' AND EXISTS (
      FROM stays s WHERE s.way = a.way AND s.after = a.number AND s.layer = f.layer
        AND s.stream = f.stream
    )) AND NOT (f.code = 'batch-split' AND EXISTS (
      FROM receivers r WHERE r.form = a.form AND r.how = 'captures' AND r.layer = f.layer
        AND r.receiver = f.stream
    ))
    """

    def prepare(self, database: Database) -> None:
        rows = [
            (layer, code, number)
            for layer, question in enumerate(database.questions)
            for number, stream in enumerate(question.streams)
            for code in features(stream)
        ]
        schema = pa.schema({"layer": pa.int32(), "code": pa.string(), "stream": pa.int32()})
        database.table("features", schema, rows)

    def findings(self, database: Database, layer: int) -> Iterator[Told]:
        streams = database.questions[layer].streams
        for code, (number,), count in database.counts(self.name, layer):
            yield code, f"stream {shown(streams[number].name)}", MESSAGES[code], count
