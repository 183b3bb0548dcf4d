"""Different subjects that become the same, the number of distinct subjects, and the way back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nats_transform.errors import shown
from nats_transform.mapping import AccountMappings
from nats_transform.mapping import Mapping as SubjectMapping
from nats_transform.migration.analysis import Analysis, Told
from nats_transform.migration.case import Case, Matcher, numbers_drawn, steady
from nats_transform.migration.count import EXAMPLES, Amount, Count, total
from nats_transform.migration.names import Names, of_groups
from nats_transform.migration.reverse import in_pieces, reversed_mappings
from nats_transform.migration.rows import Groups, Largest, Store, Table, members
from nats_transform.subject import SEPARATOR


def targets(cases: Iterable[Case], before: bool = False) -> dict[str, Amount]:
    """The subjects that one subject becomes in all clusters, each with parts of the messages."""
    found: dict[str, Amount] = {}
    for case in cases:
        for outcome, percent in case.before if before else case.after:
            if outcome.subject is not None:
                parts = percent * case.messages
                found[outcome.subject] = found.get(outcome.subject, 0) + parts
    return found


@dataclass(frozen=True, slots=True)
class Merged:
    """Subjects that become the same as others because of the same mapping or mappings.

    Attributes:
        mappings: the number of the candidate's mapping that makes them, twice; or the numbers of
            the first and the last of several; -1 stands for no mapping.
        is_new: whether the subjects differ under the current mapping.
        parts: the number of messages, in parts.
        subjects: the number of subjects that are merged.
        results: the number of subjects that they become.
        largest: the hashes of the results with the most messages.
    """

    mappings: tuple[int, int]
    is_new: bool
    parts: int
    subjects: int
    results: int
    largest: frozenset[int]


@dataclass(frozen=True, slots=True)
class Distinct:
    """How many distinct subjects there are.

    Attributes:
        before, after: the number under the current mapping and under the candidate, where a
            `random()` counts as one text.
        drawn: the number under the candidate, with the different texts of every `random()`.
    """

    before: int
    after: int
    drawn: int


MOST_MAPPINGS = 200
"""Up to this many mappings get a finding of their own for each code; the rest share one."""


_NOTHING = 0
"""This stands in place of a hash if the message reaches nobody under the current mapping."""


class Collisions(Analysis):
    """Counts every pair of a subject and a result of it, by their hashes."""

    def __init__(self, candidate: AccountMappings, store: Store) -> None:
        self._candidate = candidate
        self._store = store
        self._after = Groups(store)
        self._before = Table(store, 1)
        # A row has the hash of the result, the hash of the result under the current mapping, and
        # the number of the mapping plus one.
        self._pairs = Table(store, 3)
        self._drawn = 0

    def add(self, cases: list[Case], after: Mapping[str, Amount]) -> None:
        first = cases[0]
        before = [first.hashed(was) for was in targets(cases, before=True)]
        covering = first.covering
        by = covering[0] + 1 if covering else 0
        for was in before:
            self._before.add(was)
        for becomes, parts in after.items():
            key = first.hashed(becomes)
            self._after.add(key, parts)
            if "{{" in becomes and (drawn := numbers_drawn(becomes)) > 1:
                # No subject has more messages than half of 64 bits can count.
                self._drawn += total(np.minimum(min(drawn, 2**62), -(-parts // 100)) - 1)
            for was in before or (_NOTHING,):
                self._pairs.add(key, was, by)

    @cached_property
    def merged(self) -> tuple[Merged, ...]:
        """The merged subjects, by the mappings that merge them, when all have been added."""
        found: dict[tuple[int, int, bool], _Merging] = defaultdict(_Merging)
        for bucket, (keys, parts, sizes) in zip(
            self._store.buckets, self._after.sums(), strict=True
        ):
            together = sizes > 1
            keys, parts, sizes = keys[together], parts[together], sizes[together]
            if not len(keys):
                continue
            pairs = self._pairs.bucket(bucket)
            pairs = pairs[members(pairs[:, 0], keys)]
            is_new = ~_already(pairs, keys, sizes)
            makers = np.column_stack((*_makers(pairs, keys), is_new.astype(np.int64)))
            kinds, of = np.unique(makers, axis=0, return_inverse=True)
            for number, (first, last, new) in enumerate(kinds.tolist()):
                chosen = of.reshape(-1) == number
                found[first, last, bool(new)].add(keys[chosen], parts[chosen], sizes[chosen])
        ordered = sorted(found.items(), key=lambda item: (-item[1].parts, item[0]))
        merged = [one.merged((first, last), new) for (first, last, new), one in ordered]
        return tuple(
            one
            for is_new in (True, False)
            for one in _folded([one for one in merged if one.is_new is is_new])
        )

    def told(self, names: Names) -> Iterator[Told]:
        for one in self.merged:
            code = "collision" if one.is_new else "collision-already"
            told = f"{one.subjects:,} subjects become {one.results:,}"
            mappings = [self._candidate.mappings[n] for n in sorted(set(one.mappings)) if n >= 0]
            if dropped := _dropped(mappings):
                told += f"; the new subject leaves out {dropped}"
            groups = [names.merged[key] for key in one.largest]
            yield code, _about(one, mappings), told, of_groups(groups, one.parts, one.subjects)
        distinct = self.distinct
        if distinct.drawn > 2 * max(distinct.before, distinct.after):
            told = f"there can be up to {distinct.drawn:,} distinct subjects; "
            told += f"today there are {distinct.before:,}"
            yield "subject-explosion", "", told, Count()

    @cached_property
    def distinct(self) -> Distinct:
        """How many distinct subjects there are, when all have been added."""
        buckets = self._store.buckets
        before = sum(len(np.unique(self._before.bucket(bucket))) for bucket in buckets)
        after = sum(len(keys) for keys, _, _ in self._after.sums())
        return Distinct(before, after, after + self._drawn)


def _about(one: Merged, mappings: Sequence[SubjectMapping]) -> str:
    if one.mappings == OTHERS:
        return "other mappings"
    about = " and ".join(f"mapping {shown(mapping.source)}" for mapping in mappings)
    if -1 not in one.mappings:
        return about
    return f"{about} and subjects without a mapping" if about else "subjects without a mapping"


def _dropped(mappings: Iterable[SubjectMapping]) -> str:
    """The wildcards that a destination of some mappings leaves out."""
    found = {
        f"wildcard {number} of {shown(mapping.source)}": None
        for mapping in mappings
        for transform in mapping.transforms
        for number, position in enumerate(transform.filter.wildcards, 1)
        if not any(token.keeps_token and position in token.reads for token in transform.tokens)
    }
    return ", ".join(list(found)[:EXAMPLES])


OTHERS = (-2, -2)
"""This stands for all further mappings, if there are too many to tell each apart."""


def _folded(merged: list[Merged]) -> list[Merged]:
    """The largest entries, and one entry for all others together."""
    rest = merged[MOST_MAPPINGS:]
    if not rest:
        return merged
    total = Merged(
        OTHERS,
        rest[0].is_new,
        sum(one.parts for one in rest),
        sum(one.subjects for one in rest),
        sum(one.results for one in rest),
        rest[0].largest,
    )
    return [*merged[:MOST_MAPPINGS], total]


def _makers(
    pairs: NDArray[np.uint64], keys: NDArray[np.uint64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The lowest and the highest number of a mapping that makes each merged result."""
    places = np.searchsorted(keys, pairs[:, 0])
    makers = pairs[:, 2].astype(np.int64) - 1
    first = np.full(len(keys), np.iinfo(np.int64).max)
    last = np.full(len(keys), -1)
    np.minimum.at(first, places, makers)
    np.maximum.at(last, places, makers)
    return first, last


