"""Whether subjects are legal and short enough for a server."""

from __future__ import annotations

from dataclasses import dataclass

from expectations.expectation import Expectation, Judgement, judge_flag
from expectations.measures.messages import MessagesMeasures
from expectations.measures.rows import MAX_SUBJECT, Flag
from expectations.measures.transformed import TransformedMeasures


@dataclass(frozen=True)
class ExpectMappedSubjectsToBeLegal(Expectation):
    """Every mapped subject is a legal literal one, and short enough to be published."""

    statement = (
        "Every mapped subject is a legal literal subject (no empty token, no wildcard) of at most "
        f"{MAX_SUBJECT:,} bytes."
    )
    reason = (
        "nats-server drops a message with an empty token, and closes the connection on a protocol "
        "line above max_control_line (4,096 bytes by default)."
    )

    def judge(self, measures: TransformedMeasures) -> Judgement:
        return _judge(measures.flags["illegal"], measures.flags["too_long"], "mapped to")


@dataclass(frozen=True)
class ExpectArchivedSubjectsToBeLegal(Expectation):
    """Every archived subject is a legal literal one."""

    statement = "Every archived subject is a legal literal subject."
    reason = (
        "A message with another subject cannot be mapped; the transform gives it the fate invalid."
    )

    def judge(self, measures: MessagesMeasures) -> Judgement:
        return _judge(measures.flags["illegal"], measures.flags["too_long"], "under")


def _judge(illegal: Flag, too_long: Flag, how: str) -> Judgement:
    if too_long.rows and not illegal.rows:
        return judge_flag(too_long, f"{how} a subject above {MAX_SUBJECT:,} bytes", "")
    return judge_flag(illegal, f"{how} an illegal subject", "all subjects are legal")
