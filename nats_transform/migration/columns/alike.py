"""Subjects that are alike, so that an analysis looks at one of them and counts for all.

An analysis depends on which mappings, filters and permissions cover a subject, on what it is mapped
to, and on which of these texts are equal. It does not depend on the number of messages, and seldom
on the name. So the compiled kernel puts the subjects of a census into classes in which all of that
is the same. The scalar code looks at one subject of each class, with the numbers of all of them as
arrays. It looks one by one at subjects that are not legal, not UTF-8 or contain `{{`, and at
subjects of small classes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, combinations, product
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from nats_transform.functions import Literal, Random
from nats_transform.kernel.accounts import compile_destinations
from nats_transform.kernel.program import Program
from nats_transform.kernel.rules import End, State
from nats_transform.mapping import Fate
from nats_transform.migration.case import Case, Cases, CensusRow
from nats_transform.migration.columns.column import (
    ILLEGAL,
    Classes,
    Column,
    Looks,
    Numbers,
    compare,
    publishable,
)
from nats_transform.migration.columns.made import MOST, Made, Side, result
from nats_transform.migration.columns.part import Part
from nats_transform.migration.names import Names, Wanted
from nats_transform.migration.question import Question
from nats_transform.migration.reverse import reversed_mappings
from nats_transform.migration.rows import members
from nats_transform.network import Network
from nats_transform.transform import Transform

_FEW = 4
"""The subjects of a class with up to this many are looked at one by one, which is quicker."""


class Where(NamedTuple):
    """One text of each of some subjects that are alike: rows of a column."""

    column: Column
    rows: Numbers

    @property
    def first(self) -> str | None:
        """The text of the first subject, which stands for all of them."""
        return self.column.text(int(self.rows[0]))

    @property
    def taken(self) -> pa.Array:
        """The texts of all subjects."""
        return self.column.texts.take(pa.array(self.rows))


@dataclass(frozen=True, eq=False)
class Alike:
    """Subjects that are alike, in the order of their names.

    The analyses see the texts of the first subject: its name and what it is mapped to.

    Attributes:
        texts: for each text of the first subject, the texts of all subjects in its place.
        keys: for each destination of the candidate, the `partitions.entry` of every subject.
    """

    texts: Mapping[str, Where]
    keys: Mapping[str, NDArray[np.uint64]]

    def __len__(self) -> int:
        return len(next(iter(self.texts.values())).rows)

    def only(self, chosen: Numbers) -> Alike:
        """Some of the subjects."""
        texts = {text: Where(at.column, at.rows[chosen]) for text, at in self.texts.items()}
        return Alike(texts, {name: keys[chosen] for name, keys in self.keys.items()})

    def text(self, text: str | None, number: int) -> str | None:
        """The text that the subject with a number has in place of a text of the first one."""
        if text is None:
            return None
        column, rows = self.texts[text]
        return column.text(int(rows[number]))

    def hashes(self, text: str) -> NDArray[np.uint64]:
        """The `count.hashed` of each subject's text."""
        column, rows = self.texts[text]
        return column.hashes[rows]

    def entries(self, destination: str) -> NDArray[np.uint64]:
        """The `partitions.entry` of each subject's key under a destination of the candidate."""
        return self.keys[destination]

    def tokens(self, text: str, place: int) -> Iterator[str]:
        """The different tokens at a place (0-based) of a text."""
        column, rows = self.texts[text]
        return column.tokens(place).among(rows)

    def flow(
        self, before: str | None, after: str | None, parts: NDArray[np.int64]
    ) -> dict[tuple[str | None, str | None], int]:
        """The sum of the parts for each pair of prefixes, before and after.

        Args:
            before, after: the texts whose prefixes count; None has no prefix.
            parts: a number of messages for each subject.
        """
        starts, of_starts = self._prefixes(before)
        ends, of_ends = self._prefixes(after)
        pairs, of = np.unique(of_starts * len(ends) + of_ends, return_inverse=True)
        sums = np.zeros(len(pairs), dtype=np.int64)
        np.add.at(sums, of, parts)
        return {
            (starts[pair // len(ends)], ends[pair % len(ends)]): sum_
            for pair, sum_ in zip(pairs.tolist(), sums.tolist(), strict=True)
        }

    def _prefixes(self, text: str | None) -> tuple[Sequence[str | None], Numbers]:
        if text is None:
            return [None], np.zeros(len(self), dtype=np.int64)
        column, rows = self.texts[text]
        return column.prefixes.words, column.prefixes.codes[rows]


@cache
def _program(transform: Transform) -> Program:
    """The compiled transform, for subjects that its source is known to cover."""
    tokens = [
        Literal(token.evaluate((), None)) if isinstance(token, Random) else token
        for token in transform.tokens
    ]
    return Program([], End(State(Fate.MAPPED), tokens))


@dataclass(frozen=True, slots=True)
class _Batch:
    """Subjects of a part of a census for the kernel to look at.

    Attributes:
        part: the part.
        subjects: the subjects, each once.
        starts: the first row of each subject in the part.
        sizes: how many rows each subject has.
    """

    part: Part
    subjects: Column
    starts: Numbers
    sizes: Numbers

    def keys(self) -> Iterator[tuple[Numbers, int]]:
        """Numbers for `Classes.add` that tell subjects with other clusters or draws apart."""
        yield self.sizes, MOST + 1
        last = len(self.part.messages) - 1
        for place in range(int(self.sizes.max())):
            at = np.minimum(self.starts + place, last)
            for keys in self.part.keys:
                yield np.where(self.sizes > place, keys.codes[at] + 2, 0), len(keys.words) + 2

    def rows(self, subjects: Numbers) -> Iterator[CensusRow]:
        """The rows of the first of some subjects with the same keys.

        They hold arrays with the numbers of messages and bytes of all these subjects.
        """
        for place in range(int(self.sizes[subjects[0]])):
            at = self.starts[subjects] + place
            yield self.part.row(int(at[0]))._replace(
                messages=self.part.messages[at], bytes=self.part.bytes[at]
            )


Group: TypeAlias = tuple[Numbers, list[Case] | None]
"""Subjects that are alike, with their cases; None instead of cases if the scalar code is to look at
the subjects one by one."""


class Grouping:
    """Puts the subjects of a census into groups that are alike."""

    def __init__(self, questions: Iterable[Question]) -> None:
        """Groups subjects for a question and the other layers of it."""
        question, *others = questions
        self._cases = Cases(question.current, question.candidate)
        self._before, self._after = Side(question.current), Side(question.candidate)
        streams = [question.streams]
        streams += [one.streams for one in others if one.streams not in streams]
        self._networks = [Network(one) for one in streams]
        self._sources = Looks(mapping.source for mapping in question.candidate.mappings)
        self._results = Looks(
            dict.fromkeys(filter for one in (question, *others) for filter in _filters(one))
        )
        way_back = reversed_mappings(question.candidate.mappings)
        self._back = compile_destinations(way_back, result)[0]

    def of(self, part: Part) -> Iterator[list[Case]]:
        """The cases of each group, and of each subject that is in no group.

        Groups come in the order of their first subjects. So the findings have the same order as
        when all subjects are looked at one by one.
        """
        batch = _batch(part)
        plain = _plain(batch.subjects.texts) & (batch.sizes <= MOST)
        left, groups = ~plain, {}
        if plain.any():
            chosen = np.flatnonzero(plain)
            texts = batch.subjects.texts.take(pa.array(chosen))
            some = _Batch(part, Column(texts), batch.starts[chosen], batch.sizes[chosen])
            for rows, cases in self._grouped(some):
                if cases is None:
                    left[chosen[rows]] = True
                else:
                    groups[int(chosen[rows[0]])] = cases
        done = 0
        for first in [*sorted(groups), len(left)]:
            alone = done + np.flatnonzero(left[done:first])
            yield from self._cases.of(part.of(batch.starts[alone], batch.sizes[alone]))
            if first in groups:
                yield groups[first]
            done = first

    def with_names(self, part: Part, wanted: Wanted, names: Names) -> Iterator[list[Case]]:
        """The cases of the subjects whose names a finding needs; only their hashes are known.

        Args:
            part: a part of the census.
            wanted: the hashes.
            names: receives the texts of partition keys.
        """
        batch = _batch(part)
        texts = batch.subjects.texts
        made = self._after.of(texts)
        chosen = ~_plain(texts) | self._after.has_more(made[0])
        merged = _in_order(wanted.merged | {key for *_, key in wanted.limited})
        keys = _in_order(wanted.keys)
        for one in made:
            if one.keys is not None and one.entries is not None:
                for row in np.flatnonzero(members(one.entries, keys)).tolist():
                    names.keys[int(one.entries[row])] = one.keys.text(row) or ""
            if len(merged):
                chosen |= members(one.results.hashes, merged) & one.results.there
        if wanted.limited and any(one.renames_any for one in self._networks):
            chosen[:] = True
        rows = np.repeat(chosen, batch.sizes)
        return self.of(Part(part.rows.filter(pa.array(rows))))

    def _grouped(self, batch: _Batch) -> Iterator[Group]:
        """The cases of each group, and the subjects that are in no group."""
        subjects = batch.subjects
        before, after = self._before.of(subjects.texts), self._after.of(subjects.texts)
        classes = Classes(len(subjects.texts))
        odd = self._before.has_more(before[0]) | self._after.has_more(after[0])
        for numbers, below in (*batch.keys(), *self._sources.of(subjects.texts)):
            classes.add(numbers, below)
        classes.add(_flags(pc.starts_with(subjects.texts, "$")), 2)
        for one in (*before, *after):
            classes.add(one.states, len(one.of))
            odd |= self._look(one.results, classes)
        columns = [subjects, *(one.results for one in (*before, *after))]
        for text, another in combinations(columns, 2):
            classes.add(compare(text, another), 2)
        for one in after:
            back = Column(self._back.run(one.results.texts).subjects)
            classes.add(compare(back, subjects), 2)
        for one, other in product(before, after):
            if one.partitions is not None and other.partitions is not None:
                classes.add((one.partitions == other.partitions).astype(np.int64), 2)
        classes.add(odd.astype(np.int64), 2)
        for rows in classes.rows():
            if odd[rows[0]] or len(rows) <= _FEW:
                yield rows, None
                continue
            texts = [Where(one, rows) for one in columns if one.there[rows[0]]]
            yield from self._alike(batch, rows, texts, frozenset(), after)

    def _look(self, texts: Column, classes: Classes) -> NDArray[np.bool_]:
        """Puts texts that filters tell apart into different classes.

        Returns:
            Where a text is not a legal subject.
        """
        found = list(self._results.of(texts.texts))
        for numbers, below in found:
            classes.add(numbers, below)
        return (found[0][0] < ILLEGAL) & texts.there

    def _alike(
        self,
        batch: _Batch,
        rows: Numbers,
        texts: Sequence[Where],
        renamed: frozenset[tuple[int, Transform]],
        after: Sequence[Made],
    ) -> Iterator[Group]:
        """The cases of a class. Where transforms of streams apply, the class may be split further.

        Args:
            batch, rows: the subjects of the class: rows of the batch.
            texts: all texts of the subjects; the subjects themselves come first.
            renamed: pairs of a place in `texts` and a transform whose results are in `texts` too.
            after: the results of the candidate.
        """
        numbers: dict[str, int] = {}
        for number, one in enumerate(texts):
            numbers.setdefault(one.first or "", number)
        cases = self._cases.of_subject(texts[0].first, batch.rows(rows))
        outcomes = [outcome for case in cases for outcome, _ in (*case.before, *case.after)]
        for published in {one.subject: None for one in outcomes if one.subject is not None}:
            for source, transform in chain.from_iterable(
                network.renames(published) for network in self._networks
            ):
                step = numbers[source], transform
                if step not in renamed:
                    yield from self._renamed(batch, rows, texts, renamed, step, after)
                    return
        keys = {}
        for made in after:
            destination = made.of[made.states[rows[0]]].destination
            if made.entries is not None and destination is not None:
                keys[destination] = made.entries[rows]
        alike = Alike({text: texts[number] for text, number in numbers.items()}, keys)
        yield rows, [case._replace(alike=alike) for case in cases]

    def _renamed(
        self,
        batch: _Batch,
        rows: Numbers,
        texts: Sequence[Where],
        renamed: frozenset[tuple[int, Transform]],
        step: tuple[int, Transform],
        after: Sequence[Made],
    ) -> Iterator[Group]:
        """The cases of a class that is split by the results of a transform of a stream."""
        number, transform = step
        made = Column(_program(transform).run(texts[number].taken).subjects)
        classes = Classes(len(rows))
        odd = self._look(made, classes)
        for one in texts:
            classes.add(compare(made, Column(one.taken)), 2)
        for some in classes.rows():
            if odd[some[0]] or len(some) <= _FEW:
                yield rows[some], None
                continue
            narrowed = [Where(one.column, one.rows[some]) for one in texts]
            yield from self._alike(
                batch, rows[some], [*narrowed, Where(made, some)], renamed | {step}, after
            )


def _batch(part: Part) -> _Batch:
    firsts = part.firsts
    subjects = part.subjects.take(pa.array(firsts))
    return _Batch(part, Column(subjects), firsts, np.diff(firsts, append=len(part.subjects)))


def _plain(subjects: pa.Array) -> NDArray[np.bool_]:
    """Whether each subject is legal, is UTF-8 and has no `{{`, with which a function begins."""
    found: NDArray[np.bool_] = publishable(subjects)
    found &= _flags(pc.match_substring(subjects, "{{")) == 0
    try:
        subjects.cast(pa.string())
    except pa.ArrowInvalid:
        found &= [_is_text(subject) for subject in subjects.to_pylist()]
    return found


def _is_text(subject: bytes | None) -> bool:
    try:
        (subject or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def _flags(found: pa.Array) -> Numbers:
    return np.asarray(found.fill_null(False).to_numpy(zero_copy_only=False)).astype(np.int64)


def _in_order(hashes: Collection[int]) -> NDArray[np.uint64]:
    return np.array(sorted(hashes), dtype=np.uint64)


def _filters(question: Question) -> Iterator[str]:
    """All filters that a subject is compared with once it has been mapped."""
    yield from Network(question.streams).filters
    for consumer in question.consumers:
        yield from consumer.filters
    for user in question.users:
        for side in (user.publish, user.subscribe):
            yield from (*(side.allow or ()), *side.deny)
    yield from (shared.subject for shared in question.shared)
