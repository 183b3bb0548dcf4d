"""One subject of the archive in one cluster, under both mappings."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from nats_transform.kinds import MOST_KINDS, Kind, Kinds
from nats_transform.mapping import AccountMappings, Fate, Mapping, Outcome
from nats_transform.migration.count import PARTS, Amount, hashed
from nats_transform.subject import ANY_TOKEN, NOT_LITERAL, SEPARATOR
from nats_transform.subject_index import SubjectIndex

if TYPE_CHECKING:
    from nats_transform.migration.columns.alike import Alike

_FEW = 32  # with fewer mappings, looking at each of them is quicker than an index
_RANDOM = re.compile(r"\{\{\s*random\s*\(\s*(\d+)\s*\)\s*\}\}", re.IGNORECASE)
_K = TypeVar("_K")
_Outcomes: TypeAlias = list[tuple[Outcome, int]]


class CensusRow(NamedTuple):
    """A distinct subject in one cluster.

    Attributes:
        subject: the archived subject; None if the message had none.
        cluster: the cluster that it was published in, if known.
        messages: the number of messages.
        bytes: the size of their payloads.
        chosen: the destinations that these messages drew under the current mapping and under the
            candidate; None in place of a destination if the draw gave none. Without `chosen` every
            outcome counts by its weight.
    """

    subject: str | None
    cluster: str | None
    messages: Amount
    bytes: Amount = 0
    chosen: tuple[str | None, str | None] | None = None


class Case(NamedTuple):
    """A subject in one cluster, with its outcomes under both mappings.

    A case can also stand for many subjects that differ only in their names and numbers. It then has
    the names of the first of them, and arrays of numbers.

    Attributes:
        subject, cluster: the subject and cluster of the row of the census.
        messages, bytes: the number of messages, and the size of their payloads.
        tokens_before, tokens: the tokens of the subject as mapping functions see them, under the
            current mapping and under the candidate.
        before, after: the outcomes with their percent, under the current mapping and under the
            candidate.
        was, becomes: the subjects of the likeliest outcomes, to show.
        covering: the numbers of the candidate's mappings that cover the subject; the first applies.
        alike: the subjects that the case stands for; None if it stands for one subject.
    """

    subject: str | None
    cluster: str | None
    messages: Amount
    bytes: Amount
    tokens_before: Sequence[str]
    tokens: Sequence[str]
    before: _Outcomes
    after: _Outcomes
    was: str | None
    becomes: str | None
    covering: list[int]
    alike: Alike | None = None

    @property
    def parts(self) -> Amount:
        """The number of messages, in parts."""
        return self.messages * PARTS

    def hashed(self, text: str) -> int | NDArray[np.uint64]:
        """The 64-bit hash of a text that the subject is mapped to."""
        return hashed(text) if self.alike is None else self.alike.hashes(text)

    def with_hash(
        self, text: str, parts: Amount, wanted: Collection[int]
    ) -> Iterator[tuple[int, Case, Amount]]:
        """Each wanted hash that a text has here, with a count of the subjects that have it.

        Args:
            text: the text that the subject is mapped to.
            parts: the parts of the messages of each subject.
            wanted: the hashes.
        """
        if self.alike is None:
            if (key := hashed(text)) in wanted:
                yield key, self, parts
            return
        hashes = self.alike.hashes(text)
        there = np.flatnonzero(np.isin(hashes, np.array(list(wanted), dtype=np.uint64)))
        for key in np.unique(hashes[there]).tolist():
            rows = there[hashes[there] == key]
            yield key, self._replace(alike=self.alike.only(rows)), np.asarray(parts)[rows]


class Matcher:
    """The mappings of an account, with an index to find those that cover a subject."""

    def __init__(self, mappings: AccountMappings) -> None:
        self.mappings = mappings
        sources = [mapping.source for mapping in mappings.mappings]
        self._index = SubjectIndex(sources) if len(sources) > _FEW else None
        # The index compares tokens like `*a` with literals letter by letter.
        self._odd = [
            number
            for number, source in enumerate(sources)
            if any(t.startswith(ANY_TOKEN) and t != ANY_TOKEN for t in source.split(SEPARATOR))
        ]
        self._kinds = Kinds(sources)
        self._known: dict[Kind, list[int]] = {}

    def covering(self, tokens: Sequence[str]) -> list[int]:
        """The numbers of the mappings that cover a literal subject."""
        if not self.mappings.mappings:
            return []
        kind = self._kinds.of(tokens)
        if kind is None:
            return self._covering(tokens)
        found = self._known.get(kind)
        if found is None:
            if len(self._known) >= MOST_KINDS:
                self._known.clear()
            found = self._known[kind] = self._covering(tokens)
        return found

    def _covering(self, tokens: Sequence[str]) -> list[int]:
        all_of_them = self.mappings.mappings
        if self._index is None:
            return [n for n, mapping in enumerate(all_of_them) if mapping.filter.covers(tokens)]
        found = self._index.colliding(SEPARATOR.join(tokens))
        if not self._odd:
            return found
        return sorted({*found, *(n for n in self._odd if all_of_them[n].filter.covers(tokens))})

    def seen(self, covering: list[int], subject: str, tokens: Sequence[str]) -> Sequence[str]:
        """The tokens that mapping functions get; none if the server does not split the subject."""
        if covering and covering[0] == 0 and self.mappings.mappings[0].source == subject:
            return ()
        return tokens

    def mapped(self, subject: str | None) -> tuple[Mapping, Sequence[str]] | None:
        """The mapping that applies to a subject, if any, and the tokens that its functions get."""
        if subject is None:
            return None
        tokens = subject.split(SEPARATOR)
        if not NOT_LITERAL.isdisjoint(tokens) or not (covering := self.covering(tokens)):
            return None
        return self.mappings.mappings[covering[0]], self.seen(covering, subject, tokens)

    def outcomes(
        self, subject: str, cluster: str | None, covering: list[int], tokens: Sequence[str]
    ) -> _Outcomes:
        """The result of `AccountMappings.outcomes`, with a fixed text for each `random()`.

        Args:
            subject: a legal literal subject.
            cluster: the cluster that it was published in.
            covering: the result of `covering` for the subject.
            tokens: the result of `seen` for the subject.
        """
        if not covering:
            return [(Outcome(subject, Fate.UNMATCHED), 100)]
        mapping = self.mappings.mappings[covering[0]]
        found = []
        for share in mapping.shares(cluster):
            if share.weight:
                outcome = mapping.outcome(share, tokens, None, None)
                if outcome.subject is not None and "{{" in outcome.subject:
                    outcome = outcome._replace(subject=steady(outcome.subject))
                found.append((outcome, share.weight))
        return found


def steady(subject: str) -> str:
    """A subject with every `random()` in the same spelling."""
    return _RANDOM.sub(r"{{random(\1)}}", subject)


def numbers_drawn(subject: str) -> int:
    """How many different subjects the `random()` in a subject can make."""
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
        for subject, rows in by_subject(census):
            yield self.of_subject(subject, rows)

    def of_subject(self, subject: str | None, rows: Iterable[CensusRow]) -> list[Case]:
        """The cases of one subject."""
        tokens = () if subject is None else subject.split(SEPARATOR)
        if subject is None or not NOT_LITERAL.isdisjoint(tokens):
            outcomes = AccountMappings(()).outcomes(subject or "")
            return [
                Case(subject, cluster, messages, size, (), (), outcomes, outcomes, None, None, [])
                for _, cluster, messages, size, _ in rows
            ]
        current, candidate = self.current, self.candidate
        before, after = current.covering(tokens), candidate.covering(tokens)
        tokens_before = current.seen(before, subject, tokens)
        tokens_after = candidate.seen(after, subject, tokens)
        cases = []
        for _, cluster, messages, size, chosen in rows:
            was = current.outcomes(subject, cluster, before, tokens_before)
            becomes = candidate.outcomes(subject, cluster, after, tokens_after)
            if chosen is not None:
                was, becomes = _drawn(was, chosen[0]), _drawn(becomes, chosen[1])
            cases.append(
                Case(
                    subject,
                    cluster,
                    messages,
                    size,
                    tokens_before,
                    tokens_after,
                    was,
                    becomes,
                    _likeliest(was),
                    _likeliest(becomes),
                    after,
                )
            )
        return cases


def by_subject(
    census: Iterable[CensusRow],
) -> Iterator[tuple[str | None, Iterator[CensusRow]]]:
    """The rows of each subject; the rows of a subject must follow one another."""
    return groupby(census, key=itemgetter(0))


def _drawn(outcomes: _Outcomes, destination: str | None) -> _Outcomes:
    """The only outcome with a destination; no mapping has the same destination twice."""
    return [(outcome, 100) for outcome, _ in outcomes if outcome.mapping_destination == destination]


def rise(case: Case, kind: Callable[[Outcome], _K | None]) -> list[tuple[_K, Outcome, Amount]]:
    """The kinds of outcome that become likelier, each with its likeliest outcome and the gain.

    Args:
        case: the subject.
        kind: a function that gives the kind of an outcome; None leaves the outcome out.

    Yields:
        The outcome, and by how many parts of the messages its kind gains.
    """
    before: dict[_K, int] = {}
    for outcome, percent in case.before:
        if (name := kind(outcome)) is not None:
            before[name] = before.get(name, 0) + percent
    # With the percent of the likeliest outcome.
    after: dict[_K, tuple[int, int, Outcome]] = {}
    for outcome, percent in case.after:
        if (name := kind(outcome)) is not None:
            if name in after:
                total, most, likeliest = after[name]
                if percent > most:
                    most, likeliest = percent, outcome
                after[name] = total + percent, most, likeliest
            else:
                after[name] = percent, percent, outcome
    return [
        (name, outcome, more * case.messages)
        for name, (percent, _, outcome) in after.items()
        if (more := percent - before.get(name, 0)) > 0
    ]


def _likeliest(outcomes: _Outcomes) -> str | None:
    if len(outcomes) == 1:
        return outcomes[0][0].subject
    return max(outcomes, key=itemgetter(1))[0].subject
