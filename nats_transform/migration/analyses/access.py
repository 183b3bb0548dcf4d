"""What users may publish and subscribe to, before and after."""

from __future__ import annotations

from collections.abc import Iterator

from nats_transform.errors import shown
from nats_transform.migration.analysis import Analysis, Draft
from nats_transform.migration.database import Database


class Access(Analysis):
    """Counts the messages that users may publish and receive."""

    name = "access"
    is_layered = True
    # Of a way that gives a user nothing, before and after, nothing can change.
    kinds = """
    WITH may AS (
      FROM receivers WHERE how IN ('publish', 'subscribe')
    ),
    users AS (
      SELECT DISTINCT way, layer, how, receiver, other FROM ways JOIN may USING (form)
      WHERE result IS NOT NULL
    )
    SELECT u.layer, u.how, [u.receiver, u.other], [(r.form IS NOT NULL)::INT], way, side, w.number,
           percent
    FROM ways w JOIN users u USING (way) LEFT JOIN may r
      ON r.form = w.form AND r.layer = u.layer AND r.how = u.how AND r.receiver = u.receiver
      AND r.other = u.other
    WHERE result IS NOT NULL AND (u.other < 0 OR EXISTS (
      FROM receivers p WHERE p.form = w.form AND p.layer = u.layer AND p.how = 'republishes'
        AND p.receiver = u.other
    ))
    """
    gains = """
    SELECT layer, code || CASE WHEN kind = [1] THEN '-opened' ELSE '-denied' END, about,
           way, number, percent
    FROM rises r
    WHERE analysis = 'access' AND EXISTS (
      FROM kinds k WHERE k.analysis = 'access' AND k.way = r.way AND k.layer = r.layer
      AND k.code = r.code AND k.about = r.about AND k.side = 'before' AND k.kind <> r.kind
    )
    """

    def prepare(self, database: Database) -> bool:
        return any(question.users for question in database.questions)

    def findings(self, database: Database, layer: int) -> Iterator[Draft]:
        question = database.questions[layer]
        for code, (number, stream), count in database.counts(self.name, layer):
            verb, result = code.split("-")
            may = "may" if result == "opened" else "may not"
            to = "under" if verb == "publish" else "to"
            what = "these new subjects"
            if stream >= 0:
                what = f"what stream {shown(question.streams[stream].name)} republishes of {what}"
            message = f"the user {may} {verb} {to} {what}"
            yield code, f"user {shown(question.users[number].name)}", message, count
