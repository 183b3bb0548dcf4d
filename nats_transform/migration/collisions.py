"""Different subjects that become one, how many distinct ones there are, and the way back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nats_transform.mapping import AccountMappings
from nats_transform.migration.case import Case, Matcher, numbers_drawn, steady
from nats_transform.migration.count import EXAMPLES, Count, hashed
from nats_transform.migration.merge import Counted
from nats_transform.migration.reverse import reversed_mappings
from nats_transform.migration.rows import Groups, Largest, Store, Table, members
from nats_transform.subject import SEPARATOR


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


@dataclass(frozen=True, slots=True)
class Distinct:
    """How many distinct subjects there are.

    Attributes:
        before, after: under the current mapping and the candidate.
        drawn: after, with every `random()` drawn.
    """

    before: int
    after: int
    drawn: int


class Collisions(Counted):
    """Every pair of a subject and what it becomes, by hash."""

    COUNTED = ("_after", "_before", "_pairs", "_drawn")

    def __init__(self, store: Store) -> None:
        self._store = store
        self._after = Groups(store)
        self._before = Table(store, 1)
        # Hashes of the result, and of what the subject is under the current mapping.
        self._pairs = Table(store, 2)
        self._drawn = 0

    def add(self, cases: list[Case], after: Mapping[str, int]) -> None:
        """Count all cases of one subject, whose `targets` are known."""
        before = [hashed(was) for was in targets(cases, before=True)]
        for was in before:
            self._before.add(was)
        for becomes, parts in after.items():
            key = hashed(becomes)
            self._after.add(key, parts)
            if "{{" in becomes and (drawn := numbers_drawn(becomes)) > 1:
                self._drawn += min(drawn, -(-parts // 100)) - 1
            for was in before:
                self._pairs.add(key, was)

    @cached_property
    def merged(self) -> tuple[Merged, Merged]:
        """What is newly merged, and what was so already; to be asked when all is added."""
        found = _Merging(), _Merging()
        for bucket, (keys, parts, sizes) in zip(
            self._store.buckets, self._after.sums(), strict=True
        ):
            together = sizes > 1
            keys, parts, sizes = keys[together], parts[together], sizes[together]
            already = _already(self._pairs.bucket(bucket), keys, sizes)
            for merging, chosen in zip(found, (~already, already), strict=True):
                merging.add(keys[chosen], parts[chosen], sizes[chosen])
        new, old = (merging.merged for merging in found)
        return new, old

    @cached_property
    def distinct(self) -> Distinct:
        """How many distinct subjects; to be asked when all is added."""
        buckets = self._store.buckets
        before = sum(len(np.unique(self._before.bucket(bucket))) for bucket in buckets)
        after = sum(len(keys) for keys, _, _ in self._after.sums())
        return Distinct(before, after, after + self._drawn)


def _already(pairs: NDArray[Any], keys: NDArray[Any], sizes: NDArray[Any]) -> NDArray[np.bool_]:
    """Of merged results those whose subjects are all one under the current mapping too."""
    pairs = pairs[members(pairs[:, 0], keys)]
    pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
    most = np.zeros(len(keys), dtype=np.int64)
    if len(pairs):
        differs = np.any(pairs[1:] != pairs[:-1], axis=1)
        starts = np.flatnonzero(np.concatenate(([True], differs)))
        counts = np.diff(starts, append=len(pairs))
        np.maximum.at(most, np.searchsorted(keys, pairs[starts, 0]), counts)
    return np.asarray(most == sizes)


class _Merging:
    def __init__(self) -> None:
        self._parts = self._subjects = self._results = 0
        self._largest = Largest(EXAMPLES)

    def add(
        self, keys: NDArray[np.uint64], parts: NDArray[np.int64], sizes: NDArray[np.int64]
    ) -> None:
        self._parts += int(parts.sum())
        self._subjects += int(sizes.sum())
        self._results += len(keys)
        self._largest.add(keys, parts)

    @property
    def merged(self) -> Merged:
        return Merged(self._parts, self._subjects, self._results, frozenset(self._largest.keys))


class WayBack(Counted):
    """Whether the subjects can be had back."""

    COUNTED = ("stuck",)

    def __init__(self, candidate: AccountMappings) -> None:
        self.mappings = reversed_mappings(candidate.mappings)
        self.stuck = Count()
        self._matcher = Matcher(self.mappings)

    def add(self, cases: list[Case], after: Mapping[str, int]) -> None:
        """Count all cases of one subject, whose `targets` are known."""
        subject = cases[0].subject
        for becomes, parts in after.items():
            if self._back(becomes) != subject:
                self.stuck.add(subject, cases[0].was, becomes, parts)

    def _back(self, subject: str) -> str:
        """What the reversed mappings make of a subject, legal or not."""
        tokens = subject.split(SEPARATOR)
        covering = self._matcher.covering(tokens)
        if not covering:
            return subject
        # Each has one destination, for all.
        (share,) = self.mappings.mappings[covering[0]].shares()
        if share.transform is None:
            return ""
        back = share.transform.evaluate(self._matcher.seen(covering, subject, tokens), None)
        return steady(back) if "{{" in back else back
