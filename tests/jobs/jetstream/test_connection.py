"""Connections: a task that ends while it writes, and a server that takes nothing more."""

from __future__ import annotations

import asyncio
import signal

import pytest
from nats.errors import Error as NatsError

from jobs.jetstream.connection import connection
from jobs.jetstream.process import NatsServer
from jobs.settings.connection import NatsSettings
from tests.support.awaiting import awaited

pytestmark = pytest.mark.server


@awaited
async def test_a_task_that_is_canceled_while_it_writes_ends(nats: NatsSettings) -> None:
    """nats-py alone would go on, here for ten seconds if the server were silent."""
    async with connection(nats) as client:
        flush = asyncio.create_task(client.flush())
        await asyncio.sleep(0)
        flush.cancel()
        await asyncio.wait([flush])
        assert flush.cancelled()
        await client.flush()


def test_a_server_that_takes_nothing_more(
    nats_server: NatsServer, nats: NatsSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.jetstream.connection.WRITE_SECONDS", 0.5)

    async def publish() -> None:
        async with connection(nats) as client:
            nats_server.process.send_signal(signal.SIGSTOP)
            for _ in range(4000):  # its queue has room for a thousand
                await client.publish("a", bytes(2**14))

    try:
        with pytest.raises((TimeoutError, NatsError)):
            asyncio.run(publish())
    finally:
        nats_server.process.send_signal(signal.SIGCONT)
