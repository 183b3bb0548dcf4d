"""Sends one message that servers only trace, and reads what they say they would do with it.

With `Nats-Trace-Only` servers deliver and store nothing; each server on the way publishes an event
to our inbox. Servers before 2.11 ignore the header and would deliver the message, so they get none.
nats-server runs services of its own (JetStream's API, acknowledgements) for traced messages too, so
nothing is sent to their subjects. Sources: ADR-41; nats-server `server/msgtrace.go`, `deliverMsg`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

import nats.errors
from nats.aio.subscription import Subscription

from jobs.errors import ArchiveError, text_of
from jobs.jetstream.answers import TraceEvent, parse_answer
from jobs.jetstream.connection import RawClient
from jobs.settings.connection import NatsSettings
from nats_transform.untrusted import visible

_FIRST = (2, 11)
"""The first nats-server that traces messages."""
_ATTEMPTS = 3
"""Interest in our inbox may reach a distant cluster after the message: then its event is lost."""
SECONDS = 2.5
"""How long an attempt waits for events."""
_MOST_BYTES = 16 * 2**20
"""What all events have together at most: those of tens of thousands of subscribers."""
_RESERVED = re.compile(r"\$(?!(?:KV|O)\.)|_(?:R|GR)_\.")


def belongs_to_server(subject: str) -> bool:
    """Whether servers have services of their own under a subject, which run even if only traced."""
    return _RESERVED.match(subject) is not None


async def traced(client: RawClient, settings: NatsSettings, subject: str) -> Sequence[TraceEvent]:
    """What the servers say about a message that is published now; the publisher's server is first.

    Events of servers from which none came in time are missing.

    Args:
        client: a connection; it does not connect again after this.
        settings: its settings.
        subject: a literal subject.

    Raises:
        ArchiveError: the server cannot trace, the user may not publish the message or subscribe to
            an inbox, or what comes is nothing that servers say.
    """
    client.options["allow_reconnect"] = False  # the next server may be an older one
    version = str(client._server_info.get("version", ""))
    if tuple(map(int, re.findall(r"\d+", version)[:2])) < _FIRST:
        raise ArchiveError(
            f"{settings.where} runs nats-server {visible(version)}, which would deliver the "
            "message: tracing needs 2.11, leave out --live"
        )
    inbox, before = client.new_inbox(), client.last_error
    subscription = await client.subscribe(f"{inbox}.*", pending_bytes_limit=2 * _MOST_BYTES)
    try:
        for attempt in range(_ATTEMPTS):
            dest = f"{inbox}.{attempt}"
            headers = {"Nats-Trace-Dest": dest, "Nats-Trace-Only": "true"}
            await client.publish(subject, headers=headers)
            await client.flush()
            if (refusal := client.last_error) is not before and refusal is not None:
                raise ArchiveError(
                    f"{settings.where} refuses the trace: {text_of(refusal)}; give a "
                    f"user who may publish {visible(subject)}, and publish and subscribe {dest}"
                )
            events = await _events(settings, subscription, dest)
            if events and not missing(events):
                break
    except nats.errors.Error as error:
        raise ArchiveError(f"{settings.where} does not answer: {text_of(error)}") from error
    if not events:
        raise ArchiveError(f"{settings.where} sends no trace event: does its version trace?")
    return events


def missing(events: Sequence[TraceEvent]) -> set[str]:
    """The hops that servers passed the message on to, but no event came from."""
    passed = {step.hop for event in events for step in event.of("eg") if not step.error}
    return passed - {event.hop for event in events} - {""}


async def _events(
    settings: NatsSettings, subscription: Subscription, dest: str
) -> list[TraceEvent]:
    """The events that come in time, from the publisher's server on."""
    events: dict[str, TraceEvent] = {}
    until, size = time.monotonic() + SECONDS, 0
    while "" not in events or missing(list(events.values())):
        if (seconds := until - time.monotonic()) <= 0:
            break
        try:
            message = await subscription.next_msg(timeout=seconds)
        except (TimeoutError, nats.errors.TimeoutError):
            break
        size += len(message.data)
        if size > _MOST_BYTES:
            raise ArchiveError(f"more than {_MOST_BYTES // 2**20} MiB of trace events came")
        if message.subject != dest:  # of an attempt before
            continue
        event = parse_answer(TraceEvent, settings.where, "a trace", message.data)
        if event.hop in events:
            raise ArchiveError(
                f"two trace events came for the same hop to {settings.where}: somebody publishes "
                "to our inbox; try again, or with another --inbox-prefix"
            )
        events[event.hop] = event
    order = sorted(events, key=lambda hop: (hop.count("."), hop)) if "" in events else ()
    return [events[hop] for hop in order]
