"""Which streams take the messages: capture, ingress, mirrors and sources, republish."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from nats_transform.errors import shown
from nats_transform.migration.analysis import Analysis, Draft
from nats_transform.migration.database import Database


class Delivery(Analysis):
    """Counts the messages that streams will no longer get, or get besides."""

    name = "delivery"
    is_layered = True
    # What a stream does with messages that it stores; `watched` has what it could stop to do.
    kinds = """
    WITH captured AS (
      SELECT form, layer, list(receiver ORDER BY receiver) AS streams
      FROM receivers WHERE how = 'captures' GROUP BY ALL
    )
    SELECT layers.layer, 'captured', []::INT[], coalesce(streams, []), way, side, number, percent
    FROM ways CROSS JOIN layers
    LEFT JOIN captured ON captured.form = ways.form AND captured.layer = layers.layer
    WHERE result IS NOT NULL
    UNION ALL
    SELECT w.layer, w.code, w.about, [], way, side, ways.number, percent
    FROM ways JOIN receivers s ON s.form = ways.form AND s.how = 'stores'
    JOIN watched w ON w.layer = s.layer AND w.stream = s.receiver
    ANTI JOIN receivers r ON r.form = ways.form AND r.layer = w.layer AND r.how = w.how
      AND r.receiver = w.about[1] AND r.other = w.other
    UNION ALL
    SELECT layer, 'republish-loop', [receiver], [], way, side, number, percent
    FROM ways JOIN receivers USING (form) WHERE how = 'loops'
    UNION ALL
    SELECT layer, 'source-stops', [receiver, other, -1], [], way, side, number, percent
    FROM ways JOIN receivers USING (form) WHERE how = 'takes raw'
    """
    gains = """
    WITH before AS (
      SELECT layer, way, max(len(kind)) AS most,
             list_sort(list_distinct(flatten(list(kind)))) AS streams
      FROM kinds WHERE code = 'captured' AND side = 'before' GROUP BY ALL
    )
    SELECT layer, CASE WHEN len(kind) = 0 THEN 'not-captured'
                       WHEN coalesce(most, 0) = 0 THEN 'newly-captured'
                       WHEN len(kind) > most THEN 'captured-twice'
                       ELSE 'captured-elsewhere' END,
           CASE WHEN len(kind) = 0 THEN streams ELSE kind END, way, number, percent
    FROM rises LEFT JOIN before USING (layer, way)
    WHERE code = 'captured' AND (len(kind) > 0 OR most > 0)
    UNION ALL
    SELECT layer, code, about, way, number, percent FROM rises WHERE code = 'republish-loop'
    UNION ALL
    SELECT r.layer, r.code, r.about, r.way, r.number, r.percent
    FROM rises r WHERE r.analysis = 'delivery' AND r.code = 'source-stops' AND r.about[3] = -1
    AND EXISTS (
      FROM ways b JOIN receivers x ON x.form = b.form AND x.how = 'takes'
      WHERE b.way = r.way AND b.side = 'before' AND x.layer = r.layer
        AND x.receiver = r.about[1] AND x.other = r.about[2]
    )
    UNION ALL
    SELECT r.layer, r.code, r.about, r.way, r.number, r.percent
    FROM rises r JOIN watched w ON w.layer = r.layer AND w.code = r.code AND w.about = r.about
    WHERE r.analysis = 'delivery' AND EXISTS (
      FROM ways b JOIN receivers x ON x.form = b.form
      WHERE b.way = r.way AND b.side = 'before' AND x.layer = w.layer AND x.how = w.how
        AND x.receiver = w.about[1] AND x.other = w.other
    )
    """

    def prepare(self, database: Database) -> bool:
        rows: list[tuple[int, str, list[int], int, str, int]] = []
        for layer, question in enumerate(database.questions):
            numbers = {stream.name: number for number, stream in enumerate(question.streams)}
            for number in numbers.values():
                stream = question.streams[number]
                if stream.ingress_transform:
                    rows.append((layer, "ingress-stops", [number], number, "ingress", -1))
                if stream.republish_transform:
                    rows.append((layer, "republish-stops", [number], number, "republishes", -1))
                feeds = {u.name for u in stream.upstreams if u.external is None}
                for feed in sorted(feeds & numbers.keys()):
                    other = numbers[feed]
                    rows.append((layer, "source-stops", [number, other], other, "takes", other))
        database.table(
            "watched",
            rows,
            layer=pa.int32(),
            code=pa.string(),
            about=pa.list_(pa.int32()),
            stream=pa.int32(),
            how=pa.string(),
            other=pa.int32(),
        )
        return any(question.streams for question in database.questions)

    def findings(self, database: Database, layer: int) -> Iterator[Draft]:
        streams = [shown(stream.name) for stream in database.questions[layer].streams]
        for code, numbers, count in database.counts(self.name, layer):
            names = [streams[number] for number in numbers if number >= 0]
            if code == "source-stops":
                verb = "rename" if -1 in numbers else "take"
                message = f"it will not {verb} these messages from {names[1]}"
                yield code, f"stream {names[0]}", message, count
            else:
                names.sort()
                about = " and ".join(f"stream {name}" for name in names)
                yield code, about, _MESSAGES[code].format(" and ".join(names)), count


_MESSAGES = {
    "not-captured": "no stream will store these messages. Today they are stored in {}",
    "captured-elsewhere": "these messages will be stored in {}",
    "captured-twice": "{} capture the same messages, so nats-server refuses one of the streams",
    "newly-captured": "{} will store these messages, and no stream stores them today",
    "ingress-stops": "its subject transform will not match these messages",
    "republish-stops": "it will not republish these messages",
    "republish-loop": "{} republishes these messages, and they come back to it endlessly",
}
"""By the code of a finding, with a place for the names of streams."""
