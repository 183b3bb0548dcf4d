"""One look at rows of `messages`: how many, which sequences, and what is wrong with them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from expectations.measures.rows import (
    Flag,
    Measures,
    StreamDay,
    by_day,
    flags,
    is_misdated,
    is_missing,
    is_too_long,
)
from nats_transform.coverage import Range
from nats_transform.kernel.messages import MESSAGES

_SHOWN = ("stream", "day", "seq", "ts", "ts_ns", "subject")
_DATED = ("stream", "seq", "ts", "ts_ns", "day")
_ILLEGAL = rb"(\A|\.)[*>]?(\.|\z)"


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
    def of(cls, parts: Sequence[Sequences]) -> Sequences:
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
        return self.of([self, other])

    @property
    def ranges(self) -> tuple[Range, ...]:
        """Those present."""
        return tuple(zip(self.firsts.tolist(), self.lasts.tolist(), strict=True))

    @property
    def repeated(self) -> int:
        """Rows beyond the first of each sequence."""
        return self.rows - int((self.lasts - self.firsts + 1).sum())


@dataclass
class MessagesMeasures(Measures):
    """What was found in rows of `messages`.

    Attributes:
        sequences: which there are, of each day.
    """

    sequences: dict[StreamDay, Sequences] = field(default_factory=dict)

    digest = Measures.archive

    def broken(self, rule: str) -> dict[StreamDay, Flag]:
        """As of all rows; of `repeated` those that have a sequence which another row has."""
        if rule != "repeated":
            return super().broken(rule)
        counts = {day: sequences.repeated for day, sequences in self.sequences.items()}
        return {
            day: Flag(rows, ({"stream": day[0], "day": day[1], "messages": rows},))
            for day, rows in counts.items()
            if rows
        }


def measure_messages(batches: Iterable[pa.RecordBatch]) -> MessagesMeasures:
    """The measures of rows of `messages`, with the columns in the order of the table."""
    found = MessagesMeasures()
    sequences: dict[StreamDay, list[Sequences]] = defaultdict(list)
    for day, rows in by_day(batches):
        subjects = rows.column("subject")
        illegal = flags(pc.match_substring_regex(subjects.view(pa.binary()), _ILLEGAL))
        found.count(
            day, rows, MESSAGES, _SHOWN,
            misdated=is_misdated(rows) | is_missing(rows, _DATED),
            illegal=illegal | is_too_long(subjects) | is_missing(rows, ["subject"]),
        )  # fmt: skip
        if len(numbered := rows.column("seq").drop_null()):
            values = numbered.to_numpy()
            sequences[day].append(Sequences.of([Sequences(values, values, len(values))]))
    found.sequences = {day: Sequences.of(parts) for day, parts in sequences.items()}
    return found
