"""Clients of nats-py, as tests use them."""

from __future__ import annotations

from nats.aio.client import Client


async def settled(client: Client) -> None:
    """Waits until the server has taken all that a client has sent, subscriptions among it.

    nats-py's `flush()` writes its PING ahead of commands that wait to be written. They are written
    by the time its PONG comes, so a second one goes behind them.
    """
    await client.flush()
    await client.flush()
