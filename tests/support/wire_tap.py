"""A sender and a watcher at a real nats-server: what really arrives of bytes that were sent."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Iterator

from jobs.jetstream import wire
from jobs.jetstream.connection import connection
from jobs.jetstream.process import nats_server
from jobs.settings.connection import NatsSettings

Arrived = tuple[bytes, bytes, bytes | None, bytes]  # subject, reply, header block, payload

REPLY = b"reply.x"


class _Everything:
    """Takes every message of one subscription, a sink of a `RawClient`."""

    def __init__(self) -> None:
        self.sid = 0
        self.arrived: list[Arrived] = []
        self._more = asyncio.Event()

    def take(self, buffer: bytes) -> int:
        return 0

    def add(self, subject: bytes, reply: bytes, block: bytes | None, data: bytes) -> None:
        # What the server itself says of a request to its API.
        if subject == REPLY or subject.startswith(b"$JS.EVENT.ADVISORY.API"):
            return
        self.arrived.append((subject, reply, block, data))
        self._more.set()

    async def until(self, subject: bytes) -> None:
        """Waits for a message under this subject."""
        while all(subject != arrived[0] for arrived in self.arrived):
            self._more.clear()
            await self._more.wait()


class Tap:
    """Publishes messages of any bytes and sees all that the server then delivers, anywhere."""

    def __init__(self, url: str) -> None:
        self._nats = NatsSettings(servers=url)
        self._loop = asyncio.new_event_loop()
        self._stack = contextlib.AsyncExitStack()
        self._numbers = itertools.count()
        self._loop.run_until_complete(self._start())

    async def _start(self) -> None:
        self._sender = await self._stack.enter_async_context(connection(self._nats))
        self._watcher = await self._stack.enter_async_context(connection(self._nats))
        self._seen = self._watcher.sink = _Everything()
        self._seen.sid = (await self._watcher.subscribe(">"))._id
        await self._watcher.flush()

    def close(self) -> None:
        self._loop.run_until_complete(self._stack.aclose())
        self._loop.close()

    def holds(self, subject: bytes, block: bytes, data: bytes) -> bool:
        """Whether the message was sent; it then arrived as it is, and nothing else did.

        Raises:
            AssertionError: something else arrived, or the server complained.
        """
        return self._loop.run_until_complete(self._holds(subject, block, data))

    async def _holds(self, subject: bytes, block: bytes, data: bytes) -> bool:
        wanted: list[Arrived] = []
        end = f"end.{next(self._numbers)}"
        with contextlib.suppress(wire.Unsendable):
            frame = wire.publish(subject, REPLY, block, data)
            wanted = [(subject, REPLY, block, data)]
            await self._sender._send_command(frame)
        await self._sender.publish(end)
        await asyncio.wait_for(self._seen.until(end.encode()), 10)
        found, self._seen.arrived = self._seen.arrived, []
        assert found == [*wanted, (end.encode(), b"", None, b"")], (subject[:99], len(block))
        assert self._sender.last_error is None, self._sender.last_error
        return bool(wanted)


@contextlib.contextmanager
def tap() -> Iterator[Tap]:
    """A tap at a server of its own, closed at the end."""
    with nats_server() as server:
        made = Tap(server.url)
        try:
            yield made
        finally:
            made.close()
