"""Whether the counts of a census are those of the messages."""

from __future__ import annotations

from dataclasses import dataclass

from expectations.expectation import Expectation, Judgement, count
from expectations.measures.census import CensusMeasures


@dataclass(frozen=True)
class ExpectMessagesToBeCounted(Expectation):
    """The counts add up to the messages that were read, and the rows are those that were made.

    Args:
        messages: how many messages there are.
        bytes: the size of their payloads.
        digest: the digest of the rows as they were made, as 16 hexadecimal digits.
    """

    messages: int
    bytes: int
    digest: str

    shown = ("messages", "bytes")
    statement = "The counts add up to $messages messages with payloads of $bytes bytes."
    reason = "A dry run reads the census instead of the messages, so it sees only what is counted."

    def judge(self, measures: CensusMeasures) -> Judgement:
        found = (measures.messages, measures.bytes, str(measures.digest))
        return Judgement(
            found == (self.messages, self.bytes, self.digest),
            f"{count(measures.messages, 'message')} with payloads of {measures.bytes:,} bytes, "
            f"in {count(measures.digest.rows, 'row')} with digest {measures.digest}",
            details={"messages": measures.messages, "bytes": measures.bytes},
        )


@dataclass(frozen=True)
class ExpectCountsToBePossible(Expectation):
    """Every row counts something, and its first message is not behind its last."""

    statement = "Every row counts at least one message, and its first time isn't after its last."
    reason = ExpectMessagesToBeCounted.reason

    def judge(self, measures: CensusMeasures) -> Judgement:
        wrong = measures.impossible
        observed = f"{count(wrong.rows, 'row')} with impossible counts"
        return Judgement(
            not wrong.rows, observed if wrong.rows else "all counts are possible", wrong.examples
        )
