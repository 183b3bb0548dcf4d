"""The sequences of a stream that have been archived: sorted, disjoint, inclusive ranges.

They are kept as ranges because rows would not be enough: a sequence that the stream had already
lost (deleted, purged, expired) has no row, but counts as archived, as there is nothing left to
fetch.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Coverage:
    """A set of sequences, as ascending ranges (first, last) that neither touch nor overlap."""

    ranges: tuple[Range, ...] = ()

    @classmethod
    def of(cls, ranges: Iterable[Range]) -> Coverage:
        """The union of any ranges."""
        merged: list[Range] = []
        for first, last in sorted(r for r in ranges if r[0] <= r[1]):
            if merged and first <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
            else:
                merged.append((first, last))
        return cls(tuple(merged))

    @classmethod
    def parse(cls, text: str) -> Coverage:
        """The coverage that was written as `str()` of it, such as `1-500 600-600`."""
        return cls.of(
            (int(first), int(last)) for first, last in (r.split("-") for r in text.split())
        )

    def __str__(self) -> str:
        return " ".join(f"{first}-{last}" for first, last in self.ranges)

    def __or__(self, other: Coverage) -> Coverage:
        return Coverage.of(self.ranges + other.ranges)

    def __and__(self, other: Coverage) -> Coverage:
        return self - (self - other)

    def __sub__(self, other: Coverage) -> Coverage:
        left: list[Range] = []
        taken = other.ranges
        n = 0
        for first, last in self.ranges:
            while n < len(taken) and taken[n][1] < first:
                n += 1
            while n < len(taken) and taken[n][0] <= last:
                left.append((first, taken[n][0] - 1))
                first = taken[n][1] + 1
                if first > last:
                    break  # the next range may need the same one
                n += 1
            left.append((first, last))
        return Coverage.of(left)

    def __contains__(self, sequence: int) -> bool:
        place = bisect_right(self.ranges, sequence, key=itemgetter(0))
        return place > 0 and sequence <= self.ranges[place - 1][1]

    def has(self, sequences: pa.Array) -> npt.NDArray[np.bool_]:
        """Whether each sequence is among these; one that is null is not."""
        if not self:
            return np.zeros(len(sequences), bool)
        firsts, lasts = np.array(self.ranges).T
        return Sequences(firsts, lasts, 0).has(sequences)

    @property
    def count(self) -> int:
        """How many sequences there are."""
        return sum(last - first + 1 for first, last in self.ranges)

    def __bool__(self) -> bool:
        return bool(self.ranges)


NONE = Coverage()


@dataclass(frozen=True, eq=False)
class Sequences:
    """Sequences of a stream on a day.

    Attributes:
        firsts, lasts: the ends of ascending inclusive ranges that do not touch.
        rows: how many rows have one of these sequences.
    """

    firsts: np.ndarray
    lasts: np.ndarray
    rows: int

    @classmethod
    def of(cls, values: np.ndarray) -> Sequences:
        """The sequences of one row or more, in any order."""
        return cls.together([cls(values, values, len(values))])

    @classmethod
    def together(cls, parts: Sequence[Sequences]) -> Sequences:
        """All sequences of several parts; here, ranges of a part may touch and overlap."""
        firsts = np.concatenate([part.firsts for part in parts])
        order = np.argsort(firsts, kind="stable")
        firsts = firsts[order]
        reached = np.maximum.accumulate(np.concatenate([part.lasts for part in parts])[order])
        apart = np.flatnonzero(firsts[1:] - 1 > reached[:-1])
        return cls(
            firsts[np.concatenate([[0], apart + 1])],
            np.concatenate([reached[apart], reached[-1:]]),
            sum(part.rows for part in parts),
        )

    def has(self, sequences: pa.Array) -> npt.NDArray[np.bool_]:
        """Whether each sequence is among these; one that is null is not."""
        numbers = sequences.fill_null(-1).to_numpy()
        place = np.searchsorted(self.firsts, numbers, "right") - 1
        is_among: npt.NDArray[np.bool_] = (place >= 0) & (numbers <= self.lasts[place])
        return is_among

    def __add__(self, other: Sequences) -> Sequences:
        return self.together([self, other])

    @property
    def ranges(self) -> tuple[Range, ...]:
        """Those present."""
        return tuple(zip(self.firsts.tolist(), self.lasts.tolist(), strict=True))

    @property
    def repeated(self) -> int:
        """Rows beyond the first of each sequence."""
        return self.rows - int((self.lasts - self.firsts + 1).sum())
