"""The partition numbers of mapped subjects, and the keys that they were made of."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from expectations.measures.rows import counts_of, flags, sample_hashes
from nats_transform import AccountMappings
from nats_transform.audit import End
from nats_transform.kernel.proof import Opinion, Proof
from nats_transform.mappings.subject import decode

MAX_NUMBERS = 4096
"""Rows of a `partition(n)` are counted by number up to this n; above it only the range is."""

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
    place: int | None

    @property
    def is_counted(self) -> bool:
        """Whether rows are counted by number: its place is fixed, and there are not too many."""
        return self.place is not None and self.count <= MAX_NUMBERS


def partitioned_ends(mappings: AccountMappings) -> list[PartitionedEnd]:
    """The destinations that have a partition function."""
    found = []
    for mapping in mappings.mappings:
        for _, share in mapping.ends():
            partition = share.transform.partition if share.transform else None
            if partition is None or share.transform is None or share.destination is None:
                continue
            end = End(mapping.source, share.destination)
            place = share.transform.partition_place
            found.append(PartitionedEnd(end, max(partition.count, 1), place))
    return found


class Partitions:
    """Messages by the partition number in their subject.

    Args:
        proof: what the mappings make of messages.
        ends: their ends with a partition function.
        one_key_in: of one key in so many, messages are counted apart.

    Attributes:
        numbers: rows by partition number as it is written, of each end where it can be found.
        keys: of some keys, rows by partition number, by end and the hash of the key.
    """

    def __init__(self, proof: Proof, ends: Iterable[PartitionedEnd], one_key_in: int) -> None:
        self.numbers: dict[End, Counter[str]] = defaultdict(Counter)
        self.keys: dict[tuple[End, int], Counter[str]] = defaultdict(Counter)
        self._one_key_in = one_key_in
        counted = {one.end: one for one in ends if one.is_counted}
        self._ends = [
            counted.get(End(state.source or "", state.destination or "")) for state in proof.states
        ]
        self._counts = np.array([one.count if one else 0 for one in self._ends], np.int64)

    def add(self, seen: Opinion, mapped: pa.Array, right: np.ndarray, other: np.ndarray) -> None:
        """Counts the rows of a batch.

        Args:
            seen: what should have become of them.
            mapped: their new subjects.
            right: the places of rows with the right subject, so that its number is known.
            other: the places of rows with another subject of the same destination.
        """
        states, hashes = self._numbered(seen, right)
        for both, rows in counts_of(states * MAX_NUMBERS + hashes % self._counts[states]):
            state, number = divmod(both, MAX_NUMBERS)
            self.numbers[self._end(state).end][str(number)] += rows
        is_key = self._are_keys(hashes)
        for both, rows in counts_of(states[is_key] << 32 | hashes[is_key]):
            state, hash = divmod(both, 2**32)
            end = self._end(state)
            self.keys[end.end, hash][str(hash % end.count)] += rows
        if len(other):
            self._add_written(seen, mapped, other)

    def _add_written(self, seen: Opinion, mapped: pa.Array, places: np.ndarray) -> None:
        """Counts rows whose number is read in the subject."""
        places = places[flags(mapped.is_valid())[places]]
        states, hashes = self._numbered(seen, places)
        places = places[self._counts[seen.states[places]] > 0]
        subjects = mapped.take(pa.array(places)).view(pa.binary()).to_pylist()
        rows = zip(states.tolist(), hashes.tolist(), self._are_keys(hashes), subjects, strict=True)
        for state, hash, is_key, subject in rows:
            end = self._end(state)
            tokens = subject.split(b".")
            place = (end.place or 0) - (end.place is not None and end.place > 0)
            # The nearest token if there is none; garbage is cut, or each row would be a group.
            token = tokens[max(-len(tokens), min(place, len(tokens) - 1))][:_CUT]
            self.numbers[end.end][decode(token)] += 1
            if is_key:
                self.keys[end.end, hash][decode(token)] += 1

    def _numbered(self, seen: Opinion, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The states and hashes of those of some rows that should have a number."""
        states = seen.states[places].astype(np.int64)
        is_numbered = self._counts[states] > 0
        return states[is_numbered], seen.hashes[places][is_numbered].astype(np.int64)

    def _are_keys(self, hashes: np.ndarray) -> np.ndarray:
        chosen: np.ndarray = sample_hashes(hashes) % self._one_key_in == 0
        return chosen

    def _end(self, state: int) -> PartitionedEnd:
        end = self._ends[state]
        assert end is not None  # noqa: S101 - it has a count
        return end
