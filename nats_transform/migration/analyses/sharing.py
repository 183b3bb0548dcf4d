"""The messages that other accounts get by exports of the account and their imports of these.

If one import no longer brings a message but another import of the same account does, nothing is
missing. The same holds for exports. Exports apply to the mapped subjects: nats-server maps in the
parser, before it looks for subscriptions, and an import is a subscription
(`addShadowSubscriptions`). Services are left out, because their requests are not in an archive of
the account.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from nats_transform.errors import shown
from nats_transform.migration.analysis import Analysis, Draft
from nats_transform.migration.count import messages
from nats_transform.migration.database import Database


class Sharing(Analysis):
    """Counts the messages that leave the account."""

    name = "sharing"
    is_layered = True
    # For each way and each export or import: the percent that it brings, and that its account gets
    # by all of them together. Copies that a stream republishes stand in for no message.
    _shares = """
    WITH leaving AS (
      SELECT way, side, w.number, percent, r.layer, s.number AS shared, s.importer, r.other
      FROM ways w JOIN receivers r ON r.form = w.form AND r.how = 'export'
      JOIN shared s ON s.layer = r.layer AND s.number = r.receiver
    ),
    together AS (
      SELECT way, layer, importer, other,
             coalesce(sum(percent) FILTER (side = 'before'), 0) AS had,
             coalesce(sum(percent) FILTER (side = 'after'), 0) AS has
      FROM (SELECT DISTINCT way, layer, importer, other, side, number, percent FROM leaving)
      GROUP BY ALL
    )
    SELECT way, layer, shared, other, had, has,
           coalesce(sum(percent) FILTER (side = 'before'), 0) AS before,
           coalesce(sum(percent) FILTER (side = 'after'), 0) AS after
    FROM leaving JOIN together USING (way, layer, importer, other) GROUP BY ALL
    """
    # An import that brings nothing today cannot lose anything, so others do not stand in for it.
    gains = f"""
    SELECT layer, CASE WHEN before > has THEN 'fewer' ELSE 'more' END, [shared, other], way, number,
           greatest(before - has, after - had)
    FROM ({_shares}) JOIN ways USING (way)
    WHERE (before > has OR after > had) AND side = 'after' AND is_likeliest
    """  # noqa: S608 - our own text

    def prepare(self, database: Database) -> bool:
        importers: dict[str | None, int] = {}
        rows = [
            (layer, number, importers.setdefault(share.importer, len(importers)))
            for layer, question in enumerate(database.questions)
            for number, share in enumerate(question.shared)
        ]
        database.table("shared", rows, layer=pa.int32(), number=pa.int32(), importer=pa.int32())
        return bool(rows)

    def findings(self, database: Database, layer: int) -> Iterator[Draft]:
        shared = database.questions[layer].shared
        left = dict(
            database.rows(
                f"WITH shares AS ({self._shares}) "  # noqa: S608 - our own text
                "SELECT shared, sum(if(before > 0, has, after) * messages)::HUGEINT "
                "FROM shares JOIN way_messages USING (way) WHERE layer = ? GROUP BY ALL",
                layer,
            )
        )
        streams = database.questions[layer].streams
        for change, (number, stream), count in database.counts(self.name, layer):
            kind = "export" if shared[number].importer is None else "import"
            what = "these messages"
            if stream >= 0:
                what = f"what stream {shown(streams[stream].name)} republishes of {what}"
            message = f"{what} will leave the account too"
            if change == "fewer":
                change = change if left.get(number) else "none"
                rest = messages(int(left.get(number, 0)))
                message = f"{what} will not leave the account, but {rest} still will"
            yield f"{kind}-{change}", shown(str(shared[number])), message, count
