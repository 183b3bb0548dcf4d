"""One subject of the archive in one cluster, under both mappings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple, TypeAlias, TypeVar

from nats_transform.dryrun.count import PARTS
from nats_transform.mapping import AccountMappings, Outcome
from nats_transform.mapping import Mapping as SubjectMapping
from nats_transform.subject import ANY_TOKEN, SEPARATOR, literal_fault
from nats_transform.subject_index import SubjectIndex

_FEW = 32  # below, looking at every mapping is quicker than an index
_RANDOM = re.compile(r"\{\{\s*random\s*\(\s*(\d+)\s*\)\s*\}\}", re.IGNORECASE)
_K = TypeVar("_K")
_Outcomes: TypeAlias = list[tuple[Outcome, int]]


class CensusRow(NamedTuple):
    """A distinct subject in one cluster.

    Attributes:
        subject: as archived; None if the message had none.
        cluster: where it was published, if known.
        messages: how many.
        bytes: of their payloads.
        chosen: the destination that these messages drew under the current mapping and under the
            candidate, None where none was to be had; without, every outcome counts by its weight.
    """

    subject: str | None
    cluster: str | None
    messages: int
    bytes: int = 0
    chosen: tuple[str | None, str | None] | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """A subject in one cluster, and all that can become of it.

    Attributes:
        subject, cluster: of the census.
        messages, bytes: how many, and of their payloads.
        tokens: of the subject, as mapping functions see them under the candidate.
        before, after: outcomes with their percent, under the current mapping and the candidate.
        covering: numbers of the candidate's mappings that cover the subject; the first applies.
    """

    subject: str | None
    cluster: str | None
    messages: int
    bytes: int
    tokens: tuple[str, ...]
    before: list[tuple[Outcome, int]]
    after: list[tuple[Outcome, int]]
    covering: list[int]

    @property
    def parts(self) -> int:
        """All its messages, in parts."""
        return self.messages * PARTS


class Matcher:
    """The mappings of an account, with those that cover a subject found quickly."""

    def __init__(self, mappings: AccountMappings) -> None:
        self.mappings = mappings
        sources = [mapping.source for mapping in mappings.mappings]
        self._index = SubjectIndex(sources) if len(sources) > _FEW else None
        # The index holds tokens like `*a` against literals letter by letter.
        self._odd = [
            number
            for number, source in enumerate(sources)
            if any(t.startswith(ANY_TOKEN) and t != ANY_TOKEN for t in source.split(SEPARATOR))
        ]

    def covering(self, subject: str) -> list[int]:
        """The numbers of the mappings that cover a legal literal subject."""
        tokens = subject.split(SEPARATOR)
        all_of_them = self.mappings.mappings
        if self._index is None:
            return [n for n, mapping in enumerate(all_of_them) if mapping.filter.covers(tokens)]
        found = self._index.colliding(subject)
        if not self._odd:
            return found
        return sorted({*found, *(n for n in self._odd if all_of_them[n].filter.covers(tokens))})

    def tokens(self, covering: list[int], subject: str) -> tuple[str, ...]:
        """The tokens that mapping functions get: none where the server does not cut them."""
        first = covering[0] if covering else None
        if first == 0 and self.mappings.mappings[0].source == subject:
            return ()
        return tuple(subject.split(SEPARATOR))

    def outcomes(
        self, subject: str, cluster: str | None, covering: list[int]
    ) -> list[tuple[Outcome, int]]:
        """As `AccountMappings.outcomes`, with the text of each `random()` always the same."""
        mapping: SubjectMapping | None = self.mappings.mappings[covering[0]] if covering else None
        found = self.mappings.outcomes_of(mapping, subject, cluster)
        return [
            (replace(outcome, subject=_RANDOM.sub(r"{{random(\1)}}", outcome.subject)), percent)
            if outcome.subject and "{{" in outcome.subject and mapping is not None
            else (outcome, percent)
            for outcome, percent in found
        ]


def numbers_drawn(subject: str) -> int:
    """How many subjects the `random()` in a subject stands for."""
    count = 1
    for found in _RANDOM.finditer(subject):
        count *= max(1, int(found[1]))
    return count


class Cases:
    """The cases of a census, subject by subject."""

    def __init__(self, current: AccountMappings, candidate: AccountMappings) -> None:
        self.current = Matcher(current)
        self.candidate = Matcher(candidate)

    def of(self, census: Iterable[CensusRow]) -> Iterator[list[Case]]:
        """The cases of each subject; the rows of a subject must follow one another."""
        for subject, rows in groupby(census, key=attrgetter("subject")):
            yield list(self._of_subject(subject, rows))

    def _of_subject(self, subject: str | None, rows: Iterable[CensusRow]) -> Iterator[Case]:
        if subject is None or literal_fault(subject):
            empty = AccountMappings(())
            outcomes = empty.outcomes(subject or "")
            for row in rows:
                yield Case(
                    subject, row.cluster, row.messages, row.bytes, (), outcomes, outcomes, []
                )
            return
        before = self.current.covering(subject)
        after = self.candidate.covering(subject)
        tokens = self.candidate.tokens(after, subject)
        for row in rows:
            was = self.current.outcomes(subject, row.cluster, before)
            becomes = self.candidate.outcomes(subject, row.cluster, after)
            if row.chosen is not None:
                was, becomes = _drawn(was, row.chosen[0]), _drawn(becomes, row.chosen[1])
            yield Case(subject, row.cluster, row.messages, row.bytes, tokens, was, becomes, after)


def _drawn(outcomes: _Outcomes, destination: str | None) -> _Outcomes:
    """The one outcome with a destination; no mapping has two."""
    return [(outcome, 100) for outcome, _ in outcomes if outcome.mapping_destination == destination]


def rise(case: Case, kind: Callable[[Outcome], _K | None]) -> Iterator[tuple[_K, Outcome, int]]:
    """The kinds of outcome that become likelier, with the likeliest outcome and by how many parts.

    Args:
        case: the subject.
        kind: puts an outcome into a class; None leaves it out.
    """
    before: dict[_K, int] = {}
    after: dict[_K, int] = {}
    shown: dict[_K, tuple[int, Outcome]] = {}
    for outcome, percent in case.before:
        if (name := kind(outcome)) is not None:
            before[name] = before.get(name, 0) + percent
    for outcome, percent in case.after:
        if (name := kind(outcome)) is not None:
            after[name] = after.get(name, 0) + percent
            if name not in shown or percent > shown[name][0]:
                shown[name] = percent, outcome
    for name, percent in after.items():
        if (more := percent - before.get(name, 0)) > 0:
            yield name, shown[name][1], more * case.messages


def first_subject(outcomes: list[tuple[Outcome, int]]) -> str | None:
    """The subject of the likeliest outcome, to show."""
    return max(outcomes, key=lambda pair: pair[1])[0].subject
