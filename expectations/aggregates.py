"""The expectations that need no mapping: each is 0 in its column of the frame of aggregates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any

from expectations.expectation import Expectation, Judgement, Severity
from expectations.measures.census import CensusMeasures
from expectations.measures.messages import MessagesMeasures, Range
from expectations.measures.rows import MAX_SUBJECT, Measures, StreamDay
from expectations.measures.transformed import TransformedMeasures
from nats_transform.digest import Digest
from nats_transform.words import plural


def _no_row(
    name: str,
    topic: str,
    column: str,
    statement: str,
    reason: str,
    *,
    fine: str,
    broken: str,
    severity: Severity = Severity.BLOCKS,
) -> Expectation:
    """No row breaks a rule; `fine` and `broken` say what is observed, the column names the rule."""

    def judge(measures: Measures) -> Judgement:
        days = measures.broken(column)
        observed = f"{plural(sum(days.values()), 'message')} {broken}" if days else fine
        examples: Sequence[Any] = measures.flag(column).examples
        if not examples:
            examples = [
                {"stream": stream, "day": day, "messages": rows}
                for (stream, day), rows in days.items()
            ]
        return Judgement(not days, observed, examples, broken=days)

    return Expectation(name, topic, statement, reason, judge, severity, column)


_LATE = "A job that reads one day misses a message in the wrong day."
_LEGAL = (
    "subject is a legal literal subject (no empty token, no wildcard) of at most "
    f"{MAX_SUBJECT:,} bytes."
)

DATED = _no_row(
    "ExpectRowsToBeDated", "conservation", "misdated",
    "Every message has a stream and a sequence, and its times agree with each other.", _LATE,
    fine="the times of all messages agree",
    broken="without stream, sequence or time, or with times that disagree",
)  # fmt: skip
TRANSFORMED_DATED = _no_row(
    "ExpectTransformedRowsToBeDated", "conservation", "misdated",
    "The day and the time of every message agree with its exact time.", _LATE,
    fine="the times of all messages agree",
    broken="with times that disagree",
)  # fmt: skip
NO_SEQUENCE_TWICE = _no_row(
    "ExpectNoSequenceTwice", "conservation", "repeated", "No sequence of a stream occurs twice.",
    "If an ingest stored messages twice, every job would count them twice.",
    fine="all sequences are different",
    broken="with the sequence of another message",
)  # fmt: skip
FATES_COHERENT = _no_row(
    "ExpectFatesToBeCoherent", "conservation", "incoherent",
    "The fate, mapped subject, mapping, draw and reason of every message fit together.",
    "An unmatched message keeps its subject, a lost or invalid one has none, and an invalid one "
    "says why.",
    fine="the columns of all messages fit together",
    broken="whose columns contradict one another",
)  # fmt: skip
ARCHIVED_LEGAL = _no_row(
    "ExpectArchivedSubjectsToBeLegal", "subjects", "illegal", f"Every archived {_LEGAL}",
    "A message with any other subject can't be mapped, so the transform gives it the fate invalid.",
    fine="all subjects are legal",
    broken="under an illegal subject",
    severity=Severity.WARNS,
)  # fmt: skip
MAPPED_LEGAL = _no_row(
    "ExpectMappedSubjectsToBeLegal", "subjects", "illegal", f"Every mapped {_LEGAL}",
    "nats-server drops a message with an empty token, and closes the connection on a protocol line "
    "above max_control_line (4,096 bytes by default).",
    fine="all subjects are legal",
    broken="mapped to an illegal subject",
)  # fmt: skip


def one_version(version: str) -> Expectation:
    """Every row names the mapping version it was written with."""
    return _no_row(
        "ExpectOneMappingVersion", "conservation", "misversioned",
        f"Every row names the mapping version {version}.",
        "Rows of two mapping versions cannot be explained by either of them.",
        fine="all messages name this version",
        broken="of another version",
    )  # fmt: skip


def conserved(messages: int) -> Expectation:
    """As many rows come out as messages went in."""

    def judge(measures: TransformedMeasures) -> Judgement:
        rows, fates = measures.archive.rows, measures.fates_of()
        parts = " + ".join(f"{number:,} {fate}" for fate, number in fates.items() if number)
        observed = f"{rows:,} out = {parts or 0}"
        if fateless := rows - sum(fates.values()):
            observed += f" + {fateless:,} without a known fate"
        if rows != messages:
            few = "few" if rows < messages else "many"
            observed += f": {abs(rows - messages):,} too {few}"
        return Judgement(rows == messages and not fateless, observed)

    return Expectation(
        "ExpectMessagesToBeConserved", "conservation",
        f"All {messages:,} messages that went in come out, each with one fate.",
        "Nothing else notices a message that is dropped on the way or written twice.",
        judge, column="unaccounted",
    )  # fmt: skip


def as_ingested(archive: Digest, *, transformed: bool = False) -> Expectation:
    """The rows, or what a transform leaves alone of them, are the messages that were ingested."""

    def judge(measures: Measures) -> Judgement:
        found = measures.archive
        days = [
            {"stream": stream, "day": day, "messages": bag.rows, "digest": str(bag)}
            for (stream, day), bag in measures.days.items()
        ]
        observed = f"{plural(found.rows, 'message')} with digest {found}"
        return Judgement(found == archive, observed, () if found == archive else days)

    if transformed:
        return Expectation(
            "ExpectArchiveToBeUntouched", "conservation",
            f"The digest {archive} shows that the sequence, time, subject, headers and payload of "
            f"all {archive.rows:,} messages are as archived.",
            "A transform only adds a new subject to a message, and changes nothing else.",
            judge, column="touched",
        )  # fmt: skip
    return Expectation(
        "ExpectArchiveToBeAsIngested", "conservation",
        f"The digest {archive} shows that these {archive.rows:,} messages are the ingested ones.",
        "It shows whether files were lost, repeated or changed after the ingest.",
        judge, column="touched",
    )  # fmt: skip


def same_digest(digest: str) -> Expectation:
    """The rows have the digest that an earlier run over the same input computed."""

    def judge(measures: TransformedMeasures) -> Judgement:
        found = str(measures.digest)
        observed = f"digest {found}"
        if found != digest:
            observed += f", but an earlier run over the same input computed {digest}"
        return Judgement(found == digest, observed)

    return Expectation(
        "ExpectTheSameDigest", "determinism",
        f"The rows have the digest {digest}, like an earlier run over the same input.",
        "The same messages, mappings and seed must give the same rows, however the work is "
        "divided.",
        judge, column="changed",
    )  # fmt: skip


def no_unexplained_gap(explained: Iterable[Range]) -> Expectation:
    """Between a day's first and last sequence, and between days in a row, none is missing.

    Args:
        explained: inclusive ranges of sequences that may be missing: the stream had lost them
            itself (deleted, purged, expired) or the ingest left them out on purpose.
    """
    known = sorted(explained)

    def judge(measures: MessagesMeasures) -> Judgement:
        gaps = list(_gaps(measures))
        missing = sum(last - first + 1 for _, (first, last) in gaps)
        unexplained = [(day, rest) for day, gap in gaps for rest in _without(gap, known)]
        broken: dict[StreamDay, int] = {}
        for day, (first, last) in unexplained:
            broken[day] = broken.get(day, 0) + last - first + 1
        examples = [
            {"stream": stream, "day": day, "from": first, "to": last, "missing": last - first + 1}
            for (stream, day), (first, last) in unexplained
        ]
        lost = sum(broken.values())
        observed = f"{plural(missing, 'sequence')} missing, {lost:,} of them unexplained"
        return Judgement(not lost, observed if missing else "no gap", examples, broken=broken)

    return Expectation(
        "ExpectNoUnexplainedGap", "completeness",
        "The only gaps in each day's sequences are those that the ingest explains.",
        "A gap means that a message was never archived or a file is missing.",
        judge, column="missing",
    )  # fmt: skip


def _gaps(measures: MessagesMeasures) -> Iterator[tuple[StreamDay, Range]]:
    """The missing sequences of each day, and between its last one and the first of the next day."""
    for (stream, day), found in measures.sequences.items():
        yield from (((stream, day), gap) for gap in found.gaps)
        following = day and measures.sequences.get((stream, day + timedelta(days=1)))
        if following:
            first, last = found.ranges[-1][1] + 1, following.ranges[0][0] - 1
            if first <= last:
                yield (stream, day), (first, last)


def _without(gap: Range, explained: Iterable[Range]) -> Iterator[Range]:
    """What is left of a gap without the explained ranges, which ascend."""
    first, last = gap
    for low, high in explained:
        if high < first or low > last:
            continue
        if low > first:
            yield first, low - 1
        first = high + 1
    if first <= last:
        yield first, last


_KNOWN = "A dry run reads the census instead of the messages, so it sees only what is counted."


def counted(messages: int, payload_bytes: int, digest: Digest) -> Expectation:
    """The counts of a census add up to the messages, and its rows are those that were made."""

    def judge(measures: CensusMeasures) -> Judgement:
        sums, rows = measures.counted, measures.digest
        return Judgement(
            (sums["messages"], sums["bytes"], rows) == (messages, payload_bytes, digest),
            f"{plural(sums['messages'], 'message')} with payloads of {sums['bytes']:,} bytes, "
            f"in {plural(rows.rows, 'row')} with digest {rows}",
        )

    return Expectation(
        "ExpectMessagesToBeCounted", "counts",
        f"The counts add up to {messages:,} messages with payloads of {payload_bytes:,} bytes.",
        _KNOWN, judge,
    )  # fmt: skip


def _judge_counts(measures: CensusMeasures) -> Judgement:
    wrong = measures.impossible
    observed = f"{plural(wrong.rows, 'row')} with impossible counts"
    return Judgement(
        not wrong.rows, observed if wrong.rows else "all counts are possible", wrong.examples
    )


COUNTS_POSSIBLE = Expectation(
    "ExpectCountsToBePossible", "counts",
    "Every row counts at least one message, and its first time isn't after its last.",
    _KNOWN, _judge_counts,
)  # fmt: skip
