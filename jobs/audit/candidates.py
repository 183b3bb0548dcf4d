"""The ends of mappings that can have made a message, by the patterns that its subject fits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from nats_transform import Mapping
from nats_transform.audit import End, Period
from nats_transform.mappings.shape import Shape, shape_of, shape_of_filter


@dataclass(frozen=True)
class Candidate:
    """An end of a mapping and the shape of its subjects.

    Attributes:
        period: the index of the mapping version.
    """

    period: int
    mapping: Mapping
    end: End
    shape: Shape


def candidates(periods: Sequence[Period]) -> list[Candidate]:
    """Every end that makes subjects, of all mappings: those without weights can make them too."""
    by_end: dict[tuple[int, End], Candidate] = {}
    for index, period in enumerate(periods):
        for mapping in period.mappings.mappings:
            for share in mapping.ends():
                if share.destination is not None and share.transform is not None:
                    end = End(mapping.source, share.destination)
                    by_end[index, end] = Candidate(index, mapping, end, shape_of(share.transform))
    return list(by_end.values())


def unmapped(periods: Sequence[Period], known: Sequence[Candidate]) -> list[Candidate]:
    """For each mapping in its order, the messages that keep its source as their subject.

    They went through no mapping, unless a remainder keeps it.
    """
    by_end = {(candidate.period, candidate.end): candidate for candidate in known}
    return [
        by_end.get((index, end)) or Candidate(index, mapping, end, shape_of_filter(mapping.source))
        for index, period in enumerate(periods)
        for mapping in period.mappings.mappings
        for end in [End(mapping.source, mapping.source)]
    ]


class ByPattern:
    """Candidates by the subjects that they make: there may be thousands. It can be sent to a task.

    Args:
        candidates: in the order in which they are found.
    """

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self._candidates = candidates
        self._numbers = defaultdict[tuple[int, str], list[int]](list)
        for number, candidate in enumerate(candidates):
            self._numbers[candidate.period, candidate.shape.pattern].append(number)

    def of(self, period: int, patterns: Iterable[str]) -> list[Candidate]:
        """Those of a mapping version that subjects which fit these patterns fit."""
        fits = [self._numbers.get((period, pattern), ()) for pattern in patterns]
        return [self._candidates[number] for number in sorted(chain.from_iterable(fits))]

    def in_cluster(
        self, period: int, patterns: Iterable[str], cluster: str | None
    ) -> list[Candidate]:
        """Those of them that can have made a message of a cluster: the ends listed for it.

        If none of them fits, the ends that are listed for other clusters count: the message then
        shows that the configuration is not in force.
        """
        fitting = self.of(period, patterns)
        listed = [
            candidate
            for candidate in fitting
            if candidate.end.destination
            in {share.destination for share in candidate.mapping.shares(cluster)}
        ]
        return listed or fitting
