"""Headers that make nats-server or a client act, and what a replay does with each of them.

An archived header must not act a second time by accident: a rollup would erase the target, an
expected sequence of the old stream would stop the replay. So a replayed message carries such a
header under another name, `Nats-Transform-Original-<name>`, where it is data and nothing else.
`Fate` names those that act again if the operator asks for it.

Source: the header constants of nats-server 2.15.1 (`server/stream.go`, `server/consumer.go`,
`server/msgtrace.go`, `server/accounts.go`, `server/jetstream_api.go`); ADR-8 for `KV-Operation`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum

from jobs.jetstream import wire

OWN = b"Nats-Transform-"
ASIDE = OWN + b"Original-"
"""The prefix of the name of a header that was set aside."""


class Fate(StrEnum):
    """What a replay does with an archived header."""

    KEPT = "kept"  # sent as it is
    ASIDE = "set aside"  # sent under another name
    ROLLUP = "acts with --allow rollup"  # else set aside
    TTL = "acts with --allow ttl"  # else set aside
    SCHEDULE = "acts with --rewrite-headers"  # else set aside


# The name, the meaning and the fate of each header. A name that starts with `Nats-` and is not here
# is set aside too, because a later server may give it a meaning. Names are compared without regard
# to case, because some clients read them so; only one that acted for the server acts again. All
# other headers are kept.
TABLE: dict[str, tuple[str, Fate]] = {
    # What KV buckets are made of: a marker is a deletion to every reader of the bucket.
    "KV-Operation": ("a deleted or purged key", Fate.KEPT),
    "Nats-Marker-Reason": ("a deletion that the server noted", Fate.KEPT),
    "Nats-Rollup": ("removes earlier messages", Fate.ROLLUP),
    "Nats-TTL": ("removes the message after a time", Fate.TTL),
    # Conditions and duties of a publish.
    "Nats-Msg-Id": ("duplicates are dropped by it", Fate.ASIDE),
    "Nats-Expected-Stream": ("a condition", Fate.ASIDE),
    "Nats-Expected-Last-Sequence": ("a condition", Fate.ASIDE),
    "Nats-Expected-Last-Subject-Sequence": ("a condition", Fate.ASIDE),
    "Nats-Expected-Last-Subject-Sequence-Subject": ("a condition", Fate.ASIDE),
    "Nats-Expected-Last-Msg-Id": ("a condition", Fate.ASIDE),
    "Nats-Batch-Id": ("an atomic batch", Fate.ASIDE),
    "Nats-Batch-Sequence": ("an atomic batch", Fate.ASIDE),
    "Nats-Batch-Commit": ("an atomic batch", Fate.ASIDE),
    "Nats-Incr": ("adds to a counter", Fate.ASIDE),
    "Nats-Counter-Sources": ("sums of a counter", Fate.ASIDE),
    "Nats-Schedule": ("publishes again at a time", Fate.SCHEDULE),
    "Nats-Schedule-Time-Zone": ("publishes again at a time", Fate.SCHEDULE),
    "Nats-Schedule-TTL": ("publishes again at a time", Fate.SCHEDULE),
    "Nats-Schedule-Rollup": ("publishes again at a time", Fate.SCHEDULE),
    "Nats-Schedule-Target": ("publishes again at a time", Fate.SCHEDULE),
    "Nats-Schedule-Source": ("publishes again at a time", Fate.SCHEDULE),
    "Nats-Schedule-Next": ("removes a schedule", Fate.ASIDE),
    "Nats-Scheduler": ("removes a schedule", Fate.ASIDE),
    "Nats-Required-Api-Level": ("a condition", Fate.ASIDE),
    # What the server writes: a reader would take it for what the target's server says.
    "Nats-Stream-Source": ("where a sourced message is from; refused by the server", Fate.ASIDE),
    "Nats-Stream": ("of a republished message or a direct get", Fate.ASIDE),
    "Nats-Subject": ("of a republished message or a direct get", Fate.ASIDE),
    "Nats-Sequence": ("of a republished message or a direct get", Fate.ASIDE),
    "Nats-Time-Stamp": ("of a republished message or a direct get", Fate.ASIDE),
    "Nats-Last-Sequence": ("of a republished message or a direct get", Fate.ASIDE),
    "Nats-Num-Pending": ("of a direct get", Fate.ASIDE),
    "Nats-UpTo-Sequence": ("of a direct get", Fate.ASIDE),
    "Nats-Msg-Size": ("of a message without its payload", Fate.ASIDE),
    "Nats-Response-Type": ("of an answer", Fate.ASIDE),
    "Nats-Stream-Identity": ("of an answer", Fate.ASIDE),
    "Nats-Last-Consumer": ("of a consumer's heartbeat", Fate.ASIDE),
    "Nats-Last-Stream": ("of a consumer's heartbeat", Fate.ASIDE),
    "Nats-Consumer-Stalled": ("of a consumer's heartbeat", Fate.ASIDE),
    "Nats-Pending-Messages": ("of a pull request", Fate.ASIDE),
    "Nats-Pending-Bytes": ("of a pull request", Fate.ASIDE),
    "Nats-Pin-Id": ("of a pull request", Fate.ASIDE),
    "Nats-Request-Info": ("who asked, over accounts; dropped by the server", Fate.ASIDE),
    "Nats-Trace-Dest": ("the server reports the message's way there", Fate.ASIDE),
    "Nats-Trace-Hop": ("of a traced message", Fate.ASIDE),
    "Nats-Trace-Origin-Account": ("of a traced message", Fate.ASIDE),
    "Nats-Trace-Only": ("the message is traced and not delivered", Fate.ASIDE),
    # Clients take it for the status of the message.
    "Status": ("of an answer", Fate.ASIDE),
}
_FATES = {name.lower().encode(): fate for name, (_, fate) in TABLE.items()}
_EXACT = {name.encode() for name in TABLE}

# Durations as Go writes them.
_UNITS = {b"h": 3600, b"m": 60, b"s": 1, b"ms": 1e-3, b"us": 1e-6, b"ns": 1e-9}
_PART = rb"([0-9]{1,9}\.?[0-9]{0,9}|\.[0-9]{1,9})(h|ms|m|s|us|ns)"
_PARTS, _DURATION = re.compile(_PART), re.compile(rb"\+?(?:%b)+" % _PART)
_ENDLESS_OR_SECONDS = re.compile(rb"(?i:never)|0*[1-9][0-9]{0,8}")


def outgoing(lines: Sequence[bytes], acts: frozenset[str]) -> list[bytes]:
    """The lines of a message's header block as they are sent.

    Args:
        lines: `Name: value` of each archived header.
        acts: of `rollup`, `ttl` and `schedule` those that may act again.

    Raises:
        Unsendable: a line is no header.
    """
    seen: set[bytes] = set()
    return [_outgoing(line, acts, seen) for line in lines]


def _outgoing(line: bytes, acts: frozenset[str], seen: set[bytes]) -> bytes:
    if not wire.is_header(line):
        raise wire.Unsendable("unsendable-header", about="headers", header=wire.shown(line))
    name, _, value = line.partition(b":")
    lower = name.lower()
    if not lower.startswith(b"nats-"):
        return ASIDE + line if _FATES.get(lower) is Fate.ASIDE else line
    if lower.startswith(ASIDE.lower()):
        return line  # set aside by an earlier replay
    # The server reads the first header of a name, letter by letter: no other one acted before.
    can_act = name in _EXACT and name not in seen
    seen.add(name)
    match _FATES.get(lower, Fate.ASIDE):
        case Fate.KEPT:
            return line
        # Only within one subject: `all` would erase messages that are none of ours.
        case Fate.ROLLUP if can_act and "rollup" in acts and value.strip(b" ").lower() == b"sub":
            return b"Nats-Rollup: sub"
        case Fate.TTL if can_act and "ttl" in acts and _is_ttl(value.strip(b" ")):
            return b"Nats-TTL: " + value.strip(b" ")
        case Fate.SCHEDULE if name in _EXACT and "schedule" in acts:
            return line
        case _:
            return ASIDE + line


def _is_ttl(value: bytes) -> bool:
    """Whether the server takes it for a time to live; others than these it refuses.

    Source: nats-server `parseMessageTTL`, which takes no duration below a second.
    """
    if _DURATION.fullmatch(value):
        seconds = sum(float(number) * _UNITS[unit] for number, unit in _PARTS.findall(value))
        return 1 <= seconds < 2**63 / 1e9
    return _ENDLESS_OR_SECONDS.fullmatch(value) is not None
