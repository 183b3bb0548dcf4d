"""Subjects that no mapping can change back."""

from __future__ import annotations

from collections.abc import Iterator

from nats_transform.errors import shown
from nats_transform.mappings.symbolic import in_pieces
from nats_transform.migration.analysis import Analysis, Draft
from nats_transform.migration.count import EXAMPLES
from nats_transform.migration.database import Database


class WayBack(Analysis):
    """Counts the results that the reversed mappings do not change back."""

    name = "way back"
    gains = """
    SELECT 0, 'irreversible', []::INT[], way, number, percent
    FROM ways WHERE side = 'after' AND result IS NOT NULL AND NOT comes_back
    """

    def findings(self, database: Database, layer: int) -> Iterator[Draft]:
        for code, _, count in database.counts(self.name):
            message = "no mapping can change the new subjects back into these"
            cut = [
                f"wildcard {number} of {shown(mapping.source)}"
                for mapping in database.questions[0].candidate.mappings
                for number in sorted(
                    {n for transform in mapping.transforms for n in in_pieces(transform)}
                )
            ]
            if cut:
                message += f": the result has only pieces of {', '.join(cut[:EXAMPLES])}, and "
                message += "mappings cut tokens but never join them"
            yield code, "", message, count
