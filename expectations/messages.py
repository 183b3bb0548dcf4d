"""What must hold of `messages`: which sequences there are, and what is wrong with rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from expectations.expectation import Expectation, Suite, digest_is, no_row
from expectations.measures import EXAMPLES, Flag, Measures, StreamDay, by_day, flags
from nats_transform.digest import Digest
from nats_transform.kernel.coverage import Coverage, Range, Sequences
from nats_transform.kernel.messages import MESSAGES

MAX_SUBJECT = 4096 - 24
"""Bytes of the longest subject that can be published under the server's default limits.

The arguments of a PUB line, the subject and two sizes, must fit in `max_control_line`, which is
4096 (`overMaxControlLineLimit` in nats-server `server/parser.go`). The 24 are two sizes of ten
digits and the blanks between; a reply subject would take its length away too.
"""

LEGAL = (
    "subject is a legal literal subject (no empty token, no wildcard) of at most "
    f"{MAX_SUBJECT:,} bytes."
)
_SHOWN = ("stream", "day", "seq", "ts", "ts_ns", "subject")
_NEEDED = ("stream", "seq", "ts", "ts_ns", "day")
_ILLEGAL = rb"(\A|\.)[*>]?(\.|\z)"
_DAY_NS = 86_400 * 10**9


@dataclass
class MessagesMeasures(Measures):
    """What was found in rows of `messages`.

    Attributes:
        sequences: which there are, of each day.
    """

    sequences: dict[StreamDay, Sequences] = field(default_factory=dict)


def measure_messages(batches: Iterable[pa.RecordBatch]) -> MessagesMeasures:
    """The measures of rows of `messages`, with the columns in the order of the table."""
    measures = MessagesMeasures()
    sequences: dict[StreamDay, list[Sequences]] = defaultdict(list)
    for day, rows in by_day(batches):
        subjects = rows.column("subject")
        illegal = is_too_long(subjects)
        if illegal.any():  # with another that is illegal, so that the rest need not be read
            subjects = pc.if_else(pa.array(illegal), ">", subjects)
        broken = pc.match_substring_regex(subjects.view(pa.binary()), _ILLEGAL)
        measures.count(
            day, rows, MESSAGES, _SHOWN,
            misdated=is_misdated(rows, *_NEEDED), illegal=flags(broken.fill_null(True)),
        )  # fmt: skip
        if len(numbered := rows.column("seq").drop_null()):
            sequences[day].append(Sequences.of(numbered.to_numpy()))
    measures.sequences = {day: Sequences.together(parts) for day, parts in sequences.items()}
    return measures


def is_misdated(rows: pa.RecordBatch, *needed: str) -> np.ndarray:
    """Whether a message breaks `DATED`; its times, of which `ts_ns` is exact, may be missing."""
    kinds = {"ts_ns": pa.int64(), "ts": pa.int64(), "day": pa.int32()}
    misdated = np.zeros(len(rows), bool)
    if rows.column("ts_ns").null_count < len(rows):
        exact, micros, days = (
            np.asarray(rows.column(name).view(kind).fill_null(0)) for name, kind in kinds.items()
        )
        misdated = (exact // 1000 != micros) | (exact // _DAY_NS != days)
        for name in kinds:
            if rows.column(name).null_count:
                misdated &= flags(rows.column(name).is_valid())
    for name in needed:
        if rows.column(name).null_count:
            misdated |= flags(rows.column(name).is_null())
    return misdated


def is_too_long(subjects: pa.Array) -> np.ndarray:
    """Whether a subject has more than `MAX_SUBJECT` bytes."""
    return flags(pc.greater(pc.binary_length(subjects), MAX_SUBJECT))


def messages_suite(ingested: Digest | None, explained: Sequence[Range] = ()) -> Suite:
    """The suite of `messages`: what an ingest must have left for any day.

    Args:
        ingested: the digest of these messages, as the ingest counted them; None if nobody knows.
        explained: sequences that may be missing: the stream had lost them itself (deleted, purged,
            expired) or the ingest left them out on purpose.
    """
    gaps = no_row(
        "ExpectNoUnexplainedGap", "completeness", "missing",
        "The only gaps in each day's sequences are those that another day fills or the ingest "
        "explains.",
        "A gap means that a message was never archived or a file is missing.",
        "missing without an explanation", noun="sequence",
        find=partial(_missing, Coverage.of(explained)),
    )  # fmt: skip
    known = [] if ingested is None else [as_ingested(ingested)]
    expectations = (*known, DATED, _NO_SEQUENCE_TWICE, gaps, _LEGAL_SUBJECTS)
    return Suite("messages", measure_messages, expectations)


def as_ingested(archive: Digest) -> Expectation:
    """The rows are the messages that were ingested, in all columns that these have."""
    return digest_is(
        "archive", str(archive), "ExpectArchiveToBeAsIngested", "conservation", "touched",
        f"The digest {archive} shows that sequence, time, subject, headers and payload of these "
        f"{archive.rows:,} messages are as they were ingested.",
        "It shows whether messages or files were lost, repeated or changed since then.",
    )  # fmt: skip


DATED = no_row(
    "ExpectRowsToBeDated", "conservation", "misdated",
    "Every message has a stream and a sequence, and its times agree with each other.",
    "A job that reads one day misses a message in the wrong day.",
    "without stream, sequence or time, or with times that disagree",
)  # fmt: skip


def _repeated(measures: MessagesMeasures) -> dict[StreamDay, Flag]:
    """The messages of each day that have the sequence of another one."""
    return {
        day: Flag(rows, ({"stream": day[0], "day": day[1], "messages": rows},))
        for day, sequences in measures.sequences.items()
        if (rows := sequences.repeated)
    }


def _missing(explained: Coverage, measures: MessagesMeasures) -> dict[StreamDay, Flag]:
    """What is missing of each day, and between its last sequence and the next day's first.

    Another day may have it: clocks, and dumps, need not keep the order of sequences.
    """
    missing, present = {}, defaultdict[str | None, list[Range]](list)
    for (stream, _), sequences in measures.sequences.items():
        present[stream] += sequences.ranges
    known = {stream: explained | Coverage.of(ranges) for stream, ranges in present.items()}
    for (stream, day), sequences in measures.sequences.items():
        following = day and measures.sequences.get((stream, day + timedelta(days=1)))
        ranges = pairwise(sequences.ranges + (following.ranges[:1] if following else ()))
        if gaps := Coverage.of((a[1] + 1, b[0] - 1) for a, b in ranges) - known[stream]:
            of_day = {"stream": stream, "day": day}
            some = tuple(of_day | {"from": a, "to": b} for a, b in gaps.ranges[:EXAMPLES])
            missing[stream, day] = Flag(gaps.count, some)
    return missing


_NO_SEQUENCE_TWICE = no_row(
    "ExpectNoSequenceTwice", "conservation", "repeated", "No sequence of a stream occurs twice.",
    "If an ingest stored messages twice, every job would count them twice.",
    "with the sequence of another message", find=_repeated,
)  # fmt: skip
_LEGAL_SUBJECTS = no_row(
    "ExpectArchivedSubjectsToBeLegal", "subjects", "illegal", f"Every archived {LEGAL}",
    "A message with any other subject can't be mapped, so the transform gives it the fate invalid.",
    "under an illegal subject", blocks=False,
)  # fmt: skip
