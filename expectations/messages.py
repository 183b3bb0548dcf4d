"""What must hold of `messages`: which sequences there are, and what is wrong with rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from expectations.expectation import Expectation, Judgement, Suite
from expectations.measures import Flag, Measures, StreamDay, by_day, flags
from expectations.rules import DATED, LEGAL, as_ingested, is_misdated, is_too_long, no_row
from nats_transform.coverage import Coverage, Range
from nats_transform.digest import Digest
from nats_transform.kernel.messages import MESSAGES
from nats_transform.words import plural

_SHOWN = ("stream", "day", "seq", "ts", "ts_ns", "subject")
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

    def broken(self, rule: str) -> dict[StreamDay, Flag]:
        """As of all rows; of `repeated` those that have a sequence which another row has."""
        if rule != "repeated":
            return super().broken(rule)
        return {
            day: Flag(rows, ({"stream": day[0], "day": day[1], "messages": rows},))
            for day, sequences in self.sequences.items()
            if (rows := sequences.repeated)
        }


def measure_messages(batches: Iterable[pa.RecordBatch]) -> MessagesMeasures:
    """The measures of rows of `messages`, with the columns in the order of the table."""
    found = MessagesMeasures()
    sequences: dict[StreamDay, list[Sequences]] = defaultdict(list)
    for day, rows in by_day(batches):
        subjects = rows.column("subject")
        illegal = pc.match_substring_regex(subjects.view(pa.binary()), _ILLEGAL).fill_null(True)
        found.count(
            day, rows, MESSAGES, _SHOWN,
            misdated=is_misdated(rows), illegal=flags(illegal) | is_too_long(subjects),
        )  # fmt: skip
        if len(numbered := rows.column("seq").drop_null()):
            values = numbered.to_numpy()
            sequences[day].append(Sequences.of([Sequences(values, values, len(values))]))
    found.sequences = {day: Sequences.of(parts) for day, parts in sequences.items()}
    return found


def messages_suite(ingested: Digest | None, explained: Sequence[Range] = ()) -> Suite:
    """The suite of `messages`: what an ingest must have left for any day.

    Args:
        ingested: the digest of these messages, as the ingest counted them; None if nobody knows.
        explained: sequences that may be missing: the stream had lost them itself (deleted, purged,
            expired) or the ingest left them out on purpose.
    """
    expectations = (
        *([] if ingested is None else [as_ingested(ingested)]),
        DATED,
        _NO_SEQUENCE_TWICE,
        _no_unexplained_gap(Coverage.of(explained)),
        _LEGAL_SUBJECTS,
    )
    return Suite("messages", measure_messages, expectations)


_NO_SEQUENCE_TWICE = no_row(
    "ExpectNoSequenceTwice", "conservation", "repeated", "No sequence of a stream occurs twice.",
    "If an ingest stored messages twice, every job would count them twice.",
    "with the sequence of another message",
)  # fmt: skip
_LEGAL_SUBJECTS = no_row(
    "ExpectArchivedSubjectsToBeLegal", "subjects", "illegal", f"Every archived {LEGAL}",
    "A message with any other subject can't be mapped, so the transform gives it the fate invalid.",
    "under an illegal subject", blocks=False,
)  # fmt: skip


def _no_unexplained_gap(explained: Coverage) -> Expectation:
    """Between a day's first and last sequence, and between days in a row, none is missing."""

    def judge(measures: MessagesMeasures) -> Judgement:
        gaps = dict(_gaps(measures))
        missing = sum(gap.count for gap in gaps.values())
        unexplained = {day: left for day, gap in gaps.items() if (left := gap - explained)}
        broken = {day: left.count for day, left in unexplained.items()}
        examples = [
            {"stream": stream, "day": day, "from": first, "to": last, "missing": last - first + 1}
            for (stream, day), left in unexplained.items()
            for first, last in left.ranges
        ]
        observed = f"{plural(missing, 'sequence')} missing, {sum(broken.values()):,} of them "
        observed = f"{observed}unexplained" if missing else "no gap"
        return Judgement(not broken, observed, examples, broken=broken)

    return Expectation(
        "ExpectNoUnexplainedGap", "completeness",
        "The only gaps in each day's sequences are those that the ingest explains.",
        "A gap means that a message was never archived or a file is missing.",
        judge, "missing",
    )  # fmt: skip


def _gaps(measures: MessagesMeasures) -> Iterator[tuple[StreamDay, Coverage]]:
    """The missing sequences of each day, and between its last one and the first of the next day."""
    for (stream, day), found in measures.sequences.items():
        following = day and measures.sequences.get((stream, day + timedelta(days=1)))
        ranges = pairwise(found.ranges + (following.ranges[:1] if following else ()))
        yield (stream, day), Coverage.of((a[1] + 1, b[0] - 1) for a, b in ranges)
