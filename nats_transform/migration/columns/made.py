"""What mappings make of a column of subjects.

A mapping has one or more destinations, and each has a place in the mapping's list. For each place
there is one column of results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from nats_transform.functions import Literal, Partition, Random, Token, Wildcard
from nats_transform.kernel.accounts import compile_destinations
from nats_transform.kernel.program import Program
from nats_transform.kernel.rules import WHOLE_SUBJECT, State
from nats_transform.mapping import AccountMappings
from nats_transform.migration.case import steady
from nats_transform.migration.columns.column import Column, Numbers
from nats_transform.migration.partitions import HASH, entry
from nats_transform.subject import SEPARATOR
from nats_transform.transform import Transform

MOST = 16
"""How many destinations of a mapping are computed here. The scalar code takes a mapping with more,
and a subject with more rows."""


class Made(NamedTuple):
    """The results of the destinations that mappings have at one place.

    Attributes:
        results: the new subjects; null where there is none.
        states: for each subject the place of its state in `of`.
        of: the states: each says which mapping applied and whether its result was refused.
        keys: the text that `partition()` hashes; None if no destination at the place has one.
        entries: the `partitions.entry` of each key.
        partitions: the number of each partition, -1 where there is none.
    """

    results: Column
    states: Numbers
    of: Sequence[State]
    keys: Column | None = None
    entries: NDArray[np.uint64] | None = None
    partitions: Numbers | None = None


class _Place:
    """The compiled destinations that mappings have at one place."""

    def __init__(self, made: Program, keys: Program, hashes: Program, of: AccountMappings) -> None:
        self._made, self._keys, self._hashes = made, keys, hashes
        found = {(m.source, d.destination): d.partition for m in of.mappings for d in m.transforms}
        partitions = [found.get((s.source or "", s.destination or "")) for s in made.states]
        self._has = np.array([one is not None for one in partitions])
        self._counts = np.array([max(1, one.count) if one else 1 for one in partitions], np.uint64)
        self._joins = np.array([one is not None and len(one.positions) > 1 for one in partitions])

    def of(self, subjects: pa.Array) -> Made:
        """What becomes of each subject."""
        mapped = self._made.run(subjects)
        states = mapped.states.to_numpy().astype(np.int64)
        made = Made(Column(mapped.subjects), states, self._made.states)
        return self._with_keys(made, subjects) if self._has.any() else made

    def _with_keys(self, made: Made, subjects: pa.Array) -> Made:
        texts, joins = self._keys.run(subjects).subjects, self._joins[made.states]
        if joins.any():
            # A key is its tokens without dots between them, and no token has a dot.
            joined = pc.replace_substring(texts, pattern=SEPARATOR, replacement="")
            texts = pc.if_else(pa.array(joins), joined, texts)
        keys = Column(texts)
        found = entries(keys, self._hashes.run(subjects).subjects)
        numbers = (found & np.uint64(HASH)) % self._counts[made.states]
        return made._replace(
            keys=keys,
            entries=found,
            partitions=np.where(self._has[made.states], numbers.astype(np.int64), -1),
        )


class Side:
    """The compiled mappings of one side of the comparison: current or candidate."""

    def __init__(self, mappings: AccountMappings) -> None:
        made = compile_destinations(mappings, result)
        keys = compile_destinations(mappings, _key, is_subject=False)
        hashes = compile_destinations(mappings, _hash, is_subject=False)
        programs = list(zip(made, keys, hashes, strict=True))
        self._places = [_Place(*one, mappings) for one in programs[:MOST]]
        beyond = {state.rule for one in made[MOST:] for state in one.states if state.destination}
        self._is_beyond = np.array([state.rule in beyond for state in made[0].states])

    def of(self, subjects: pa.Array) -> list[Made]:
        """The results of each place."""
        return [place.of(subjects) for place in self._places]

    def has_more(self, made: Made) -> NDArray[np.bool_]:
        """Where the mapping that applied has more than `MOST` destinations.

        Args:
            made: the results of the first place.
        """
        return self._is_beyond[made.states]


def result(transform: Transform) -> Sequence[Token]:
    return [
        Literal(steady(token.evaluate((), None))) if isinstance(token, Literal | Random) else token
        for token in transform.tokens
    ]


def _key(transform: Transform) -> Sequence[Token] | None:
    if transform.partition is None:
        return None
    return [Wildcard(place) for place in transform.partition.positions] or WHOLE_SUBJECT


def _hash(transform: Transform) -> Sequence[Token] | None:
    if transform.partition is None:
        return None
    return [Partition(HASH, transform.partition.positions)]


def entries(keys: Column, hashes: pa.Array) -> NDArray[np.uint64]:
    """The `entry` of each key.

    Args:
        keys: the keys.
        hashes: the result of `partition()` with 2**32 - 1 partitions for each key, which is the
            key's FNV-1a hash unless the result is 0.
    """
    lower = hashes.fill_null(b"1").cast(pa.string()).cast(pa.uint64()).to_numpy()
    found: NDArray[np.uint64] = (keys.hashes & np.uint64(HASH)) << np.uint64(32) | lower
    for row in np.flatnonzero(lower == 0).tolist():
        found[row] = entry(keys.text(row) or "")
    return found
