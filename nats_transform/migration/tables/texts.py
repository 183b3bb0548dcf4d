"""Columns of subjects, which the compiled kernel looks at many at a time.

The kernel answers with arrays that have a number for each subject, so no Python code runs for a
single subject.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from nats_transform.kernel.filters import Pattern
from nats_transform.kernel.program import Program
from nats_transform.kernel.rules import ILLEGAL_STATES, WHOLE_SUBJECT, Check, End, Ends, Rule, State
from nats_transform.mappings.functions import Wildcard
from nats_transform.mappings.mapping import Fate
from nats_transform.mappings.subject import SEPARATOR, decode
from nats_transform.migration.tables.kinds import Kinds

Numbers = NDArray[np.int64]

MOST_TOKENS, MOST_BYTES = 16, 256
"""What the documentation of NATS recommends. Longer subjects are legal, and slow every server."""

ILLEGAL = len(ILLEGAL_STATES)
"""The first number of `Signatures.of` is below this where a text is no legal literal subject."""


class Words:
    """Texts of which many are equal.

    Attributes:
        codes: for each row the place of its text in `words`; -1 where there is no text.
        words: the different texts.
    """

    def __init__(self, texts: pa.Array) -> None:
        encoded = texts if pa.types.is_dictionary(texts.type) else texts.dictionary_encode()
        self.codes: Numbers = encoded.indices.fill_null(-1).to_numpy().astype(np.int64)
        self.words = encoded.dictionary.cast(pa.binary())

    def word(self, row: int) -> str | None:
        """The text of a row."""
        code = int(self.codes[row])
        return None if code < 0 else decode(self.words[code].as_py())

    def ranks(self) -> Numbers:
        """A number for each row that sorts as its text does, byte by byte; a null sorts first."""
        order = pc.array_sort_indices(self.words).to_numpy()
        ranks = np.full(len(order) + 1, -1)
        ranks[order] = np.arange(len(order))
        return ranks[self.codes]

    def taken(self, rows: Numbers) -> pa.DictionaryArray:
        """The texts of some rows."""
        codes = self.codes[rows].astype(np.int32)
        return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), self.words)


class Signatures:
    """Numbers that are equal for two subjects if no filter and no limit tells them apart.

    Args:
        filters: all filters that subjects are compared with. Subjects with equal numbers are of
            the same one of their `Kinds`. The limits are `MOST_TOKENS` and `MOST_BYTES`.
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
        yield _states(self._counts, texts), len(self._counts.states)
        sizes = pc.binary_length(texts).fill_null(0).to_numpy()
        yield (sizes > MOST_BYTES).astype(np.int64), 2
        for size, program in self._places:
            yield np.maximum(_states(program, texts) - ILLEGAL, -1) + 1, size + 1


class Classes:
    """Puts rows into classes: rows whose numbers are equal in all arrays are in one class."""

    def __init__(self, rows: int) -> None:
        self._codes: Numbers = np.zeros(rows, dtype=np.int64)
        self._below = 1

    def add(self, numbers: Numbers, below: int) -> None:
        """Takes an array with a number for each row; all are at least 0 and below a bound."""
        if self._below * below >= 2**62:
            self.codes()
        self._codes = self._codes * below + numbers
        self._below *= below

    def codes(self) -> tuple[Numbers, Numbers]:
        """The number of each row's class, and a row of each class."""
        encoded = pa.array(self._codes).dictionary_encode()
        self._codes = encoded.indices.to_numpy().astype(np.int64)
        self._below = max(1, len(encoded.dictionary))
        firsts = np.zeros(len(encoded.dictionary), dtype=np.int64)
        firsts[self._codes[::-1]] = np.arange(len(self._codes))[::-1]
        return self._codes, firsts

    def rows(self) -> Iterator[Numbers]:
        """The rows of each class, ascending."""
        codes, firsts = self.codes()
        if len(firsts) < 2**16:
            codes = codes.astype(np.uint16)  # NumPy sorts these with a radix sort, which is faster
        order = np.argsort(codes, kind="stable")
        starts = np.searchsorted(codes[order], np.arange(len(firsts), dtype=codes.dtype))
        return iter(np.split(order, starts[1:]) if len(order) else [])


def flags(values: pa.Array) -> NDArray[np.bool_]:
    """Booleans for NumPy; a null is false."""
    return np.asarray(values.fill_null(False).to_numpy(zero_copy_only=False))


def same(one: pa.Array, other: pa.Array) -> NDArray[np.bool_]:
    """Where both have the same text."""
    return flags(pc.equal(one, other))


def has_capitals(texts: pa.Array) -> bool:
    """Whether some text has a letter from A to Z; for texts that the kernel made."""
    data = texts.buffers()[2]
    raw = np.frombuffer(data or b"", np.uint8)
    # Below A the difference is a large number, because it has no sign.
    return bool((raw - np.uint8(ord("A")) < 26).any())


def prefixes(texts: pa.Array) -> pa.DictionaryArray:
    """The first two tokens of each text, or the only one."""
    cut = _prefixes().run(texts).subjects
    if cut.null_count != texts.null_count:  # the kernel takes no text that is not legal
        missing = pc.and_(cut.is_null(), texts.is_valid())
        rest = [b".".join(text.split(b".", 2)[:2]) for text in texts.filter(missing).to_pylist()]
        cut = pc.replace_with_mask(cut, missing, pa.array(rest, pa.binary()))
    return cut.dictionary_encode()


def _states(program: Program, texts: pa.Array) -> Numbers:
    states: Numbers = program.run(texts).states.to_numpy().astype(np.int64)
    return states


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
