"""Publishing of the demo's traffic into a JetStream stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress

import nats
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.api import StreamConfig

from jobs.errors import ArchiveError, one_line
from orchestration.demo.traffic import SUBJECTS, Message

_IN_FLIGHT = 4_000  # publishes without an acknowledgement yet; more than this gains nothing
_REPORT_EVERY = 20_000


def publish(
    server: str,
    stream: str,
    messages: Iterable[Message],
    first_seq: int,
    progress: Callable[[int], None],
) -> None:
    """Make a stream and publish messages into it, each acknowledged by the server.

    Args:
        server: URL of the server.
        stream: name of the stream; it must not exist.
        messages: what to publish, in order.
        first_seq: sequence of the first message.
        progress: called with the number of messages published so far.

    Raises:
        ArchiveError: the server cannot be reached or refuses.
    """
    try:
        asyncio.run(_publish(server, stream, messages, first_seq, progress))
    except (NatsError, OSError) as error:
        raise ArchiveError(f"cannot publish to {server}: {one_line(error)}") from error


def remove_stream(server: str, stream: str) -> None:
    """Delete a stream that `publish` made; nothing happens if it is not there."""

    async def remove() -> None:
        connection = await _connect(server)
        try:
            await connection.jetstream().delete_stream(stream)
        finally:
            await connection.close()

    with suppress(NatsError, OSError):
        asyncio.run(remove())


async def _connect(server: str) -> Client:
    # The client logs each failed attempt itself; the one error that we raise says it.
    async def quiet(error: Exception) -> None:
        pass

    return await nats.connect(server, error_cb=quiet, allow_reconnect=False, connect_timeout=5)


async def _publish(
    server: str,
    stream: str,
    messages: Iterable[Message],
    first_seq: int,
    progress: Callable[[int], None],
) -> None:
    connection = await _connect(server)
    try:
        jetstream = connection.jetstream(publish_async_max_pending=_IN_FLIGHT)
        await jetstream.add_stream(
            StreamConfig(name=stream, subjects=list(SUBJECTS), first_seq=first_seq)
        )
        last = None
        number = 0
        for number, message in enumerate(messages, 1):
            last = await jetstream.publish_async(
                message.subject, message.data, headers=dict(message.headers)
            )
            if number % _REPORT_EVERY == 0:
                progress(number)
        await jetstream.publish_async_completed()
        info = await jetstream.stream_info(stream)
        if last is not None:
            await last
        if info.state.messages != number:
            raise ArchiveError(f"{server} stored {info.state.messages} of {number} messages")
        progress(number)
    finally:
        await connection.close()
