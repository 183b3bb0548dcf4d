"""Whether messages are lost, doubled or changed on the way."""

from __future__ import annotations

from dataclasses import dataclass

from expectations.expectation import Expectation, Judgement, NoRowMayBreak, count
from expectations.measures.messages import MessagesMeasures
from expectations.measures.transformed import TransformedMeasures


@dataclass(frozen=True)
class ExpectMessagesToBeConserved(Expectation):
    """As many rows come out as messages went in, each with one fate.

    Args:
        messages: how many went in.
    """

    messages: int

    shown = ("messages",)
    statement = "All $messages messages that went in come out, each with one fate."
    reason = "Nothing else notices a message that is dropped on the way or written twice."

    def judge(self, measures: TransformedMeasures) -> Judgement:
        known = measures.fates_of()
        total = measures.archive.rows
        fateless = total - sum(known.values())
        parts = " + ".join(f"{rows:,} {fate}" for fate, rows in known.items() if rows)
        observed = f"{total:,} out = {parts or 0}"
        if fateless:
            observed += f" + {fateless:,} without a known fate"
        if total != self.messages:
            observed += f": {abs(total - self.messages):,} too {_few(total, self.messages)}"
        return Judgement(
            total == self.messages and not fateless,
            observed,
            details={"in": self.messages, "out": total, **known, "fateless": fateless},
        )


def _few(found: int, expected: int) -> str:
    return "few" if found < expected else "many"


@dataclass(frozen=True)
class ExpectArchiveToBeAsIngested(Expectation):
    """The messages are those that were ingested.

    Args:
        messages: how many messages there were.
        digest: the digest of these messages, as 16 hexadecimal digits.
    """

    messages: int
    digest: str

    shown = ("messages", "digest")
    statement = "The digest $digest shows that these $messages messages are the ingested ones."
    reason = "It shows whether files were lost, repeated or changed after the ingest."

    def judge(self, measures: MessagesMeasures | TransformedMeasures) -> Judgement:
        found = measures.archive
        success = (found.rows, str(found)) == (self.messages, self.digest)
        days = [
            {"stream": stream, "day": day, "messages": bag.rows, "digest": str(bag)}
            for (stream, day), bag in measures.days.items()
        ]
        return Judgement(
            success,
            f"{count(found.rows, 'message')} with digest {found}",
            () if success else days,
            details={"messages": found.rows, "digest": str(found)},
        )


@dataclass(frozen=True)
class ExpectArchiveToBeUntouched(ExpectArchiveToBeAsIngested):
    """Sequence, time, subject, headers and payload went through unchanged."""

    statement = (
        "The digest $digest shows that the sequence, time, subject, headers and payload of all "
        "$messages messages are as archived."
    )
    reason = "A transform only adds a new subject to a message, and changes nothing else."


@dataclass(frozen=True)
class ExpectNoSequenceTwice(NoRowMayBreak):
    """No sequence of a stream occurs twice."""

    rule = "repeated"
    statement = "No sequence of a stream occurs twice."
    reason = "If an ingest stored messages twice, every job would count them twice."
    broken = "with the sequence of another message"
    fine = "all sequences are different"


@dataclass(frozen=True)
class ExpectRowsToBeDated(NoRowMayBreak):
    """Every row has its sequence, and its day and time agree with its exact time."""

    rule = "misdated"
    statement = "Every message has a stream and a sequence, and its times agree with each other."
    reason = "A job that reads one day misses a message in the wrong day."
    broken = "without stream, sequence or time, or with times that disagree"
    fine = "the times of all messages agree"


@dataclass(frozen=True)
class ExpectTransformedRowsToBeDated(NoRowMayBreak):
    """The day and time of every row agree with its exact time."""

    rule = "misdated"
    statement = "The day and the time of every message agree with its exact time."
    reason = ExpectRowsToBeDated.reason
    broken = "with times that disagree"
    fine = ExpectRowsToBeDated.fine


@dataclass(frozen=True)
class ExpectFatesToBeCoherent(NoRowMayBreak):
    """The columns that say what became of a message do not contradict one another."""

    rule = "incoherent"
    statement = "The fate, mapped subject, mapping, draw and reason of every message fit together."
    reason = (
        "An unmatched message keeps its subject, a lost or invalid one has none, and an invalid "
        "one says why."
    )
    broken = "whose columns contradict one another"
    fine = "the columns of all messages fit together"


@dataclass(frozen=True)
class ExpectOneMappingVersion(NoRowMayBreak):
    """Every row names the mapping version it was written with.

    Args:
        mapping_version: the version that all rows should name.
    """

    mapping_version: str

    rule = "misversioned"
    shown = ("mapping_version",)
    statement = "Every row names the mapping version $mapping_version."
    reason = "Rows of two mapping versions cannot be explained by either of them."
    broken = "of another version"
    fine = "all messages name this version"
