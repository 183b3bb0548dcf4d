"""Publish the messages of the demo into a JetStream stream that only the demo uses."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from nats.errors import Error as NatsError
from nats.js.api import StreamConfig

from jobs.errors import ArchiveError, text_of
from jobs.jetstream.connection import connection
from jobs.progress import advance
from jobs.settings.connection import NatsSettings
from orchestration.demo.traffic import SUBJECTS, Message

_IN_FLIGHT = 4_000  # publishes without an acknowledgement yet; more than this gains nothing


def make_stream(server: str, stream: str, first_seq: int) -> None:
    """Make the demo's stream.

    Raises:
        ArchiveError: the server cannot be reached or refuses.
    """
    config = StreamConfig(name=stream, subjects=list(SUBJECTS), first_seq=first_seq)

    async def make() -> None:
        async with connection(NatsSettings(servers=server)) as client:
            try:
                await client.jetstream().add_stream(config)
            except NatsError as error:
                raise ArchiveError(
                    "demo-no-stream", server=server, reason=text_of(error)
                ) from error

    asyncio.run(make())


def remove_stream(server: str, stream: str) -> None:
    """Remove the demo's stream; nothing happens if it or the server is gone."""

    async def remove() -> None:
        async with connection(NatsSettings(servers=server)) as client:
            await client.jetstream().delete_stream(stream)

    with suppress(NatsError, ArchiveError):
        asyncio.run(remove())


def publish(server: str, stream: str, messages: Iterable[Message]) -> None:
    """Publish messages into an empty stream, and wait until it has acknowledged each of them.

    Raises:
        ArchiveError: the server cannot be reached, or did not store them all.
    """

    async def run() -> None:
        async with connection(NatsSettings(servers=server)) as client:
            jetstream = client.jetstream(publish_async_max_pending=_IN_FLIGHT)
            published = 0
            try:
                for message in messages:
                    await jetstream.publish_async(
                        message.subject, message.data, headers=dict(message.headers)
                    )
                    published += 1
                    advance()
                await jetstream.publish_async_completed()
                stored = (await jetstream.stream_info(stream)).state.messages
            except NatsError as error:
                raise ArchiveError(
                    "demo-no-publish", server=server, reason=text_of(error)
                ) from error
            if stored != published:
                raise ArchiveError(
                    "demo-lost-messages", server=server, stored=stored, published=published
                )

    asyncio.run(run())
