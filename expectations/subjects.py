"""Whether subjects are legal and short enough for a server."""

from __future__ import annotations

from dataclasses import dataclass

from expectations.expectation import NoRowMayBreak
from expectations.measures.rows import MAX_SUBJECT


@dataclass(frozen=True)
class ExpectArchivedSubjectsToBeLegal(NoRowMayBreak):
    """Every archived subject is a legal literal one, and short enough to be published."""

    rule = "illegal"
    statement = (
        "Every archived subject is a legal literal subject (no empty token, no wildcard) of at "
        f"most {MAX_SUBJECT:,} bytes."
    )
    reason = (
        "A message with any other subject can't be mapped, so the transform gives it the fate "
        "invalid."
    )
    broken = "under an illegal subject"
    fine = "all subjects are legal"


@dataclass(frozen=True)
class ExpectMappedSubjectsToBeLegal(NoRowMayBreak):
    """Every mapped subject is a legal literal one, and short enough to be published."""

    rule = "illegal"
    statement = ExpectArchivedSubjectsToBeLegal.statement.replace("archived", "mapped")
    reason = (
        "nats-server drops a message with an empty token, and closes the connection on a protocol "
        "line above max_control_line (4,096 bytes by default)."
    )
    broken = "mapped to an illegal subject"
    fine = ExpectArchivedSubjectsToBeLegal.fine
