"""Counters, schedules and atomic batches, which a new subject breaks."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from nats_transform.errors import shown
from nats_transform.migration.analyses.headers import carried
from nats_transform.migration.analysis import Analysis, Draft
from nats_transform.migration.database import Database
from nats_transform.streams.features import CARRIED_WITH, MESSAGES, features, sums


class Features(Analysis):
    """Counts the messages that leave the subjects of such streams."""

    name = "features"
    is_layered = True
    gains = """
    SELECT f.layer, f.code, [f.stream], a.way, a.number, a.percent
    FROM features f JOIN ways a ON a.side = 'after' AND a.result IS NOT NULL
    WHERE (f.stream < 0 OR EXISTS (
      FROM ways b JOIN receivers r ON r.form = b.form AND r.how = 'captures'
      WHERE b.way = a.way AND b.side = 'before' AND r.layer = f.layer AND r.receiver = f.stream
    )) AND NOT EXISTS (
      FROM ways b WHERE b.way = a.way AND b.side = 'before' AND b.result = a.result
    ) AND NOT (f.code <> 'batch-split' AND EXISTS (
      FROM stays s WHERE s.way = a.way AND s.after = a.number AND s.layer = f.layer
        AND s.stream = f.stream
    )) AND NOT (f.code = 'batch-split' AND EXISTS (
      FROM receivers r WHERE r.form = a.form AND r.how = 'captures' AND r.layer = f.layer
        AND r.receiver = f.stream
    )) AND (f.word IS NULL OR list_contains(a.carries, f.word))
    UNION ALL
    -- What a stream takes under two names and stores under one, but not where it takes it from.
    SELECT DISTINCT f.layer, 'counted-twice', [f.stream], a.way, a.number, a.percent
    FROM sums f JOIN ways a ON a.side = 'after'
    JOIN stays s ON s.way = a.way AND s.after = a.number AND s.layer = f.layer
      AND s.stream = f.stream
    JOIN ways b ON b.way = a.way AND b.side = 'before' AND b.number = s.before
    JOIN receivers x ON x.form = a.form AND x.how = 'takes' AND x.layer = f.layer
      AND x.receiver = f.stream
    JOIN receivers y ON y.form = b.form AND y.how = 'takes' AND y.layer = f.layer
      AND y.receiver = f.stream
    WHERE (f.word IS NULL OR list_contains(a.carries, f.word)) AND NOT EXISTS (
      FROM ways o WHERE o.way = a.way AND o.side = 'before' AND o.result = a.result
    ) AND NOT EXISTS (
      FROM stays u WHERE u.way = a.way AND u.after = a.number AND u.layer = f.layer
        AND u.stream = x.other
    )
    """

    def prepare(self, database: Database) -> bool:
        # An archive whose messages have no such header may have come without headers.
        words = database.once(carried)

        def row(layer: int, code: str, number: int) -> tuple[int, str, int, str | None]:
            word = CARRIED_WITH.get(code)
            return layer, code, number, word if word in words else None

        streams = [
            (layer, number, stream)
            for layer, question in enumerate(database.questions)
            for number, stream in enumerate(question.streams)
        ]
        rows = [row(at, code, n) for at, n, stream in streams for code in features(stream)]
        if not streams and "counter" in words:  # of counters, the messages tell
            rows += [row(at, "counter-restarts", -1) for at in range(len(database.questions))]
        adding = [row(at, "counted-twice", n) for at, n, stream in streams if sums(stream)]
        number, text = pa.int32(), pa.string()
        types = {"layer": number, "code": text, "stream": number, "word": text}
        database.table("features", rows, **types)
        database.table("sums", adding, **types)
        return bool(rows or adding)

    def findings(self, database: Database, layer: int) -> Iterator[Draft]:
        streams = database.questions[layer].streams
        for code, (number,), count in database.counts(self.name, layer):
            if number < 0:
                yield code, "", "these counters (Nats-Incr) start at 0 under their new names", count
            else:
                yield code, f"stream {shown(streams[number].name)}", MESSAGES[code], count
