"""The settings of a replay."""

from __future__ import annotations

from typing import Annotated, Literal

from jobs.settings.base import Name, WithCommas, setting
from jobs.settings.connection import NatsSettings
from jobs.settings.days import Stream, StreamDays
from jobs.settings.warehouse import BranchedWarehouse, Warehouse

SentFate = Literal["mapped", "unmatched"]
Consent = Literal["skips", "limits", "versions", "ingress", "rollup", "ttl"]

CONSENTS: dict[Consent, str] = {
    "skips": "leave out messages that cannot be sent, that the target does not capture, or that "
    "are in quarantine or not transformed",
    "limits": "the target removes messages, so what was sent is not known for certain",
    "versions": "the target has these messages under another mapping version",
    "ingress": "the target's subject transform stores messages under another subject",
    "rollup": "`Nats-Rollup: sub` acts again, as a KV bucket needs it",
    "ttl": "`Nats-TTL` acts again, counted from the replay",
}

_BY_HAND = "because its author would consent in your name: give it as an option"


class ReplaySettings(StreamDays):
    """What to replay, and into which stream."""

    stream: Stream = setting(..., "The stream whose transformed messages are sent.")
    to: Name = setting(..., "The stream that gets the messages. It must exist.", min_length=1)
    server: NatsSettings
    fates: Annotated[frozenset[SentFate], WithCommas] = setting(
        frozenset(("mapped", "unmatched")),
        "Which messages to send. `mapped` leaves out messages that no mapping matches.",
        min_length=1,
        metavar="FATES",
    )
    allow: frozenset[Consent] = setting(
        frozenset(),
        "Send in spite of one of these reasons. "
        + "; ".join(f"{reason}: {about}" for reason, about in CONSENTS.items())
        + ".",
        cure=_BY_HAND,
    )
    rewrite_headers: bool = setting(
        False,
        "Let schedules act again and publish to the new names of their subjects, unless the "
        "archive shows that they fired. Without this option, their headers are set aside.",
        cure=_BY_HAND,
    )
    rate: float | None = setting(None, "Send at most N messages a second.", gt=0, metavar="N")
    dry_run: bool = setting(False, "Check everything that a replay checks, and send nothing.")
    warehouse: BranchedWarehouse = Warehouse()
    window: int = setting(
        500, "How many messages may wait for the server's answer.", ge=1, is_option=False
    )
