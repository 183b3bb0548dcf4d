"""Where the messages that were published to a mapping are: an account that adds up.

    published + unpublished = attributed + inferred + ambiguous + unmapped + doubled + missing

A share is judged only within what the account leaves open: a missing message can have come to any
destination, and any message may be one that was never published to the mapping. If more is open
than the tolerance, no share is within it, and the account names the cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from nats_transform.audit import statistics
from nats_transform.words import plural

_LAG = timedelta(hours=1)
"""What is published in one hour may be stored in the next."""


class Account(BaseModel):
    """The account of one mapping in one cluster under one mapping version.

    What is null is not known, which is not the same as 0.

    Attributes:
        source: the source of the mapping.
        cluster: the cluster where the messages were published; null if the archive does not say.
        stage: the number of the version among those in force during the audit, from 0 on.
        published: how many messages were published to the source. A retry that was stored counts.
        attributed: stored messages that one destination alone can have made.
        inferred: published messages that are taken for those of ends that the archive cannot hold.
        ambiguous: stored messages that more than one end, or something else, can have made.
        unmapped: messages stored under the source itself, where no destination keeps it.
        doubled: messages stored again: an earlier one has the same `Nats-Msg-Id`.
        missing: published messages that are not in the archive.
        unpublished: stored messages beyond those that were published.
    """

    model_config = ConfigDict(frozen=True)

    source: str
    cluster: str | None
    stage: int
    published: int | None
    attributed: int
    inferred: int
    ambiguous: int
    unmapped: int | None
    doubled: int | None
    missing: int | None
    unpublished: int | None


class Doubled(NamedTuple):
    """How many messages repeat the `Nats-Msg-Id` of an earlier one.

    Attributes:
        stored: of those in the archive, which are not counted otherwise.
        published: of those that were published; None if nobody knows.
    """

    stored: int
    published: int | None = None


@dataclass(frozen=True, slots=True)
class Balance:
    """What the counts of some time leave open.

    Attributes:
        published: how many messages were published, retries left out; None if it is not known.
        missing: how many of them were not stored.
        open: messages that may be missing: others may have been stored in their place.
        excess: messages that were stored and not published, no matter where they were stored.
    """

    published: int | None = None
    missing: int = 0
    open: int = 0
    excess: int = 0

    def __add__(self, other: Balance) -> Balance:
        is_known = self.published is not None and other.published is not None
        return Balance(
            (self.published or 0) + (other.published or 0) if is_known else None,
            self.missing + other.missing,
            self.open + other.open,
            self.excess + other.excess,
        )

    def of_part(self) -> Balance:
        """What it leaves open in a part of the time, if nobody knows in which part."""
        return Balance(None, 0, self.missing + self.open, self.excess)


def balance(
    published: Sequence[int],
    stored: Sequence[int],
    foreign: Sequence[int],
    starts: Sequence[datetime | None],
) -> list[Balance]:
    """What each of some hours leaves open.

    Args:
        published: the messages that were published, by hour.
        stored: those that were stored, repeats left out.
        foreign: how many of those may have been made by something else than the mapping.
        starts: when the hours began.
    """
    rest = [sent - there for sent, there in zip(published, stored, strict=True)]
    for n, (start, after) in enumerate(pairwise(starts)):
        if start and after and after - start <= _LAG and rest[n] * rest[n + 1] < 0:
            moved = min(abs(rest[n]), abs(rest[n + 1])) * (1 if rest[n] > 0 else -1)
            rest[n], rest[n + 1] = rest[n] - moved, rest[n + 1] + moved
    return [
        Balance(there + more, max(0, more), max(0, other - max(0, -more)), max(0, -more - other))
        for there, other, more in zip(stored, foreign, rest, strict=True)
    ]


class Cause(NamedTuple):
    """What the account says of a sample, in words, and whether that alone is outside."""

    text: str
    is_outside: bool


def cause_of(
    balance: Balance, stored: int, unmapped: int, tolerance: float, confidence: float
) -> Cause | None:
    """What the account has against the counts of some time, other than their shares.

    Args:
        balance: what the number of published messages says of them.
        stored: how many messages were stored.
        unmapped: how many messages are stored under the source of the mapping, if these are
            outside the tolerance.
        tolerance: the smallest tolerance of a share, as a fraction.
        confidence: the confidence of an interval.
    """
    if unmapped:
        return Cause(
            f"{unmapped:,} of {plural(stored, 'message')} kept the mapping's source as their "
            "subject: the mapping wasn't in force for them, so look which servers hadn't loaded it",
            True,
        )
    published = balance.published or 0
    causes = [
        (
            balance.missing,
            published,
            f"{balance.missing:,} of {plural(published, 'published message')} are missing: "
            "they were lost, deleted or not captured after the mapping",
        ),
        (
            balance.excess,
            stored,
            f"{balance.excess:,} of {plural(stored, 'stored message')} were not published to the "
            "mapping: other programs publish to its destinations (--publisher), or they were "
            "published at another time or in another cluster",
        ),
    ]
    for count, total, text in causes:
        is_much = count > tolerance * total  # else no interval starts above the tolerance
        if is_much and statistics.intervals(count, total, confidence)[0] > tolerance:
            return Cause(text, True)
    causes.append((balance.open, stored, f"{plural(balance.open, 'message')} may be missing"))
    count, total, text = max(causes)
    return Cause(text, False) if total and count / total > tolerance / 2 else None
