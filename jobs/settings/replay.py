"""The settings of a replay."""

from __future__ import annotations

from typing import Annotated, Literal

from jobs.settings.base import Name, WithCommas, setting
from jobs.settings.connection import NatsSettings
from jobs.settings.days import Stream, StreamDays

SentFate = Literal["mapped", "unmatched"]
Consent = Literal["skips", "limits", "versions", "ingress", "rollup", "ttl"]


class ReplaySettings(StreamDays):
    """What to replay, and into which stream."""

    stream: Stream = setting(..., "The stream whose transformed messages are sent.")
    to: Name = setting(..., "The stream that gets the messages. It must exist.", min_length=1)
    server: NatsSettings
    fates: Annotated[frozenset[SentFate], WithCommas] = setting(
        frozenset(("mapped", "unmatched")),
        "Which messages to send; `mapped` leaves out those that no mapping matches.",
        min_length=1,
        metavar="FATES",
    )
    allow: frozenset[Consent] = setting(
        frozenset(),
        "Send in spite of one of these reasons. skips: some messages cannot be sent "
        "and are left out. limits: the target removes messages. versions: the target has messages "
        "of another mapping version. ingress: the target stores messages under another subject. "
        "rollup, ttl: the archived headers Nats-Rollup or Nats-TTL act again.",
    )
    rate: float | None = setting(None, "Send at most N messages a second.", gt=0, metavar="N")
    dry_run: bool = setting(False, "Check everything that a replay checks, and send nothing.")
    window: int = setting(
        500, "How many messages may wait for the server's answer.", ge=1, is_option=False
    )
