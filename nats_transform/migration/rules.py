"""Finds mappings of the candidate that are unused, hidden by others, or overlap with others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from nats_transform.errors import shown
from nats_transform.migration.analysis import Analysis, Told
from nats_transform.migration.case import Case
from nats_transform.migration.count import Count
from nats_transform.migration.names import Names, listed
from nats_transform.migration.question import Question
from nats_transform.migration.seen import Seen


class RuleHits(Analysis):
    """Counts the subjects of each mapping."""

    def __init__(self, question: Question) -> None:
        self._sources = [mapping.source for mapping in question.candidate.mappings]
        self._seen = Seen(question)
        self._covered: dict[int, Count] = defaultdict(Count)
        self._pairs: dict[tuple[int, int], Count] = defaultdict(Count)
        self._clusters: dict[int, set[str | None]] = defaultdict(set)
        self._hit: dict[int, Count] = defaultdict(Count)
        self.clusters: set[str | None] = set()

    def add_case(self, case: Case) -> None:
        self.clusters.add(case.cluster)
        if not case.covering:
            return
        first, *others = case.covering
        self._hit[first].add(case, case.becomes, case.parts)
        self._clusters[first].add(case.cluster)
        for other in others:
            self._covered[other].add(case, case.becomes, case.parts)
            self._pairs[first, other].add(case, case.becomes, case.parts)

    def of(self, source: str) -> Count:
        """The count of the subjects that the mapping with this source maps."""
        return (
            self._hit.get(self._sources.index(source), Count())
            if source in self._sources
            else (Count())
        )

    def told(self, names: Names) -> Iterator[Told]:
        unseen = []
        for number, source in enumerate(self._sources):
            about = f"mapping {shown(source)}"
            if number not in self._hit and number not in self._covered:
                if not self._seen.shows(source):
                    unseen.append(shown(source))
                    continue
                yield (
                    "rule-never-hit",
                    about,
                    "no subject of the archive reaches this mapping",
                    Count(),
                )
            elif number not in self._hit:
                takers = [self._sources[one] for one, other in self._pairs if other == number]
                told = "other mappings take all of its subjects: "
                told += " and ".join(map(shown, takers[:3]))
                yield "rule-shadowed", about, told, self._covered[number]
            elif len(self._clusters[number]) == 1 and len(self.clusters) > 1:
                (cluster,) = self._clusters[number]
                told = (
                    f"only the cluster {shown(cluster)} uses this mapping"
                    if cluster
                    else ("only messages without a cluster use this mapping")
                )
                yield "rule-one-cluster", about, told, self._hit[number]
        if unseen:
            told = "the archive cannot show whether these mappings apply: " + listed(unseen)
            yield "rule-not-seen", "", told, Count()
        for (first, other), count in self._pairs.items():
            if other in self._hit:
                told = f"the later mapping {shown(self._sources[other])} covers these subjects too"
                yield "rule-overlap", f"mapping {shown(self._sources[first])}", told, count
