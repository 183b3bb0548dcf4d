"""The partition numbers of mapped subjects, and the keys that they were made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from expectations.measures.outcomes import Judged
from expectations.measures.rows import flags, sample_hashes
from nats_transform import AccountMappings
from nats_transform.audit import End
from nats_transform.kernel.counting import Coded, combinations
from nats_transform.kernel.rules import State
from nats_transform.mappings.subject import decode

MAX_NUMBERS = 4096
"""Rows of a `partition(n)` are counted up to this n."""

_CUT = len(str(MAX_NUMBERS)) + 1  # bytes


@dataclass(frozen=True, slots=True)
class PartitionedEnd:
    """A destination with a `partition()`: where the number of its first one is.

    Attributes:
        end: the source of the mapping, and the destination.
        count: the number of partitions.
        place: `Transform.partition_place`: of the number among the tokens of the mapped subject.
    """

    end: End
    count: int
    place: int


def partitioned_ends(mappings: AccountMappings) -> list[PartitionedEnd]:
    """The destinations whose partition function is at a fixed place, and has not too many."""
    return [
        PartitionedEnd(End(mapping.source, share.destination), max(partition.count, 1), place)
        for mapping in mappings.mappings
        for _, share in mapping.ends()
        if share.destination is not None and share.transform is not None
        if (partition := share.transform.partition) is not None
        if (place := share.transform.partition_place) is not None
        if partition.count <= MAX_NUMBERS
    ]


class Numbers:
    """Finds the partition numbers of messages; it can be sent to a task.

    Args:
        ends: the destinations with a partition function.
        states: what messages can come to.
        one_key_in: of one key in so many, messages are counted apart, too.
    """

    def __init__(
        self, ends: Sequence[PartitionedEnd], states: Sequence[State], one_key_in: int
    ) -> None:
        known = {one.end: one for one in ends}
        self._ends = [known.get(End(s.source or "", s.destination or "")) for s in states]
        self._counts = np.array([one.count if one else 0 for one in self._ends], np.int64)
        self._one_key_in = one_key_in

    def of(self, judged: Judged, mapped: pa.Array) -> Iterator[tuple[End, int | None, str, int]]:
        """The numbers as they are written, and how many rows have them.

        Each with the end and the hash of the key, or with None for all keys of the end.
        """
        states, hashes = judged.opinion.states, judged.opinion.hashes.astype(np.int64)
        counts = self._counts[states]
        is_key = sample_hashes(hashes) % self._one_key_in == 0
        right = np.flatnonzero(judged.is_right & (counts > 0))
        keyed = right[is_key[right]]
        ends = range(len(self._ends))
        # Where the subject is right, its number follows from the key.
        numbers = Coded(hashes[right] % counts[right], range(self._counts.max()))
        for (state, number), rows in combinations(Coded(states[right], ends), numbers):
            yield self._end(state).end, None, str(number), rows
        keys = Coded(hashes[keyed], range(2**32))
        for (state, key), rows in combinations(Coded(states[keyed], ends), keys):
            end = self._end(state)
            yield end.end, key, str(key % end.count), rows
        other = ~judged.is_right & judged.is_of_end & (counts > 0) & flags(mapped.is_valid())
        places = np.flatnonzero(other)
        subjects = mapped.take(pa.array(places)).view(pa.binary()).to_pylist()
        for place, subject in zip(places.tolist(), subjects, strict=True):
            end = self._end(states[place])
            number = _written(subject, end.place)
            yield end.end, None, number, 1
            if is_key[place]:
                yield end.end, int(hashes[place]), number, 1

    def _end(self, state: int) -> PartitionedEnd:
        end = self._ends[state]
        assert end is not None  # noqa: S101 - it has a count
        return end


def _written(subject: bytes, place: int) -> str:
    """The token of a subject where the number should be, or the nearest one."""
    tokens = subject.split(b".")
    place -= place > 0
    # Garbage is cut, or each row would be a group.
    return decode(tokens[max(-len(tokens), min(place, len(tokens) - 1))][:_CUT])
