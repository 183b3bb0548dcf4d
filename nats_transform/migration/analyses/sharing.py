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
    # For each way and each export or import: the percent that it has today, and will have. An
    # import that brings nothing today cannot lose anything, so others do not stand in for it.
    _shares = """
    WITH leaving AS (
      SELECT way, side, w.number, percent, r.layer, s.number AS shared, s.importer
      FROM ways w JOIN receivers r ON r.form = w.form AND r.how = 'export'
      JOIN shared s ON s.layer = r.layer AND s.number = r.receiver
    ),
    was AS (
      SELECT way, layer, shared, importer, sum(percent) AS percent
      FROM leaving WHERE side = 'before' GROUP BY ALL
    ),
    together AS (
      SELECT way, layer, importer, sum(percent) AS percent
      FROM (SELECT DISTINCT way, layer, importer, number, percent FROM leaving WHERE side = 'after')
      GROUP BY ALL
    ),
    alone AS (
      SELECT way, layer, shared, sum(percent) AS percent
      FROM leaving WHERE side = 'after' GROUP BY ALL
    )
    SELECT way, layer, shared, was.percent AS before, coalesce(together.percent, 0) AS after
    FROM was LEFT JOIN together USING (way, layer, importer)
    UNION ALL
    SELECT way, layer, shared, 0, percent FROM alone ANTI JOIN was USING (way, layer, shared)
    """
    gains = f"""
    SELECT s.layer, 'gone', [shared], way, number, before - after
    FROM ({_shares}) s JOIN ways USING (way)
    WHERE before > after AND side = 'after' AND is_likeliest
    """  # noqa: S608 - our own text

    def prepare(self, database: Database) -> bool:
        importers: dict[str | None, int] = {}
        rows = [
            (layer, number, importers.setdefault(share.importer, len(importers)))
            for layer, question in enumerate(database.questions)
            for number, share in enumerate(dict.fromkeys(question.shared))
        ]
        database.table("shared", rows, layer=pa.int32(), number=pa.int32(), importer=pa.int32())
        return bool(rows)

    def findings(self, database: Database, layer: int) -> Iterator[Draft]:
        shared = tuple(dict.fromkeys(database.questions[layer].shared))
        left = dict(
            database.rows(
                f"SELECT shared, sum(after * messages)::HUGEINT FROM ({self._shares}) "  # noqa: S608
                "JOIN way_messages USING (way) WHERE layer = ? GROUP BY ALL",
                layer,
            )
        )
        for _, (number,), count in database.counts(self.name, layer):
            kind = "export" if shared[number].importer is None else "import"
            code = f"{kind}-fewer" if left.get(number) else f"{kind}-none"
            rest = messages(int(left.get(number, 0)))
            message = f"these messages will not leave the account, but {rest} still will"
            yield code, shown(str(shared[number])), message, count
