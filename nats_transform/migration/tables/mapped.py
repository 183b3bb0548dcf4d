"""What mappings make of a column of subjects.

A mapping has one or more destinations, and each has a place in the mapping's list. For each place
there is one column of results.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from nats_transform.kernel.accounts import compile_destinations
from nats_transform.kernel.program import Program
from nats_transform.kernel.rules import WHOLE_SUBJECT, State
from nats_transform.mappings.functions import Literal, Partition, Random, Token, Wildcard, fnv1a
from nats_transform.mappings.mapping import AccountMappings
from nats_transform.mappings.subject import SEPARATOR
from nats_transform.mappings.transform import Transform
from nats_transform.migration.tables.texts import Numbers

_MOST = 2**32 - 1


class Keys(NamedTuple):
    """The keys that the first `partition()` of a destination hashes.

    Attributes:
        texts: the keys; null where there is none.
        hashes: the FNV-1a hash of each key.
        partitions: the number of each partition, -1 where there is none.
    """

    texts: pa.Array
    hashes: NDArray[np.uint64]
    partitions: Numbers


class Mapped(NamedTuple):
    """The results of the destinations that mappings have at one place.

    Attributes:
        results: the new subjects; null where there is none.
        states: for each subject the place of its state in `of`.
        of: the states: each says which mapping applied and whether its result was refused.
        draws: a number from 1 on for each state with a `random()`, which stands in the result as it
            is written; 0 for the others.
        keys: the keys; None if no destination at the place has a `partition()`.
    """

    results: pa.Array
    states: Numbers
    of: Sequence[State]
    draws: Numbers
    keys: Keys | None

    def has_partition(self, row: int) -> bool:
        """Whether the destination of a row has a `partition()`."""
        return self.keys is not None and bool(self.keys.partitions[row] >= 0)


class _Place:
    """The compiled destinations that mappings have at one place."""

    def __init__(self, made: Program, keys: Program, hashes: Program, of: AccountMappings) -> None:
        self._made, self._keys, self._hashes = made, keys, hashes
        by_state = {(m.source, d.destination): d for m in of.mappings for d in m.transforms}
        transforms = [by_state.get((s.source or "", s.destination or "")) for s in made.states]
        partitions = [None if t is None else t.partition for t in transforms]
        draws = [
            any(isinstance(one, Random) for one in (t.tokens if t else ())) for t in transforms
        ]
        self._draws = np.where(draws, np.arange(1, len(draws) + 1), 0)
        self._has = np.array([partition is not None for partition in partitions])
        self._counts = np.array(
            [max(1, partition.count) if partition else 1 for partition in partitions], np.uint64
        )
        self._joins = np.array(
            [partition is not None and len(partition.positions) > 1 for partition in partitions]
        )

    def of(self, subjects: pa.Array) -> Mapped:
        """What becomes of each subject."""
        mapped = self._made.run(subjects)
        states = mapped.states.to_numpy().astype(np.int64)
        keys = self._keys_of(subjects, states) if self._has[states].any() else None
        return Mapped(mapped.subjects, states, self._made.states, self._draws[states], keys)

    def _keys_of(self, subjects: pa.Array, states: Numbers) -> Keys:
        texts, joins = self._keys.run(subjects).subjects, self._joins[states]
        if joins.any():
            # A key is its tokens without dots between them, and no token has a dot.
            joined = pc.replace_substring(texts, pattern=SEPARATOR, replacement="")
            texts = pc.if_else(pa.array(joins), joined, texts)
        keys = self._hashes.run(subjects).subjects.fill_null(b"1")
        hashes = keys.cast(pa.string()).cast(pa.uint64()).to_numpy().copy()
        # A partition of 2**32 - 1 is the hash itself, but for two hashes of which it is 0.
        for row in np.flatnonzero(hashes == 0).tolist():
            hashes[row] = fnv1a(texts[row].as_py() or b"")
        numbers = (hashes % self._counts[states]).astype(np.int64)
        return Keys(texts, hashes, np.where(self._has[states], numbers, -1))


class Side:
    """The compiled mappings of one side of the comparison: current or candidate."""

    def __init__(self, mappings: AccountMappings) -> None:
        programs = zip(
            compile_destinations(mappings, result),
            compile_destinations(mappings, _key, is_subject=False),
            compile_destinations(mappings, _hash, is_subject=False),
            strict=True,
        )
        self._places = [_Place(*programs_, mappings) for programs_ in programs]

    def of(self, subjects: pa.Array) -> list[Mapped]:
        """The results of each place."""
        return [place.of(subjects) for place in self._places]


def result(transform: Transform) -> Sequence[Token]:
    """The tokens that a transform makes, with a fixed text for each `random()`."""
    return [Literal(t.evaluate((), None)) if isinstance(t, Random) else t for t in transform.tokens]


def numbers_drawn(transform: Transform) -> int:
    """How many different subjects the `random()` in a destination can make of one subject."""
    return prod(max(1, abs(t.count)) for t in transform.tokens if isinstance(t, Random))


def _key(transform: Transform) -> Sequence[Token] | None:
    if transform.partition is None:
        return None
    return [Wildcard(place) for place in transform.partition.positions] or WHOLE_SUBJECT


def _hash(transform: Transform) -> Sequence[Token] | None:
    if transform.partition is None:
        return None
    return [Partition(_MOST, transform.partition.positions)]