def _already(
    pairs: NDArray[np.uint64], keys: NDArray[np.uint64], sizes: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Whether the subjects of each merged result are merged under the current mapping too.

    Args:
        pairs: the pairs that have these results.
        keys: the hashes of the results, in order.
        sizes: how many subjects become each result.
    """
    pairs = pairs[pairs[:, 1] != _NOTHING]
    pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
    most = np.zeros(len(keys), dtype=np.int64)
    if len(pairs):
        differs = np.any(pairs[1:, :2] != pairs[:-1, :2], axis=1)
        starts = np.flatnonzero(np.concatenate(([True], differs)))
        counts = np.diff(starts, append=len(pairs))
        np.maximum.at(most, np.searchsorted(keys, pairs[starts, 0]), counts)
    return np.asarray(most == sizes)


class _Merging:
    def __init__(self) -> None:
        self.parts = self._subjects = self._results = 0
        self._largest = Largest(EXAMPLES)

    def add(
        self, keys: NDArray[np.uint64], parts: NDArray[np.int64], sizes: NDArray[np.int64]
    ) -> None:
        self.parts += int(parts.sum())
        self._subjects += int(sizes.sum())
        self._results += len(keys)
        self._largest.add(keys, parts)

    def merged(self, mappings: tuple[int, int], is_new: bool) -> Merged:
        largest = frozenset(self._largest.keys)
        return Merged(mappings, is_new, self.parts, self._subjects, self._results, largest)


class WayBack(Analysis):
    """Finds the subjects that no mapping can change back."""

    def __init__(self, candidate: AccountMappings) -> None:
        self.mappings = reversed_mappings(candidate.mappings)
        self._candidate = candidate
        self.stuck = Count()
        self._matcher = Matcher(self.mappings)

    def add(self, cases: list[Case], after: Mapping[str, Amount]) -> None:
        subject = cases[0].subject
        for becomes, parts in after.items():
            if self._back(becomes) != subject:
                self.stuck.add(cases[0], becomes, parts)

    def told(self, names: Names) -> Iterator[Told]:
        if self.stuck.subjects:
            told = "no mapping can change the new subjects back into these"
            cut = [
                f"wildcard {number} of {shown(mapping.source)}"
                for mapping in self._candidate.mappings
                for number in sorted({n for one in mapping.transforms for n in in_pieces(one)})
            ]
            if cut:
                told += f": the result has only pieces of {', '.join(cut[:EXAMPLES])}, and "
                told += "mappings cut tokens but never join them"
            yield "irreversible", "", told, self.stuck

    def _back(self, subject: str) -> str:
        """The result of the reversed mappings for a subject, which need not be legal."""
        tokens = subject.split(SEPARATOR)
        covering = self._matcher.covering(tokens)
        if not covering:
            return subject
        # Each reversed mapping has one destination, which all messages go to.
        (share,) = self.mappings.mappings[covering[0]].shares()
        if share.transform is None:
            return ""
        back = share.transform.evaluate(self._matcher.seen(covering, subject, tokens), None)
        return steady(back) if "{{" in back else back
