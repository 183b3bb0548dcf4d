"""Rules that every row must obey, and digests that rows must have.

They need no more than the aggregates of a table: each is 0 in its column of the frame of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from expectations.expectation import Expectation, Judgement, Row
from expectations.measures import Flag, Measures, flags
from nats_transform.digest import Digest
from nats_transform.words import plural

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
_DAY_NS = 86_400 * 10**9


def no_row(
    name: str,
    topic: str,
    column: str,
    statement: str,
    reason: str,
    what: str,
    *,
    noun: str = "message",
    explain: Callable[[Sequence[Row]], Sequence[Row]] = tuple,
    blocks: bool = True,
) -> Expectation:
    """No row breaks a rule.

    Args:
        name, topic, statement, reason, blocks: those of the expectation.
        column: the name of the rule, and of its column in the frame of aggregates.
        what, noun: what is said of rows that break it, and how rows are called.
        explain: what is shown of them.
    """

    def judge(measures: Measures) -> Judgement:
        days = measures.broken(column)
        rows = sum(days.values(), Flag())
        observed = f"{plural(rows.rows, noun) if days else f'no {noun}'} {what}"
        broken = {day: flag.rows for day, flag in days.items()}
        return Judgement(not days, observed, explain(rows.examples), broken=broken)

    return Expectation(name, topic, statement, reason, judge, column, blocks=blocks)


def digest_is(
    which: str, digest: str, name: str, topic: str, column: str, statement: str, reason: str
) -> Expectation:
    """A digest of the measures is known: `archive`, or `digest` for all columns."""

    def judge(measures: Measures) -> Judgement:
        found = getattr(measures, which)
        observed = f"{plural(found.rows, 'message')} with digest {found}"
        return Judgement(str(found) == digest, observed)

    return Expectation(name, topic, statement, reason, judge, column)


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


def is_misdated(rows: pa.RecordBatch) -> np.ndarray:
    """Whether a message breaks `DATED`; of its three times, `ts_ns` is the exact one."""
    kinds = {"ts_ns": pa.int64(), "ts": pa.int64(), "day": pa.int32()}
    exact, micros, days = (
        np.asarray(rows.column(name).view(kind).fill_null(0)) for name, kind in kinds.items()
    )
    found: np.ndarray = (exact // 1000 != micros) | (exact // _DAY_NS != days)
    for name in ("stream", "seq", *kinds):
        if rows.column(name).null_count:
            found |= flags(rows.column(name).is_null())
    return found


def is_too_long(subjects: pa.Array) -> np.ndarray:
    """Whether a subject has more than `MAX_SUBJECT` bytes."""
    return flags(pc.greater(pc.binary_length(subjects), MAX_SUBJECT))
