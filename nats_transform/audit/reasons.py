"""The sentences that explain verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from math import ceil

from nats_transform.audit.sequential import SLOWEST
from nats_transform.audit.verdicts import ChanceTest, Criteria, DestinationAudit, Split, Verdict
from nats_transform.words import plural

_TAKES_LONGER = (
    f"; one in 20 such audits with repeated looks takes {SLOWEST:g} times as many, or more"
)
_NO_NUMBER = 10**15  # more than any number of messages


def reason_of(
    whole: Split,
    buckets: Sequence[Split],
    regimes: Sequence[Split],
    criteria: Criteria,
    is_blind: bool,
    alarm: datetime | None = None,
) -> str:
    """Why a mapping has its verdict, in a few words."""
    if whole.verdict is Verdict.NOTHING:
        return "no message was counted"
    if whole.cause:
        return whole.cause
    if whole.verdict is not Verdict.OUTSIDE:
        for name, parts in (("", regimes), (criteria.by, buckets)):
            out = [part for part in parts if part.verdict is Verdict.OUTSIDE]
            if not out:
                continue
            worst = max(out, key=lambda part: part.distance)
            times = f"from {_moment(worst.from_)} to {_moment(worst.to)}"
            why = f": {worst.cause}" if worst.cause else ""
            if name:
                times = f"in {len(out)} of {len(parts)} {name}s, the worst {times}"
            return f"{whole.verdict} over the whole time, but outside the tolerance {times}{why}"
        if alarm is not None:
            return (
                f"{whole.verdict} over the whole time, but outside the tolerance in hours before "
                f"{_moment(alarm)}"
            )
        if is_blind and all(end.inferred for end in whole.destinations):
            return "the archive can't hold the messages of any destination, so it shows no share"
        if is_blind:
            return (
                "the archive can hold the messages of only one destination, so it shows no share: "
                "say how many were published (--source-stream or --published)"
            )
    if whole.verdict is Verdict.UNDECIDED:
        needed = [d for d in whole.destinations if d.verdict is Verdict.UNDECIDED]
        if whole.ambiguous and any(d.ambiguous for d in needed):
            messages = plural(whole.ambiguous, "message")
            return f"{messages} may have come from more than one destination"
        return _to_decide(needed) + (_TAKES_LONGER if criteria.sequential else "")
    worst_end = whole.furthest
    off = abs(worst_end.off)
    if whole.verdict is Verdict.WITHIN:
        return f"no share is more than {ceil(round(100 * off, 6)) / 100:.2f} points off"
    changes = ", ".join(_moment(regime.from_) for regime in regimes[1:])
    return (
        f"{worst_end.name} is {off:.2f} points "
        f"{'above' if worst_end.off > 0 else 'below'} what is expected"
        + (f"; the split changed at {changes}" if changes else "")
    )


def _to_decide(shares: Sequence[DestinationAudit]) -> str:
    """How many messages would decide some shares, and for which true shares that holds."""
    if any(share.messages_to_decide is None for share in shares):
        return "a share lies on the edge of the tolerance, so more messages would not decide it"
    right = max(shares, key=lambda share: share.messages_to_decide or 0)
    seen = max(shares, key=lambda share: share.messages_as_seen or _NO_NUMBER)
    text = f"about {plural(_rounded(right.messages_to_decide or 0), 'message')} would decide it"
    if seen.share is None:
        return f"{text} if {right.name} gets its {right.expected:g} %"
    stays = f"if {seen.name} stays at {seen.share:.2f} %"
    if right.messages_to_decide == right.messages_as_seen:
        return f"{text} {stays}"
    as_seen = (
        "no number" if seen.messages_as_seen is None else f"{_rounded(seen.messages_as_seen):,}"
    )
    return f"{text} if {right.name} gets its {right.expected:g} %; {as_seen} {stays}"


def _moment(moment: datetime | None) -> str:
    return f"{moment:%Y-%m-%d %H:%M}" if moment else "?"


def _rounded(count: int) -> int:
    """A count rounded up to three digits, as people say it."""
    step: int = 10 ** max(0, len(str(count)) - 3)
    return -(-count // step) * step


def clusters_in_words(total: Verdict, clusters: int, outside: Sequence[str | None]) -> str:
    """Whether the verdict on all clusters together hides a difference between them."""
    names = ", ".join("messages without a cluster name" if c is None else c for c in outside)
    if not outside:
        none = f"none of the {clusters} clusters is outside the tolerance"
        return none + (" by itself, but all together are" if total is Verdict.OUTSIDE else "")
    if total is Verdict.OUTSIDE:
        return f"all clusters together are outside the tolerance, and so is each of these: {names}"
    how = "within the tolerance" if total is Verdict.WITHIN else "undecided"
    return f"all clusters together are {how}, but each of these is outside the tolerance: {names}"


def chance_in_words(tests: Sequence[ChanceTest]) -> str:
    """What chance does not make, and what may have made it."""
    test = min((test for test in tests if not test.is_random), key=lambda test: test.p_value)
    how = {
        ("runs", True): f"{test.destination} comes in runs",
        ("runs", False): f"{test.destination} follows itself too seldom",
        ("spacing", True): f"{test.destination} comes in bursts",
        ("spacing", False): f"{test.destination} comes too evenly",
    }.get((test.test, test.seen > test.expected), "some keys have another split than others")
    cause = (
        "something other than a draw for each message chooses the destination"
        if test.test == "keys"
        else "something other than a draw for each message chooses the destination, or the stream "
        "does not keep the order of publishing"
    )
    return f"{how}, which chance doesn't explain (p = {test.p_adjusted:.1g}): {cause}"
