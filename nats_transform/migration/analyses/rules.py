"""Mappings of the candidate that are unused, hidden by others, or overlap with others."""

from __future__ import annotations

from collections.abc import Iterator

from nats_transform.errors import shown
from nats_transform.migration.analysis import Analysis, Draft
from nats_transform.migration.count import Count, listed
from nats_transform.migration.database import Database, text
from nats_transform.migration.seen import Seen


class Rules(Analysis):
    """Counts the subjects of each mapping."""

    name = "rules"
    gains = """
    WITH ends AS (FROM ways WHERE side = 'after' AND is_likeliest AND len(covering) > 0)
    SELECT 0, 'hit', covering[:1], way, number, 100 FROM ends
    UNION ALL
    SELECT 0, 'covered', [other], way, number, 100 FROM ends, unnest(covering[2:]) AS t(other)
    UNION ALL
    SELECT 0, 'pair', [covering[1], other], way, number, 100
    FROM ends, unnest(covering[2:]) AS t(other)
    """

    def findings(self, database: Database, layer: int) -> Iterator[Draft]:
        sources = [mapping.source for mapping in database.questions[0].candidate.mappings]
        counts = {(code, about): count for code, about, count in database.counts(self.name)}
        pairs = [about for code, about in counts if code == "pair"]
        clusters = dict(
            database.rows("""
            SELECT covering[1], list(DISTINCT {name: cluster}) FROM ways GROUP BY ALL
            """)
        )
        seen = {cluster["name"] for listed in clusters.values() for cluster in listed}
        archive, unseen = Seen(database.questions[0]), []
        for number, source in enumerate(sources):
            about = f"mapping {shown(source)}"
            hit, covered = counts.get(("hit", (number,))), counts.get(("covered", (number,)))
            if hit is None and covered is None and not archive.shows(source):
                unseen.append(shown(source))
            elif hit is None and covered is None:
                message = "no subject in the archive reaches this mapping"
                yield "rule-never-hit", about, message, Count()
            elif hit is None and covered is not None:
                takers = sorted(first for first, other in pairs if other == number)
                message = "other mappings take all of its subjects: "
                message += " and ".join(shown(sources[taker]) for taker in takers[:3])
                yield "rule-shadowed", about, message, covered
            elif hit is not None and len(clusters[number]) == 1 and len(seen) > 1:
                (cluster,) = (cluster["name"] for cluster in clusters[number])
                message = "only messages without a cluster use this mapping"
                if cluster:
                    message = f"only the cluster {shown(text(cluster) or '')} uses this mapping"
                yield "rule-one-cluster", about, message, hit
        if unseen:
            message = "the archive cannot show whether these mappings apply: " + listed(unseen)
            yield "rule-not-seen", "", message, Count()
        for first, other in pairs:
            if ("hit", (other,)) in counts:
                message = f"the later mapping {shown(sources[other])} covers these subjects too"
                about = f"mapping {shown(sources[first])}"
                yield "rule-overlap", about, message, counts["pair", (first, other)]


def hits(database: Database) -> dict[str, Count]:
    """The count of the subjects of each mapping, by its source."""
    mappings = database.questions[0].candidate.mappings
    return {
        mappings[about[0]].source: count
        for code, about, count in database.counts(Rules.name)
        if code == "hit"
    }
