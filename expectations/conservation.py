"""Messages in = messages out: none lost, none twice, none touched."""

from __future__ import annotations

from expectations.measured import (
    MESSAGES,
    TRANSFORMED,
    Judgement,
    MeasuredExpectation,
    count,
    judge_flag,
)
from expectations.measures import MessagesMeasures, TransformedMeasures
from nats_transform import Fate


class ExpectMessagesToBeConserved(MeasuredExpectation):
    """As many rows come out as messages went in, each under one fate.

    Args:
        messages: how many went in.
    """

    messages: int

    metric_dependencies = (TRANSFORMED,)
    success_keys = ("messages",)
    shown = ("messages",)
    statement = "All $messages messages that went in come out, each under one fate."
    reason = "A message that is dropped on the way, or written twice, is missed by nobody else."

    def judge(self, measures: TransformedMeasures) -> Judgement:
        fates = measures.fates
        known = {fate.value: fates.get(fate.value, 0) for fate in Fate}
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


class _ExpectDigest(MeasuredExpectation):
    """The columns of the archive have the digest they had, over all rows.

    Args:
        messages: how many there were.
        digest: of them, as 16 hexadecimal digits.
    """

    messages: int
    digest: str

    success_keys = ("messages", "digest")
    shown = ("messages", "digest")

    def judge(self, measures: MessagesMeasures | TransformedMeasures) -> Judgement:
        found = measures.archive
        if found.digest is None and found.rows:
            return Judgement(False, "the rows were not hashed")
        success = (found.rows, found.digest) == (self.messages, self.digest)
        days = [
            {"stream": stream, "day": day, "messages": bag.rows, "digest": bag.digest}
            for (stream, day), bag in measures.days.items()
        ]
        return Judgement(
            success,
            f"{count(found.rows, 'message')} with digest {found.digest}",
            () if success else days,
            details={"messages": found.rows, "digest": found.digest},
        )


class ExpectArchiveToBeUntouched(_ExpectDigest):
    """Sequence, time, subject, headers and payload went through unchanged; args as above."""

    metric_dependencies = (TRANSFORMED,)
    statement = (
        "Sequence, time, subject, headers and payload of the $messages messages are those of the "
        "archive, by digest $digest."
    )
    reason = "A transform writes a new subject beside the message and touches nothing of it."


class ExpectArchiveToBeAsIngested(_ExpectDigest):
    """The messages are those that were ingested; args as above."""

    metric_dependencies = (MESSAGES,)
    statement = "The $messages messages are those that were ingested, by digest $digest."
    reason = "Files that are lost, repeated or changed after the ingest show here."


class ExpectNoSequenceTwice(MeasuredExpectation):
    """No sequence of a stream is there twice."""

    metric_dependencies = (MESSAGES,)
    statement = "No sequence of a stream is there twice."
    reason = "An ingest that ran twice over the same messages would count them twice everywhere."

    def judge(self, measures: MessagesMeasures) -> Judgement:
        repeated = {day: found.repeated for day, found in measures.sequences.items()}
        rows = sum(repeated.values())
        examples = [
            {"stream": stream, "day": day, "rows too many": extra}
            for (stream, day), extra in repeated.items()
            if extra
        ]
        seen = f"{measures.archive.rows - rows:,} different sequences"
        return Judgement(
            not rows,
            seen if not rows else f"{seen}, and {count(rows, 'row')} that repeat one of them",
            examples,
            details={"repeated": rows},
        )


class ExpectRowsToBeDated(MeasuredExpectation):
    """Every row has its sequence, and its day and time agree with its exact time."""

    metric_dependencies = (MESSAGES,)
    statement = "Every message has a stream, a sequence and times that agree with one another."
    reason = "A message in the wrong day is missed by every job that reads that day."

    def judge(self, measures: MessagesMeasures) -> Judgement:
        missing, misdated = measures.flags["missing"], measures.flags["misdated"]
        if missing.rows:
            return judge_flag(missing, "without stream, sequence or time", "")
        return judge_flag(misdated, "with times that disagree", "all agree")


class ExpectTransformedRowsToBeDated(MeasuredExpectation):
    """The day and time of every row agree with its exact time."""

    metric_dependencies = (TRANSFORMED,)
    statement = "Day and time of every message agree with its exact time."
    reason = ExpectRowsToBeDated.reason

    def judge(self, measures: TransformedMeasures) -> Judgement:
        return judge_flag(measures.flags["misdated"], "with times that disagree", "all agree")


class ExpectFatesToBeCoherent(MeasuredExpectation):
    """The columns that tell what became of a message do not contradict one another."""

    metric_dependencies = (TRANSFORMED,)
    statement = "Fate, mapped subject, mapping, draw and reason of every message fit together."
    reason = (
        "What passes through unchanged keeps its subject, what is lost or invalid has none, and "
        "what is invalid says why."
    )

    def judge(self, measures: TransformedMeasures) -> Judgement:
        return judge_flag(
            measures.flags["incoherent"], "whose columns contradict one another", "all do"
        )


class ExpectOneMappingVersion(MeasuredExpectation):
    """Every row names the mapping version it was written with.

    Args:
        mapping_version: that all rows should name.
    """

    mapping_version: str

    metric_dependencies = (TRANSFORMED,)
    success_keys = ("mapping_version",)
    shown = ("mapping_version",)
    statement = "Every row names the mapping version $mapping_version."
    reason = "Days of two versions in one result cannot be explained by either."

    def judge(self, measures: TransformedMeasures) -> Judgement:
        return judge_flag(measures.flags["misversioned"], "of another version", "all do")
