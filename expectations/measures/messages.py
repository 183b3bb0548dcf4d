"""One look at rows of `messages`: how many, which sequences, and what is wrong with them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from expectations.measures.rows import (
    Flag,
    Measures,
    StreamDay,
    by_day,
    is_illegal,
    is_misdated,
    is_missing,
    is_too_long,
)
from nats_transform.digest import Digest
from nats_transform.kernel.digest import digest_batch

Range = tuple[int, int]

_SHOWN = ("stream", "day", "seq", "ts", "ts_ns", "subject")


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

    def __add__(self, other: Sequences) -> Sequences:
        return self.together([self, other])

    @property
    def ranges(self) -> tuple[Range, ...]:
        """Those present."""
        return tuple(zip(self.firsts.tolist(), self.lasts.tolist(), strict=True))

    @property
    def gaps(self) -> tuple[Range, ...]:
        """The missing sequences between the first and the last."""
        before, after = (self.lasts[:-1] + 1).tolist(), (self.firsts[1:] - 1).tolist()
        return tuple(zip(before, after, strict=True))

    @property
    def repeated(self) -> int:
        """Rows beyond the first of each sequence."""
        return self.rows - int((self.lasts - self.firsts + 1).sum())


@dataclass(frozen=True)
class MessagesMeasures(Measures):
    """What was found in rows of `messages`.

    Attributes:
        sequences: which there are, of each day.
    """

    sequences: Mapping[StreamDay, Sequences]

    digest = Measures.archive

    def broken(self, rule: str) -> dict[StreamDay, int]:
        """As of all rows; of `repeated` those that have a sequence which another row has."""
        if rule != "repeated":
            return super().broken(rule)
        return {day: found.repeated for day, found in self.sequences.items() if found.repeated}


def measure_messages(batches: Iterable[pa.RecordBatch]) -> MessagesMeasures:
    """The measures of rows of `messages`, with the columns in the order of the table."""
    days: dict[StreamDay, Digest] = defaultdict(Digest)
    sequences: dict[StreamDay, list[Sequences]] = defaultdict(list)
    flags: dict[tuple[StreamDay, str], Flag] = defaultdict(Flag)
    for day, rows in by_day(batches):
        days[day] += Digest(*digest_batch(rows))
        numbered = rows.column("seq").drop_null()
        if len(numbered):
            sequences[day].append(Sequences.of(numbered.to_numpy()))
        subjects = rows.column("subject")
        for rule, broken in {
            "misdated": is_missing(rows, ("stream", "seq", "ts", "ts_ns", "day"))
            | is_misdated(rows),
            "illegal": is_illegal(subjects) | is_too_long(subjects) | is_missing(rows, ["subject"]),
        }.items():
            if broken.any():
                flags[day, rule] += Flag.of(rows, broken, _SHOWN)
    ranges = {day: Sequences.together(parts) for day, parts in sequences.items()}
    return MessagesMeasures(dict(days), dict(flags), ranges)
