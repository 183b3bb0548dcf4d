"""Messages of a stream through an ephemeral pull consumer, as bytes.

The server keeps the consumer in memory, wants no acknowledgements and deletes it afterwards. So
nothing on the stream changes, and other consumers are not affected.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import secrets
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.errors import ArchiveError
from jobs.jetstream import wire
from jobs.jetstream.answers import (
    NO_CLUSTER,
    THRESHOLD_TOO_LONG,
    Answer,
    ApiError,
    Cluster,
    ConsumerInfo,
    NoAnswer,
    StreamInfo,
)
from jobs.jetstream.connection import LARGEST_MESSAGE, NoNats, RawClient, api
from nats_transform.errors import printable

SILENCE_SECONDS = 5.0  # without an answer to a request: ask again through a new consumer
_SILENT_BYTES = 16_384  # in so many seconds: as little as that is silence, too
_PAUSE_SECONDS = 0.05  # without an answer: look whether the request has all its bytes
_INACTIVE_SECONDS = 120
_FAREWELL_SECONDS = 2.0  # for the server to delete the consumer, which it else does by itself


@contextlib.asynccontextmanager
async def consumer(
    client: RawClient, stream: str, subject: str | None, **start: Any
) -> AsyncIterator[tuple[str, ConsumerInfo]]:
    """An ephemeral consumer on the server that leads the stream: its name, and its first state.

    nats-server puts such a consumer on any replica, also on one that was down and lacks messages
    until it has caught up: there, they would seem to be gone. Only the leader surely has all.

    Raises:
        ApiError: the stream has no leader, or no consumer came to it within the patience.
    """
    config: dict[str, Any] = {
        "ack_policy": "none",
        "replay_policy": "instant",
        "mem_storage": True,
        "num_replicas": 1,
        # How long it outlives us if we are killed.
        "inactive_threshold": _INACTIVE_SECONDS * 1_000_000_000,
        **start,
    }
    if subject:
        config["filter_subject"] = subject
    name, info = await _on_the_leader(client, stream, config)
    try:
        yield name, info
    finally:
        await _delete(client, stream, name)


async def _on_the_leader(
    client: RawClient, stream: str, config: dict[str, Any]
) -> tuple[str, ConsumerInfo]:
    deadline = time.monotonic() + client.settings.patience
    led: Cluster | None = None
    for tries in itertools.count(1):
        why = "its cluster has no leader"
        try:
            led = (await api(client, StreamInfo, f"STREAM.INFO.{stream}")).cluster
            if led is None:
                return await _create(client, stream, config)
            if led.leader:
                why = f"no consumer came to its leader {printable(led.leader)}"
                name, info = await _create(client, stream, config)
                if info.cluster is None or info.cluster.leader == led.leader:
                    return name, info
                await _delete(client, stream, name)
        except ApiError as error:
            # A replica that catches up answers late, and can have the cluster elect leaders again.
            if error.err_code != NO_CLUSTER and not (led and isinstance(error, NoAnswer)):
                raise
        if time.monotonic() > deadline:
            raise ApiError("try-when-servers-are-up", reason=why)
        await asyncio.sleep(_PAUSE_SECONDS * min(tries / 5, 1))
    raise AssertionError


async def _create(
    client: RawClient, stream: str, config: dict[str, Any]
) -> tuple[str, ConsumerInfo]:
    name = f"nats-transform-{secrets.token_hex(8)}"
    body: dict[str, Any] = {
        "stream_name": stream,
        "config": config | {"name": name},
        "action": "create",
    }
    subject = f"CONSUMER.CREATE.{stream}.{name}"
    try:
        return name, await api(client, ConsumerInfo, subject, body)
    except ApiError as error:
        if error.err_code != THRESHOLD_TOO_LONG:
            raise
        # The stream has a limit, which is the default then.
        del body["config"]["inactive_threshold"]
        return name, await api(client, ConsumerInfo, subject, body)


async def _delete(client: RawClient, stream: str, name: str) -> None:
    with contextlib.suppress(ArchiveError, TimeoutError):
        if client.is_connected:
            async with asyncio.timeout(_FAREWELL_SECONDS):
                await api(client, Answer, f"CONSUMER.DELETE.{stream}.{name}")


@contextlib.asynccontextmanager
async def pulling(client: RawClient, subject: str | None = None) -> AsyncIterator[tuple[Pull, str]]:
    """A subscription whose messages come as bytes, and its subject: an inbox if none is given."""
    inbox = subject or client.new_inbox()
    subscription = await client.subscribe(inbox)
    pull = Pull(subscription._id)
    client.sink = pull
    try:
        yield pull, inbox
    finally:
        client.sink = None
        with contextlib.suppress(Exception):
            await subscription.unsubscribe()


async def request(
    client: RawClient, stream: str, consumer: str, inbox: str, wanted: Mapping[str, Any]
) -> None:
    subject = f"{client.settings.api_prefix}.CONSUMER.MSG.NEXT.{stream}.{consumer}"
    await client.publish(subject, json.dumps(wanted).encode(), reply=inbox)


async def arrive(client: RawClient, pull: Pull, wanted: int, max_bytes: int | None = None) -> None:
    """Waits until a request is done: all wanted messages, or a status; or nothing comes.

    nats-server sends no status where the messages have exactly as many bytes as the request allows.
    """
    while len(pull.replies) < wanted and pull.status is None:
        before, heard = len(pull.replies), client.heard
        pull.changed.clear()
        for seconds in (_PAUSE_SECONDS, SILENCE_SECONDS):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(pull.changed.wait(), seconds)
                break
            if max_bytes is not None and pull.size() >= max_bytes:
                return
        is_silent = client.heard - heard < _SILENT_BYTES  # else a large message is on its way
        if len(pull.replies) == before and not pull.changed.is_set() and is_silent:
            return
        if not client.is_connected:
            return


class Pull:
    """The messages that one request brings, as they come: columns of bytes."""

    def __init__(self, sid: int) -> None:
        self.sid = sid
        self.changed = asyncio.Event()
        self.clear()

    def clear(self) -> None:
        """Forgets what came, for the next request."""
        self.subjects: list[bytes] = []
        self.replies: list[bytes] = []
        self.blocks: list[bytes | None] = []
        self.data: list[bytes] = []
        self.status: bytes | None = None
        self._taken = 0
        self.changed.clear()

    def size(self) -> int:
        """The bytes of what came, as nats-server counts them."""
        blocks = (block or b"" for block in self.blocks)
        return sum(map(len, chain(self.subjects, self.replies, blocks, self.data)))

    def take(self, buffer: bytes) -> int:
        """Takes whole messages without a status; returns how far the buffer was read.

        Raises:
            NoNats: more came than any request asks for.
        """
        sid = b" %d " % self.sid
        find = buffer.find
        add_subject, add_reply = self.subjects.append, self.replies.append
        add_block, add_data = self.blocks.append, self.data.append
        size, at = len(buffer), 0
        while True:
            end_of_line = find(b"\r\n", at)
            if end_of_line < 0:
                break
            words = buffer[at:end_of_line].split(b" ")
            if words[0] == b"MSG" and len(words) == 5 and words[4].isdigit():
                start = end_of_line + 2
                end = start + int(words[4])
                if end + 2 > size or words[2] != sid[1:-1]:
                    break
                add_block(None)
                add_data(buffer[start:end])
            elif words[0] == b"HMSG" and len(words) == 6 and (words[4] + words[5]).isdigit():
                start = end_of_line + 2
                end = start + int(words[5])
                if end + 2 > size or words[2] != sid[1:-1]:
                    break
                split_at = start + int(words[4])
                add_block(buffer[start:split_at])
                add_data(buffer[split_at:end])
            else:
                break
            add_subject(words[1])
            add_reply(words[3])
            at = end + 2
        if at:
            self._took(at)
        return at

    def _took(self, count: int) -> None:
        self._taken += count
        if self._taken > 2 * LARGEST_MESSAGE:
            raise NoNats("it sends more than it was asked for")
        self.changed.set()

    def add(self, subject: bytes, reply: bytes, block: bytes | None, data: bytes) -> None:
        """Takes one message, or the status that ends the request: only that has no reply."""
        if reply:
            self.subjects.append(subject)
            self.replies.append(reply)
            self.blocks.append(block)
            self.data.append(data)
            self._took(len(subject) + len(reply) + len(block or b"") + len(data))
        elif not (block or b"").startswith(b"NATS/1.0 100"):  # a heartbeat
            self.status = block or b""
        self.changed.set()

    def lost(self) -> None:
        """Ends the wait for more."""
        self.changed.set()


@dataclass(frozen=True)
class Delivered:
    """What the reply subjects say about messages, as arrays: see `JSAck` in nats-server."""

    sequence: np.ndarray[Any, np.dtype[np.int64]]
    consumer_sequence: np.ndarray[Any, np.dtype[np.int64]]
    time: np.ndarray[Any, np.dtype[np.int64]]
    pending: np.ndarray[Any, np.dtype[np.int64]]

    @classmethod
    def parse(cls, replies: Sequence[bytes], where: str) -> Delivered:
        """From `$JS.ACK.[domain.account.]stream.consumer.delivered.sseq.cseq.time.pending[.x]`.

        Raises:
            ArchiveError: a reply says something else.
        """
        tokens = pc.split_pattern(pa.array(replies, pa.binary()).view(pa.string()), ".")
        width = len(tokens[0])
        flat = tokens.values
        base = 5 if width == 9 else 7
        try:
            if width < base + 4 or not (np.diff(tokens.offsets.to_numpy()) == width).all():
                raise pa.ArrowInvalid
            columns = [
                flat.take(pa.array(np.arange(base + n, len(flat), width)))
                .cast(pa.int64())
                .to_numpy()
                for n in range(4)
            ]
        except pa.ArrowInvalid:
            raise ArchiveError(
                "reply-of-no-server", where=where, replies=wire.shown(replies[0])
            ) from None
        return cls(*columns)
