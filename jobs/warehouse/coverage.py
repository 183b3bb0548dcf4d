"""The sequences of a stream that have been archived: sorted, disjoint, inclusive ranges.

They are kept as ranges because rows would not be enough: a sequence that the stream had already
lost (deleted, purged, expired) has no row, but counts as archived, as there is nothing left to
fetch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

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
        for first, last in self.ranges:
            for taken_first, taken_last in other.ranges:
                if taken_last < first or taken_first > last:
                    continue
                if taken_first > first:
                    left.append((first, taken_first - 1))
                first = taken_last + 1
            if first <= last:
                left.append((first, last))
        return Coverage.of(left)

    def __contains__(self, sequence: int) -> bool:
        return any(first <= sequence <= last for first, last in self.ranges)

    def __bool__(self) -> bool:
        return bool(self.ranges)
