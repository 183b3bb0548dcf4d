"""Which streams take the messages: capture, ingress, mirrors and sources, republish."""

from __future__ import annotations

from collections.abc import Iterator

from nats_transform.errors import shown
from nats_transform.migration.analysis import Analysis, Draft
from nats_transform.migration.database import Database


class Delivery(Analysis):
    """Counts the messages that streams will no longer get, or get besides."""

    name = "delivery"
    is_layered = True
    # `did` has what streams do today with what they or others store or republish.
    kinds = """
    WITH captured AS (
      SELECT form, layer, list(receiver ORDER BY receiver) AS streams
      FROM receivers WHERE how = 'captures' GROUP BY ALL
    ),
    did AS (
      SELECT DISTINCT way, layer, how, receiver, other,
             CASE how WHEN 'catches' THEN 'republishes' ELSE 'stores' END AS condition,
             CASE WHEN other < 0 THEN receiver ELSE other END AS owner
      FROM ways JOIN receivers USING (form)
      WHERE side = 'before' AND how IN ('ingress', 'republishes', 'takes', 'catches')
    )
    SELECT layers.layer, 'captured', []::INT[], coalesce(streams, []), way, side, number, percent
    FROM ways CROSS JOIN layers
    LEFT JOIN captured ON captured.form = ways.form AND captured.layer = layers.layer
    WHERE result IS NOT NULL
    UNION ALL
    SELECT d.layer, d.how, [d.receiver, d.other], [], w.way, side, number, percent
    FROM ways w JOIN did d ON d.way = w.way
    JOIN receivers s ON s.form = w.form AND s.layer = d.layer AND s.how = d.condition
      AND s.receiver = d.owner
    ANTI JOIN receivers r ON r.form = w.form AND r.layer = d.layer AND r.how = d.how
      AND r.receiver = d.receiver AND r.other = d.other
    UNION ALL
    SELECT layer, CASE how WHEN 'takes' THEN 'starts' ELSE how END, [receiver, other], [],
           way, side, number, percent
    FROM ways JOIN receivers USING (form) WHERE how IN ('loops', 'repeats', 'takes', 'takes raw')
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
    SELECT layer, code, about, way, number, percent FROM rises
    WHERE analysis = 'delivery' AND code NOT IN ('captured', 'starts', 'takes raw')
    UNION ALL
    SELECT r.layer, r.code, r.about, r.way, r.number, r.percent
    FROM rises r WHERE r.analysis = 'delivery' AND r.code IN ('starts', 'takes raw') AND EXISTS (
      FROM ways b JOIN receivers x ON x.form = b.form
      WHERE b.way = r.way AND b.side = 'before' AND x.layer = r.layer
        AND x.how = CASE r.code WHEN 'starts' THEN 'stores' ELSE 'takes' END
        AND [x.receiver, x.other] = CASE r.code WHEN 'starts' THEN [r.about[2], -1] ELSE r.about END
    )
    """

    def prepare(self, database: Database) -> bool:
        return any(question.streams for question in database.questions)

    def findings(self, database: Database, layer: int) -> Iterator[Draft]:
        streams = [shown(stream.name) for stream in database.questions[layer].streams]
        for kind, numbers, count in database.counts(self.name, layer):
            code, message = _MESSAGES[kind]
            names = [streams[number] for number in numbers if number >= 0]
            about = names[:1] if kind in _OF_ANOTHER else sorted(names)
            named = names[1:] if kind in _OF_ANOTHER else about
            text = message.format(" and ".join(named))
            yield code, " and ".join(f"stream {name}" for name in about), text, count


_MESSAGES = {
    "not-captured": (
        "not-captured",
        "no stream will store these messages. Today they are stored in {}",
    ),
    "captured-elsewhere": ("captured-elsewhere", "these messages will be stored in {}"),
    "captured-twice": (
        "captured-twice",
        "{} capture the same messages, so nats-server refuses one of the streams",
    ),
    "newly-captured": (
        "newly-captured",
        "{} will store these messages, and no stream stores them today",
    ),
    "repeats": ("stored-twice", "{} will store each of these messages more than once"),
    "ingress": ("ingress-stops", "its subject transform will not match these messages"),
    "republishes": ("republish-stops", "it will not republish these messages"),
    "catches": ("republish-escapes", "it will not store what {} republishes of these messages"),
    "loops": (
        "republish-loop",
        "{} republishes these messages, and they come back to it endlessly",
    ),
    "takes": ("source-stops", "it will not take these messages from {}"),
    "takes raw": ("source-stops", "it will not rename these messages from {}"),
    "starts": ("source-starts", "it will take these messages from {} too"),
}
"""The code and the message of a finding by what was counted, with a place for names of streams."""
_OF_ANOTHER = ("catches", "takes", "takes raw", "starts")
"""Those that are about a stream and what it has from another one."""
