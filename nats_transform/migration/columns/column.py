"""Columns of subjects, which the compiled kernel looks at many at a time.

The kernel answers with arrays that have a number for each subject, so no Python code runs for a
single subject.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache, cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from nats_transform.functions import Wildcard
from nats_transform.kernel.filters import Pattern
from nats_transform.kernel.program import Program
from nats_transform.kernel.rules import NOT_LITERAL, WHOLE_SUBJECT, Check, End, Ends, Rule, State
from nats_transform.kinds import Kinds
from nats_transform.mapping import Fate
from nats_transform.migration.hygiene import MOST_BYTES, MOST_TOKENS
from nats_transform.subject import SEPARATOR, decode

Numbers = NDArray[np.int64]


class Column:
    """An array of texts as bytes. What is computed of them is kept for the next time."""

    def __init__(self, texts: pa.Array) -> None:
        self.texts = texts
        self._tokens: dict[int, Words] = {}

    def text(self, row: int) -> str | None:
        """The text of a row."""
        raw = self.texts[row].as_py()
        return None if raw is None else decode(raw)

    @cached_property
    def there(self) -> NDArray[np.bool_]:
        """Where there is a text."""
        return np.asarray(self.texts.is_valid().to_numpy(zero_copy_only=False))

    @cached_property
    def hashes(self) -> NDArray[np.uint64]:
        """The `count.hashed` of each text; a null has the hash of the empty text."""
        texts = self.texts.fill_null(b"") if self.texts.null_count else self.texts
        values = texts.to_numpy(zero_copy_only=False)
        return np.fromiter(map(xxh3_64_intdigest, values), np.uint64, len(values))

    @cached_property
    def prefixes(self) -> Words:
        """The `changes.prefix` of each text."""
        return Words(_prefixes().run(self.texts).subjects)

    def tokens(self, place: int) -> Words:
        """The token of each text at a place (0-based); a text with fewer tokens has none."""
        if place not in self._tokens:
            self._tokens[place] = Words(_token(place).run(self.texts).subjects)
        return self._tokens[place]


class Words:
    """Texts of which many are equal.

    Attributes:
        codes: for each row the place of its text in `words`; -1 where there is no text.
        words: the different texts.
    """

    def __init__(self, texts: pa.Array) -> None:
        encoded = texts.dictionary_encode()
        self.codes: Numbers = encoded.indices.fill_null(-1).to_numpy().astype(np.int64)
        self._words = encoded.dictionary.cast(pa.binary())

    @cached_property
    def words(self) -> list[str]:
        """The different texts."""
        return [decode(word) for word in self._words.to_pylist()]

    def word(self, row: int) -> str | None:
        """The text of a row."""
        code = int(self.codes[row])
        return None if code < 0 else self.words[code]

    def among(self, rows: Numbers) -> Iterator[str]:
        """The different texts of some rows."""
        seen = np.zeros(len(self._words) + 1, dtype=bool)
        seen[self.codes[rows]] = True
        return (decode(self._words[code].as_py()) for code in np.flatnonzero(seen[:-1]).tolist())

    def ranks(self) -> Numbers:
        """A number for each row that sorts as its text does, byte by byte; a null sorts first."""
        order = pc.array_sort_indices(self._words).to_numpy()
        ranks = np.full(len(order) + 1, -1)
        ranks[order] = np.arange(len(order))
        return ranks[self.codes]

    def taken(self, rows: Numbers) -> pa.DictionaryArray:
        """The texts of some rows."""
        codes = self.codes[rows].astype(np.int32)
        return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), self._words)


class Looks:
    """Numbers that are equal for two subjects if no filter and no limit tells them apart.

    Args:
        filters: all filters that subjects are compared with. Subjects with equal numbers are of
            the same one of their `Kinds`. The limits are those of `migration.hygiene`.
    """

    def __init__(self, filters: Iterable[str]) -> None:
        filters = list(filters)
        longest = max([MOST_TOKENS, *(filter.count(SEPARATOR) + 1 for filter in filters)])
        self._counts = _counts(longest)
        self._places = [
            (len(names) + 1, _names(place, tuple(names))) for place, names in Kinds(filters).wanted
        ]

    def of(self, texts: pa.Array) -> Iterator[tuple[Numbers, int]]:
        """Arrays with a number for each text, each with a bound that all its numbers are below.

        In the first array a number below `ILLEGAL` means a null or a text that is not a legal
        literal subject.
        """
        states = self._counts.run(texts).states.to_numpy().astype(np.int64)
        yield states, len(self._counts.states)
        sizes = pc.binary_length(texts).fill_null(0).to_numpy()
        yield (sizes > MOST_BYTES).astype(np.int64), 2
        for size, program in self._places:
            states = program.run(texts).states.to_numpy().astype(np.int64)
            yield np.maximum(states - ILLEGAL, -1) + 1, size + 1


ILLEGAL = len(NOT_LITERAL)


def compare(one: Column, other: Column) -> Numbers:
    """1 where both have the same text, else 0."""
    same = pc.equal(one.texts, other.texts).fill_null(False)
    return np.asarray(same.to_numpy(zero_copy_only=False)).astype(np.int64)


class Classes:
    """Puts rows into classes: rows whose numbers are equal in all arrays are in one class."""

    def __init__(self, rows: int) -> None:
        self._codes: Numbers = np.zeros(rows, dtype=np.int64)
        self._below = 1

    def add(self, numbers: Numbers, below: int) -> None:
        """Takes an array with a number for each row; all are at least 0 and below a bound."""
        if self._below * below >= 2**62:
            self._compact()
        self._codes = self._codes * below + numbers
        self._below *= below

    def _compact(self) -> int:
        encoded = pa.array(self._codes).dictionary_encode()
        self._codes = encoded.indices.to_numpy().astype(np.int64)
        self._below = max(1, len(encoded.dictionary))
        return self._below

    def rows(self) -> Iterator[Numbers]:
        """The rows of each class, ascending."""
        classes = self._compact()
        # NumPy sorts 16-bit numbers with a radix sort, which is faster.
        codes = self._codes.astype(np.uint16) if classes < 2**16 else self._codes
        order = np.argsort(codes, kind="stable")
        starts = np.searchsorted(codes[order], np.arange(classes, dtype=codes.dtype))
        return iter(np.split(order, starts[1:]) if len(order) else [])


def publishable(texts: pa.Array) -> NDArray[np.bool_]:
    """Whether a message can be published under each subject; it cannot under a null."""
    return np.asarray(_publishable().run(texts).states.to_numpy() == ILLEGAL)


def _program(patterns: Iterable[tuple[Pattern, End]], otherwise: End) -> Program:
    return Program([Rule(pattern, "", Ends([end])) for pattern, end in patterns], otherwise)


def _end(number: int, **more: object) -> End:
    return End(State(Fate.MAPPED, rule=number), **more)  # type: ignore[arg-type]


@cache
def _counts(longest: int) -> Program:
    """A program whose state says how many tokens a subject has and whether it can be published.

    All subjects with more than `longest` tokens have the same state.
    """

    def counted(count: int) -> End:
        failed = State(Fate.INVALID, rule=count)
        return _end(count, tokens=WHOLE_SUBJECT, check=Check.PUBLISHABLE, failed=failed)

    patterns = [
        (Pattern((None,) * count, is_open=False), counted(count)) for count in range(1, longest + 1)
    ]
    return _program(patterns, counted(longest + 1))


@cache
def _publishable() -> Program:
    failed = State(Fate.INVALID)
    made = _end(0, tokens=WHOLE_SUBJECT, check=Check.PUBLISHABLE, failed=failed)
    return _program([], made)


def _names(place: int, names: tuple[str, ...]) -> Program:
    """A program whose state says which of some names is the token at a place."""
    before = (None,) * place
    patterns = [
        (Pattern((*before, name), is_open), _end(number))
        for number, name in enumerate(names)
        for is_open in (False, True)
    ]
    return _program(patterns, _end(len(names)))


@cache
def _prefixes() -> Program:
    start = _end(0, tokens=(Wildcard(0), Wildcard(1)))
    return _program([(Pattern((None, None), is_open=True), start)], _end(1, tokens=WHOLE_SUBJECT))


@cache
def _token(place: int) -> Program:
    token = _end(0, tokens=(Wildcard(place),))
    before = (None,) * (place + 1)
    return _program([(Pattern(before, is_open), token) for is_open in (False, True)], _end(1))
