"""Sends messages that servers only trace, and reads what they say they would do with them.

With `Nats-Trace-Only` servers deliver and store nothing; each server on the way publishes an event
to our inbox. Servers before 2.11 ignore the header and would deliver the message, so they get none.
nats-server runs services of its own (JetStream's API, acknowledgements) for traced messages too, so
nothing is sent to their subjects. Sources: ADR-41; nats-server `server/msgtrace.go`, `deliverMsg`.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Sequence

import nats.errors
from nats.aio.subscription import Subscription

from jobs.errors import ArchiveError, text_of
from jobs.jetstream.answers import TraceEvent, parse_answer
from jobs.jetstream.connection import RawClient
from nats_transform.untrusted import visible

_FIRST = (2, 11)
"""The first nats-server that traces messages."""
_ATTEMPTS = 3
"""Interest in our inbox may reach a distant cluster after the message: then its event is lost."""
SECONDS = 2.5
"""How long an attempt waits for events."""
_AT_ONCE = 200
_MOST_BYTES = 16 * 2**20
"""What all events have together at most: those of tens of thousands of subscribers."""
_RESERVED = re.compile(r"\$(?!(?:KV|O)\.)|_(?:R|GR)_\.")


def belongs_to_server(subject: str) -> bool:
    """Whether servers have services of their own under a subject, which run even if only traced."""
    return _RESERVED.match(subject) is not None


async def traced(client: RawClient, subject: str) -> Sequence[TraceEvent]:
    """What the servers say about a message that is published now; the publisher's server is first.

    Events of servers from which none came in time are missing.

    Args:
        client: a connection; it does not connect again after this.
        subject: a literal subject.

    Raises:
        ArchiveError: the server cannot trace, the user may not publish the message or subscribe to
            an inbox, or what comes is nothing that servers say.
    """
    _require_tracing(client)
    inbox, before = client.new_inbox(), client.last_error
    subscription = await client.subscribe(f"{inbox}.*", pending_bytes_limit=2 * _MOST_BYTES)
    try:
        for attempt in range(_ATTEMPTS):
            dest = f"{inbox}.{attempt}"
            await client.publish(subject, headers=_headers(dest))
            await client.flush()
            if (refusal := client.last_error) is not before and refusal is not None:
                raise _refused(client, refusal, subject, dest)
            events = await _events(client, subscription, dest)
            if events and not missing(events):
                break
    except nats.errors.Error as error:
        raise ArchiveError(
            "server-unreachable", where=client.where, reason=text_of(error)
        ) from error
    if not events:
        raise ArchiveError("trace-without-event", where=client.where)
    return events


def _require_tracing(client: RawClient) -> None:
    """Refuses a server that would deliver the messages; the client connects to no other then."""
    client.options["allow_reconnect"] = False  # the next server may be an older one
    version = str(client._server_info.get("version", ""))
    if tuple(map(int, re.findall(r"\d+", version)[:2])) < _FIRST:
        raise ArchiveError("trace-too-old", where=client.where, version=visible(version))


async def mapped_subjects(client: RawClient, subject: str, messages: int) -> Counter[str]:
    """How often the server gives each new subject to a message; "" stands for nobody.

    Args:
        client: a connection; it does not connect again after this.
        subject: a literal subject that does not belong to the server.
        messages: how many messages are published.

    Raises:
        ArchiveError: as of `traced`; or events do not come.
    """
    _require_tracing(client)
    counts: Counter[str] = Counter()
    inbox, before = client.new_inbox(), client.last_error
    subscription = await client.subscribe(f"{inbox}.*", pending_bytes_limit=2 * _MOST_BYTES)
    try:
        for first in range(0, messages, _AT_ONCE):
            left = {f"{inbox}.{n}" for n in range(first, min(first + _AT_ONCE, messages))}
            for dest in left:
                await client.publish(subject, headers=_headers(dest))
            await client.flush()
            if (refusal := client.last_error) is not before and refusal is not None:
                raise _refused(client, refusal, subject, inbox)
            until = time.monotonic() + client.settings.connect_timeout
            while left:
                seconds = max(until - time.monotonic(), 0.001)
                message = await subscription.next_msg(timeout=seconds)
                event = parse_answer(TraceEvent, client.where, "a trace", message.data)
                if event.hop or message.subject not in left:  # of another server
                    if time.monotonic() > until:
                        raise nats.errors.TimeoutError
                    continue
                left.remove(message.subject)
                counts[event.mapped] += 1
    except (nats.errors.Error, TimeoutError) as error:
        raise ArchiveError("trace-failed", where=client.where, reason=text_of(error)) from error
    finally:
        await subscription.unsubscribe()
    return counts


def _headers(dest: str) -> dict[str, str]:
    return {"Nats-Trace-Dest": dest, "Nats-Trace-Only": "true"}


def _refused(client: RawClient, refusal: Exception, subject: str, inbox: str) -> ArchiveError:
    return ArchiveError(
        "trace-refused",
        where=client.where,
        reason=text_of(refusal),
        subject=visible(subject),
        inbox=inbox,
    )


def missing(events: Sequence[TraceEvent]) -> set[str]:
    """The hops that servers passed the message on to, but no event came from."""
    passed = {step.hop for event in events for step in event.of("eg") if not step.error}
    return passed - {event.hop for event in events} - {""}


async def _events(client: RawClient, subscription: Subscription, dest: str) -> list[TraceEvent]:
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
            raise ArchiveError("trace-too-large", most=_MOST_BYTES // 2**20)
        if message.subject != dest:  # of an attempt before
            continue
        event = parse_answer(TraceEvent, client.where, "a trace", message.data)
        if event.hop in events:
            raise ArchiveError("trace-twice", where=client.where)
        events[event.hop] = event
    order = sorted(events, key=lambda hop: (hop.count("."), hop)) if "" in events else ()
    return [events[hop] for hop in order]
