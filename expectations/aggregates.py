"""The expectations that need no mapping: each is 0 in its column of the frame of aggregates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from itertools import pairwise

from expectations.expectation import Expectation, Judgement, Row
from expectations.measures.census import CensusMeasures
from expectations.measures.messages import MessagesMeasures
from expectations.measures.rows import MAX_SUBJECT, Flag, Measures, StreamDay
from expectations.measures.transformed import TransformedMeasures
from nats_transform.coverage import Coverage, Range
from nats_transform.digest import Digest
from nats_transform.words import plural


def no_row(
    name: str,
    topic: str,
    column: str,
    statement: str,
    reason: str,
    what: str,
    *,
    blocks: bool = True,
    noun: str = "message",
    explain: Callable[[Sequence[Row]], Sequence[Row]] = tuple,
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


_LATE = "A job that reads one day misses a message in the wrong day."
_LEGAL = (
    "subject is a legal literal subject (no empty token, no wildcard) of at most "
    f"{MAX_SUBJECT:,} bytes."
)

DATED = no_row(
    "ExpectRowsToBeDated", "conservation", "misdated",
    "Every message has a stream and a sequence, and its times agree with each other.", _LATE,
    "without stream, sequence or time, or with times that disagree",
)  # fmt: skip
TRANSFORMED_DATED = no_row(
    "ExpectTransformedRowsToBeDated", "conservation", "misdated",
    "The day and the time of every message agree with its exact time.", _LATE,
    "with times that disagree",
)  # fmt: skip
NO_SEQUENCE_TWICE = no_row(
    "ExpectNoSequenceTwice", "conservation", "repeated", "No sequence of a stream occurs twice.",
    "If an ingest stored messages twice, every job would count them twice.",
    "with the sequence of another message",
)  # fmt: skip
FATES_COHERENT = no_row(
    "ExpectFatesToBeCoherent", "conservation", "incoherent",
    "The fate, mapped subject, mapping, draw and reason of every message fit together.",
    "An unmatched message keeps its subject, a lost or invalid one has none, and an invalid one "
    "says why.",
    "whose columns contradict one another",
)  # fmt: skip
ARCHIVED_LEGAL = no_row(
    "ExpectArchivedSubjectsToBeLegal", "subjects", "illegal", f"Every archived {_LEGAL}",
    "A message with any other subject can't be mapped, so the transform gives it the fate invalid.",
    "under an illegal subject", blocks=False,
)  # fmt: skip
MAPPED_LEGAL = no_row(
    "ExpectMappedSubjectsToBeLegal", "subjects", "illegal", f"Every mapped {_LEGAL}",
    "nats-server drops a message with an empty token, and closes the connection on a protocol line "
    "above max_control_line (4,096 bytes by default).",
    "mapped to an illegal subject",
)  # fmt: skip


def one_version(version: str) -> Expectation:
    """Every row names the mapping version it was written with."""
    return no_row(
        "ExpectOneMappingVersion", "conservation", "misversioned",
        f"Every row names the mapping version {version}.",
        "Rows of two mapping versions cannot be explained by either of them.",
        "of another version",
    )  # fmt: skip


def conserved(messages: int) -> Expectation:
    """As many rows come out as messages went in."""

    def judge(measures: TransformedMeasures) -> Judgement:
        rows = measures.archive.rows
        fateless = rows - sum(measures.fates_of().values())
        observed = f"{plural(rows, 'message')}, {fateless:,} without a known fate"
        return Judgement(rows == messages and not fateless, observed)

    return Expectation(
        "ExpectMessagesToBeConserved", "conservation",
        f"All {messages:,} messages that went in come out, each with one fate.",
        "Nothing else notices a message that is dropped on the way or written twice.",
        judge, "unaccounted",
    )  # fmt: skip


def as_ingested(archive: Digest) -> Expectation:
    """The rows are the messages that were ingested."""
    return _digest_is(
        "archive", str(archive), "ExpectArchiveToBeAsIngested", "conservation", "touched",
        f"The digest {archive} shows that these {archive.rows:,} messages are the ingested ones.",
        "It shows whether files were lost, repeated or changed after the ingest.",
    )  # fmt: skip


def untouched(archive: Digest) -> Expectation:
    """What a transform leaves alone of the rows is what was ingested."""
    return _digest_is(
        "archive", str(archive), "ExpectArchiveToBeUntouched", "conservation", "touched",
        f"The digest {archive} shows that the sequence, time, subject, headers and payload of all "
        f"{archive.rows:,} messages are as archived.",
        "A transform only adds a new subject to a message, and changes nothing else.",
    )  # fmt: skip


def same_digest(digest: str) -> Expectation:
    """The rows have the digest that an earlier run over the same input computed."""
    return _digest_is(
        "digest", digest, "ExpectTheSameDigest", "determinism", "changed",
        f"The rows have the digest {digest}, like an earlier run over the same input.",
        "The same messages, mappings and seed must give the same rows, however the work is "
        "divided.",
    )  # fmt: skip


def _digest_is(
    which: str, digest: str, name: str, topic: str, column: str, statement: str, reason: str
) -> Expectation:
    """A digest of the measures is known: `archive`, or `digest` for all columns."""

    def judge(measures: Measures) -> Judgement:
        found: Digest = getattr(measures, which)
        observed = f"{plural(found.rows, 'message')} with digest {found}"
        return Judgement(str(found) == digest, observed)

    return Expectation(name, topic, statement, reason, judge, column)


def no_unexplained_gap(explained: Iterable[Range]) -> Expectation:
    """Between a day's first and last sequence, and between days in a row, none is missing.

    Args:
        explained: inclusive ranges of sequences that may be missing: the stream had lost them
            itself (deleted, purged, expired) or the ingest left them out on purpose.
    """
    known = Coverage.of(explained)

    def judge(measures: MessagesMeasures) -> Judgement:
        gaps = dict(_gaps(measures))
        missing = sum(gap.count for gap in gaps.values())
        unexplained = {day: left for day, gap in gaps.items() if (left := gap - known)}
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


_KNOWN = "A dry run reads the census instead of the messages, so it sees only what is counted."

COUNTS_POSSIBLE = no_row(
    "ExpectCountsToBePossible", "counts", "impossible",
    "Every row counts at least one message, and its first time isn't after its last.", _KNOWN,
    "with impossible counts", noun="row",
)  # fmt: skip


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
