"""A replay without Spark and warehouse: made-up messages through the real target and chain."""

from __future__ import annotations

from typing import Any

from jobs.jetstream.chain import Chain, Outgoing
from jobs.jetstream.connection import connection
from jobs.jetstream.stream import stream_state
from jobs.jetstream.target import SOURCE, Target
from jobs.settings.connection import NatsSettings

VERSION, ARCHIVE = b"a" * 64, b"OLD"


def outgoing(stream: str, seq: int, width: int = 0) -> Outgoing:
    """A message of the made-up archive, with a payload of this width."""
    head = b"NATS/1.0\r\n%b: %b %d %b\r\n" % (SOURCE, VERSION, seq, ARCHIVE)
    return Outgoing(seq, f"{stream}.{seq % 7}".encode(), head, (b"%d" % seq).rjust(width))


async def replay(
    url: str, stream: str, count: int, rate: float | None = None, width: int = 0, **settings: Any
) -> Chain:
    """Sends the messages 1..count that the stream does not have."""
    nats = NatsSettings(servers=url, **settings)
    async with connection(nats) as client:
        state = await stream_state(client, stream)
        target = Target(stream, state)
        messages = target.messages(nats, max(state.first, 1), state.last)
        there = {found.seq async for _, found in messages if found}
        chain = Chain(client, target, version=VERSION, stream=ARCHIVE, window=100, rate=rate)
        async with chain:
            for seq in range(1, count + 1):
                if seq not in there:
                    await chain.send(outgoing(stream, seq, width))
        return chain
