"""A digest of rows that depends neither on their order nor on their division into files.

Each row is hashed to 64 bits, and the hashes are added modulo 2**64. So equal bags of rows have
equal digests, a repeated row counts twice (an xor would cancel it), and the digests of two days add
up to the digest of both. The digest protects against accidents, not against an attacker.

The hash of a row is XXH64, chained from 42 value by value as in Spark's `xxhash64`. That function
skips nulls, so two different rows could have the same hash. Therefore a bit mask of the null
columns goes first, and the length of each list goes before its elements (-1 if there is no list).

`nats_transform.kernel.digest` computes it for Arrow columns, `nats_transform.spark.digest` for
DataFrames.
"""

from __future__ import annotations

from typing import NamedTuple

_MASK = (1 << 64) - 1


class Digest(NamedTuple):
    """The digest of a bag of rows: their number, and the sum of their hashes modulo 2**64."""

    rows: int = 0
    total: int = 0

    def __add__(self, other: Digest) -> Digest:  # type: ignore[override]
        return Digest(self.rows + other.rows, (self.total + other.total) & _MASK)

    def __sub__(self, other: Digest) -> Digest:
        return Digest(self.rows - other.rows, (self.total - other.total) & _MASK)

    def __str__(self) -> str:
        return f"{self.total:016x}"

    @classmethod
    def parse(cls, rows: int, text: str) -> Digest:
        """The digest of a number of rows, from the text that `str()` makes of a digest."""
        return cls(rows, int(text, 16))
