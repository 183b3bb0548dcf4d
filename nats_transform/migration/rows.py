"""Tables of 64-bit numbers. Rows that do not fit into memory go into a file, if there is one.

The first number of a row is a hash. Rows are read back in buckets by the upper bits of that hash:
rows with the same hash are in the same bucket, and a bucket fits into memory.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

_BITS = 8
_BUCKETS = 1 << _BITS
MOST_IN_MEMORY = 6_000_000
"""How many numbers of 8 bytes all tables together keep in memory before they use the file."""


class Store:
    """The tables of a dry run, which share a file and a limit for their memory.

    Args:
        file: a file for the rows that are too many for memory; None keeps all rows in memory.
    """

    def __init__(self, file: BinaryIO | None = None) -> None:
        self.file = file
        self._most = sys.maxsize if file is None else MOST_IN_MEMORY
        self._held = 0
        self._tables: list[Table] = []
        self._has_spilled = False

    def join(self, table: Table) -> None:
        """Let a table share the file and the limit."""
        self._tables.append(table)

    def took(self, numbers: int) -> None:
        """Count numbers that a table took, and move rows to the file if they are too many."""
        self._held += numbers
        if self._held > self._most:
            self._spill()

    @property
    def buckets(self) -> range:
        """The numbers of the buckets; every table is read bucket by bucket."""
        if not self._has_spilled:
            return range(1)
        if self._held:
            self._spill()
        return range(_BUCKETS)

    def _spill(self) -> None:
        assert self.file is not None  # noqa: S101 - without, there is no limit
        for table in self._tables:
            table.spill(self.file)
        self._held = 0
        self._has_spilled = True


class Table:
    """Rows of a fixed width; each number is from 0 to 2**64 - 1."""

    def __init__(self, store: Store, width: int) -> None:
        store.join(self)
        self._store = store
        self._width = width
        self._values = array("Q")
        # One entry for each time that rows went to the file: their position, the buckets that had
        # rows, and the first row of each bucket, followed by the number of all rows.
        self._chunks: list[tuple[int, NDArray[Any], NDArray[Any]]] = []

    def add(self, *row: int | NDArray[Any]) -> None:
        """Add a row; or, if numbers are arrays, as many rows as the arrays are long."""
        arrays = [value for value in row if not isinstance(value, int)]
        if not arrays:
            self._values.extend(row)  # type: ignore[arg-type]
            self._store.took(self._width)
            return
        rows = np.empty((len(arrays[0]), self._width), dtype=np.uint64)
        for place, value in enumerate(row):
            rows[:, place] = value
        self._values.frombytes(rows.tobytes())
        self._store.took(rows.size)

    def spill(self, file: BinaryIO) -> None:
        """Move the rows in memory to the file."""
        if not self._values:
            return
        rows = np.frombuffer(self._values, dtype=np.uint64).reshape(-1, self._width)
        # NumPy sorts bytes with a radix sort, which is fast.
        bucket_of = (rows[:, 0] >> np.uint64(64 - _BITS)).astype(np.uint8)
        order = np.argsort(bucket_of, kind="stable")
        buckets, starts = np.unique(bucket_of[order], return_index=True)
        offset = file.seek(0, 2)
        file.write(rows[order].tobytes())
        self._chunks.append((offset, buckets, np.append(starts, len(rows))))
        self._values = array("Q")

    def bucket(self, number: int) -> NDArray[np.uint64]:
        """The rows of a bucket, in the order in which they were added."""
        parts = [*self._from_file(number), np.frombuffer(self._values, dtype=np.uint64)]
        return np.concatenate(parts).reshape(-1, self._width)

    def _from_file(self, number: int) -> Iterator[NDArray[np.uint64]]:
        file, size = self._store.file, 8 * self._width
        for offset, buckets, starts in self._chunks:
            place = int(np.searchsorted(buckets, number))
            if file is None or place == len(buckets) or buckets[place] != number:
                continue
            first, after = int(starts[place]), int(starts[place + 1])
            file.seek(offset + first * size)
            yield np.frombuffer(file.read((after - first) * size), dtype=np.uint64)


class Groups(Table):
    """Rows of a key and parts; the parts are summed by key.

    Keys are hashes of 64 bits. The chance that two of 9 million texts have the same hash is 2e-6.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store, 2)

    def sums(self) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64]]]:
        """For each bucket the distinct keys in order, their sums of parts and numbers of rows."""
        for bucket in self._store.buckets:
            yield summed(self.bucket(bucket))


def summed(
    rows: NDArray[np.uint64],
) -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64]]:
    """The distinct first numbers in order, the sums of the second ones, and the numbers of rows."""
    if not len(rows):
        nothing = np.zeros(0, dtype=np.int64)
        return nothing.astype(np.uint64), nothing, nothing
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    keys = rows[:, 0]
    starts = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
    parts = np.add.reduceat(rows[:, 1].astype(np.int64), starts)
    return keys[starts], parts, np.diff(starts, append=len(keys))


class Largest:
    """The keys with the largest sums. The division of the keys into pieces makes no difference."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._found: list[tuple[int, int]] = []

    def add(self, keys: NDArray[np.uint64], parts: NDArray[np.int64]) -> None:
        """Add a piece: some keys, in order, and their parts."""
        # Of equal sums the smaller key counts; keys come in order.
        first = np.argsort(-parts, kind="stable")[: self._count]
        keys, parts = keys[first], parts[first]
        found = [(-int(part), int(key)) for key, part in zip(keys, parts, strict=True)]
        self._found = sorted([*self._found, *found])[: self._count]

    @property
    def keys(self) -> dict[int, int]:
        """The keys with their sums, largest first."""
        return {key: -part for part, key in self._found}


def members(keys: NDArray[np.uint64], wanted: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Whether each key is among the wanted ones. Those must be in order."""
    if not len(wanted):
        return np.zeros(len(keys), dtype=bool)
    places = np.minimum(np.searchsorted(wanted, keys), len(wanted) - 1)
    return np.asarray(wanted[places] == keys)
