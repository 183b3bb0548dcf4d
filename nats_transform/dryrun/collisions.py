"""Different subjects that become one, how many distinct ones there are, and the way back."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nats_transform.dryrun.case import Case, Matcher, first_subject, numbers_drawn
from nats_transform.dryrun.count import EXAMPLES, Count, Groups, hashed, members
from nats_transform.dryrun.reverse import reversed_mappings
from nats_transform.mapping import AccountMappings


def targets(cases: Iterable[Case], before: bool = False) -> dict[str, int]:
    """The subjects that one subject becomes, with parts, over all clusters."""
    found: dict[str, int] = {}
    for case in cases:
        for outcome, percent in case.before if before else case.after:
            if outcome.subject is not None:
                parts = percent * case.messages
                found[outcome.subject] = found.get(outcome.subject, 0) + parts
    return found


@dataclass(frozen=True, slots=True)
class Merged:
    """Subjects that become one with another.

    Attributes:
        parts: of messages.
        subjects: that are merged.
        results: what they become.
        largest: hashes of the results with most messages.
    """

    parts: int
    subjects: int
    results: int
    largest: frozenset[int]


@dataclass(slots=True)
class Collisions:
    """Every pair of a subject and what it becomes, by hash."""

    _after: Groups = field(default_factory=Groups)
    _before: array[int] = field(default_factory=lambda: array("Q"))
    # Hashes of the result, and of the result with what the subject is under the current mapping.
    _results: array[int] = field(default_factory=lambda: array("Q"))
    _pairs: array[int] = field(default_factory=lambda: array("Q"))
    _drawn: dict[int, int] = field(default_factory=dict)

    def add(self, cases: list[Case]) -> None:
        """Count all cases of one subject."""
        before = targets(cases, before=True)
        self._before.extend(hashed(was) for was in before)
        for becomes, parts in targets(cases).items():
            key = hashed(becomes)
            self._after.add(key, parts)
            if "{{" in becomes and (drawn := numbers_drawn(becomes)) > 1:
                self._drawn[key] = self._drawn.get(key, 0) + min(drawn, -(-parts // 100)) - 1
            for was in before:
                self._results.append(key)
                self._pairs.append(hashed(f"{becomes}\n{was}"))

    def merged(self) -> tuple[Merged, Merged]:
        """What is newly merged, and what was so already."""
        keys, parts, sizes = self._after.sums()
        together = sizes > 1
        keys, parts, sizes = keys[together], parts[together], sizes[together]
        already = self._already(keys, sizes)
        return _merged(keys, parts, sizes, ~already), _merged(keys, parts, sizes, already)

    def distinct(self) -> tuple[int, int, int]:
        """Distinct subjects before, after, and after with every `random()` drawn."""
        before = len(np.unique(np.frombuffer(self._before, dtype=np.uint64)))
        after = len(self._after.sums()[0])
        return before, after, after + sum(self._drawn.values())

    def _already(self, keys: NDArray[Any], sizes: NDArray[Any]) -> NDArray[np.bool_]:
        """Of merged results those whose subjects are all one under the current mapping too."""
        results = np.frombuffer(self._results, dtype=np.uint64)
        pairs = np.frombuffer(self._pairs, dtype=np.uint64)
        chosen = members(results, keys)
        both = np.stack([results[chosen], pairs[chosen]])
        distinct, counts = np.unique(both, axis=1, return_counts=True)
        most = np.zeros(len(keys), dtype=np.int64)
        np.maximum.at(most, np.searchsorted(keys, distinct[0]), counts)
        return np.asarray(most == sizes)


def _merged(
    keys: NDArray[Any], parts: NDArray[Any], sizes: NDArray[Any], chosen: NDArray[np.bool_]
) -> Merged:
    keys, parts, sizes = keys[chosen], parts[chosen], sizes[chosen]
    largest = np.argsort(-parts, kind="stable")[:EXAMPLES]
    return Merged(
        int(parts.sum()), int(sizes.sum()), len(keys), frozenset(int(k) for k in keys[largest])
    )


class WayBack:
    """Whether the subjects can be had back."""

    def __init__(self, candidate: AccountMappings) -> None:
        self.mappings = reversed_mappings(candidate.mappings)
        self.stuck = Count()
        self._matcher = Matcher(self.mappings)

    def add(self, cases: list[Case]) -> None:
        """Count all cases of one subject."""
        subject = cases[0].subject
        was = first_subject(cases[0].before)
        for becomes, parts in targets(cases).items():
            covering = self._matcher.covering(becomes)
            if self._matcher.outcomes(becomes, None, covering)[0][0].subject != subject:
                self.stuck.add(subject, was, becomes, parts)
