"""What a private nats-server makes of messages, published to it and to nothing else.

Every message has its number as payload. A subscriber gets what the mappings deliver, and the
streams are read back. The server knows neither the limits of the streams nor the headers and
payloads of the archive: a certificate is about subjects.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pydantic import SecretStr

from jobs.errors import JobError
from jobs.jetstream import wire
from jobs.jetstream.answers import Answer
from jobs.jetstream.connection import RawClient, api, connection
from jobs.jetstream.process import USER, nats_server
from jobs.jetstream.pull import pulling
from jobs.jetstream.reader import RangeReader
from jobs.jetstream.stream import JetStreamSettings, StreamState, stream_info
from jobs.progress import advance
from jobs.settings.connection import NatsSettings
from nats_transform.config.block import configured, mapping_fields, mappings_block, quoted_string
from nats_transform.config.permissions import User
from nats_transform.mappings.mapping import AccountMappings
from nats_transform.plan.changes import permissions_of
from nats_transform.streams.network import Network
from nats_transform.streams.stream import StreamConfig

_AT_ONCE = 5_000  # messages that the server and a subscriber may have in hand
_REPLY = b"nats-transform"
"""Tells what we published from what streams republish, which has none. No stream answers."""
QUIET_SECONDS = 5.0  # streams that store nothing more for so long have all that they will have
_CAUGHT_UP_SECONDS = 1.0  # the same if they have what is expected, and upstreams have been heard
_LOOK_SECONDS = 0.05


@dataclass
class Seen:
    """What the server made of some messages.

    Attributes:
        version: of the server.
        delivered: the subject that each message was delivered under; None if it was not.
        stored: for each stream the number of each message that it holds, and its subject there.
    """

    version: str
    delivered: list[bytes | None]
    stored: dict[str, list[tuple[int, bytes]]]


def try_messages(
    subjects: Sequence[bytes],
    block: str,
    streams: Sequence[StreamConfig],
    cluster: str | None,
    expected: Callable[[Sequence[bytes | None]], Mapping[str, int]],
) -> Seen:
    """Publish messages to a new private server.

    Args:
        subjects: literal subjects.
        block: the mappings of the server, from brace to brace.
        streams: its streams, as `subject_path` gives them.
        expected: how many messages each stream will hold, from what was delivered; it is waited
            for them, or until nothing more comes.

    Raises:
        JobError: the server does not start, refuses the configuration, or ends.
    """
    with nats_server(server_config(block, cluster), login=True) as server:
        nats = NatsSettings(
            servers=server.url, user=USER, password=SecretStr(server.password or "")
        )
        try:
            version, delivered, states = asyncio.run(_publish(nats, subjects, streams, expected))
        except JobError as error:
            if server.process.poll() is None:
                raise
            raise JobError("server-stops", reason=error) from error
        stored = {name: _read(nats, name, state) for name, state in states.items()}
        return Seen(version, delivered, stored)


@dataclass
class Tried:
    """What a user may do, by the number of the message.

    Attributes:
        published: the subject that each message of the user was delivered under, or None.
        others: the same of messages of another user who may publish everything.
        asked: the subjects that the user subscribed to.
        got: which of those messages the user got.
    """

    published: list[bytes | None]
    others: list[bytes | None]
    asked: set[bytes]
    got: set[int]


def try_users(
    subjects: Sequence[bytes],
    block: str,
    users: Sequence[User],
    cluster: str | None,
) -> list[Tried]:
    """Let users publish messages on a new private server, and subscribe to what comes of others.

    Raises:
        JobError: the server does not start.
    """
    password = secrets.token_urlsafe(32)
    names = [USER, *(f"{USER}-{number}" for number in range(len(users)))]
    permissions = [None, *map(permissions_of, users)]
    entries = [
        {"user": name, "password": password}
        | ({"permissions": allowed} if allowed is not None else {})
        for name, allowed in zip(names, permissions, strict=True)
    ]
    config = f"authorization {configured({'users': entries})}\n{server_config(block, cluster)}"
    with nats_server(config) as server:

        def login(name: str) -> NatsSettings:
            return NatsSettings(servers=server.url, user=name, password=SecretStr(password))

        return [asyncio.run(_as_user(login(USER), login(name), subjects)) for name in names[1:]]


async def _as_user(admin: NatsSettings, user: NatsSettings, subjects: Sequence[bytes]) -> Tried:
    async with connection(admin) as publisher, connection(admin) as watcher, connection(user) as me:
        published = await _deliver(me, watcher, subjects)
        others = await _deliver(publisher, watcher, subjects)
        asked = {subject for subject in others if subject is not None and subject.isascii()}
        inboxes = [await me.subscribe(subject.decode()) for subject in sorted(asked)]
        await me.flush()
        others = await _deliver(publisher, watcher, subjects)
        await me.flush()
        got = set()
        for inbox in inboxes:
            while inbox.pending_msgs:
                got.add(int((await inbox.next_msg(timeout=1)).data))
        return Tried(published, others, asked, got)


def block_of(mappings: AccountMappings) -> str:
    """Mappings as we have read them, from brace to brace."""
    return mappings_block(mapping_fields(mappings)).removeprefix("mappings").strip()


def server_config(block: str, cluster: str | None) -> str:
    """The configuration of the private server, beside its address and its store."""
    lines = [
        # The server drops what waits longer for a stream, and nobody waits for its answers.
        "jetstream { max_buffered_msgs: 100000000, max_buffered_size: 8GB }",
        "max_pending: 1GB",
        f"mappings {block}",
    ]
    if cluster is not None:
        lines.append(f"cluster {{ name: {quoted_string(cluster)} }}")
    return "\n".join(lines)


def subject_path(stream: StreamConfig, names: frozenset[str]) -> StreamConfig | None:
    """The stream with what decides subjects, and without its limits.

    None if it needs streams elsewhere, or if chance decides its subjects.

    Args:
        names: the names of the streams that the private server will have.
    """
    upstreams = stream.upstreams
    if any(up.external or up.consumer or up.name not in names for up in upstreams):
        return None
    if Network([stream]).draws:
        return None
    fields = stream.model_dump(
        by_alias=True,
        exclude_unset=True,
        include={
            "name": True,
            "subjects": True,
            "subject_transform": True,
            "republish": {"source", "destination"},
            "mirror": _UPSTREAM,
            "sources": {"__all__": _UPSTREAM},
        },
    )
    if stream.mirror is None:
        fields["no_ack"] = True
    return StreamConfig.model_validate(fields)


_UPSTREAM = {"name", "filter_subject", "subject_transforms"}


async def _publish(
    nats: NatsSettings,
    subjects: Sequence[bytes],
    streams: Sequence[StreamConfig],
    expected: Callable[[Sequence[bytes | None]], Mapping[str, int]],
) -> tuple[str, list[bytes | None], dict[str, StreamState]]:
    async with connection(nats) as publisher, connection(nats) as watcher:
        for stream in streams:
            config = stream.model_dump(by_alias=True, exclude_unset=True)
            await api(publisher, Answer, f"STREAM.CREATE.{stream.name}", config)
        delivered = await _deliver(publisher, watcher, subjects)
        version = str(publisher._server_info.get("version", ""))
        return version, delivered, await _settled(publisher, streams, expected(delivered))


async def _deliver(
    publisher: RawClient, watcher: RawClient, subjects: Sequence[bytes]
) -> list[bytes | None]:
    """The subject that each message is delivered under; None if nobody gets it."""
    delivered: list[bytes | None] = [None] * len(subjects)
    async with pulling(watcher, ">") as (everything, _):
        await watcher.flush()
        for first in range(0, len(subjects), _AT_ONCE):
            batch = subjects[first : first + _AT_ONCE]
            for number, subject in enumerate(batch, first):
                data = b"%d" % number
                line = b"PUB %b %b %d\r\n%b\r\n" % (subject, _REPLY, len(data), data)
                await publisher._send_command(wire.one_operation(line))
            # The server delivers before it answers the ping, and in order on each connection.
            await publisher.flush()
            await watcher.flush()
            for subject, reply, data in zip(
                everything.subjects, everything.replies, everything.data, strict=True
            ):
                if reply == _REPLY:
                    delivered[int(data)] = subject
            everything.clear()
            advance(len(batch))
    return delivered


async def _settled(
    client: RawClient, streams: Sequence[StreamConfig], expected: Mapping[str, int]
) -> dict[str, StreamState]:
    """The states of the streams once they hold what is expected, or nothing more comes.

    What a mirror or a source takes comes late: the server sets them up after a random delay.
    """
    are_late = any(any(stream.upstreams) for stream in streams)
    before, moved = None, time.monotonic()
    while True:
        infos = {s.name: await stream_info(client, s.name) for s in streams}
        upstreams = [up for info in infos.values() for up in (info.mirror, *(info.sources or ()))]
        counts = Counter({name: info.state.messages for name, info in infos.items()})
        are_known = all(up.active >= 0 and not up.lag for up in upstreams if up is not None)
        if (counts, are_known) != before:
            before, moved = (counts, are_known), time.monotonic()
        quiet = QUIET_SECONDS
        if counts == Counter(expected) and are_known:
            quiet = _CAUGHT_UP_SECONDS if are_late else 0
        if time.monotonic() >= moved + quiet:
            return {name: StreamState.of(info) for name, info in infos.items()}
        await asyncio.sleep(_LOOK_SECONDS)


def _read(nats: NatsSettings, stream: str, state: StreamState) -> list[tuple[int, bytes]]:
    """Number and subject of each message of a stream."""
    reader = RangeReader(nats, JetStreamSettings(stream=stream), state)
    messages: list[tuple[int, bytes]] = []
    for rows in reader((max(state.first, 1), state.last)):
        numbers = (int(data) for data in rows.column("data").to_pylist())
        # As bytes: they need not be UTF-8.
        subjects = rows.column("subject").view("binary").to_pylist()
        messages += zip(numbers, subjects, strict=True)
    return messages
