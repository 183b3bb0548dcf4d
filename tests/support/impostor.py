"""A server that speaks the protocol of NATS, and answers what nats-server never would."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

Pieces = Callable[[bytes, bytes], Iterator[bytes]]
INFO = {"server_id": "x", "version": "2.15.1", "max_payload": 1048576, "headers": True}
INFO_OF_STREAM: dict[str, Any] = {
    "created": "2026-01-01T00:00:00Z",
    "config": {"name": "S", "subjects": ["a"]},
    "state": {"messages": 3, "bytes": 300, "first_seq": 1, "last_seq": 3},
}


@dataclass
class Impostor:
    """What the server says.

    Attributes:
        info: its first line.
        answers: the answer to each request of the API, by the start of its subject without the
            prefix; or a function that gives it, from the body of the request.
        messages: how many messages a consumer from the first sequence on has.
        pieces: what it sends for a pull request, from the inbox and the number of its
            subscription; it goes on until nobody reads it any more.
        first: the sequence from which the last consumer was asked for.
        sent: how many bytes of pieces it could send.
        traces: the events for a message that is to be traced.
        asked: the subjects of all requests.
        url: where it is.
    """

    info: bytes = b"INFO " + json.dumps(INFO).encode() + b"\r\n"
    answers: dict[str, Any] = field(default_factory=dict)
    messages: int = 3
    pieces: Pieces = lambda inbox, sid: iter(())
    first: int = 1
    sent: int = 0
    traces: Iterable[bytes] = ()
    asked: list[str] = field(default_factory=list)
    url: str = ""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inboxes: dict[bytes, bytes] = {}
        with suppress(OSError, asyncio.IncompleteReadError, ValueError):
            writer.write(self.info)
            async for line in reader:
                words = line.split()
                if words[0] == b"PING":
                    writer.write(b"PONG\r\n")
                elif words[0] == b"SUB":
                    inboxes[words[1].removesuffix(b"*")] = words[-1]
                elif words[0] in (b"PUB", b"HPUB"):
                    body = await reader.readexactly(int(words[-1]) + 2)
                    await self._answer(words[1].decode(), words[2], body, inboxes, writer)
                await writer.drain()
        writer.close()

    async def _answer(
        self,
        subject: str,
        inbox: bytes,
        body: bytes,
        inboxes: dict[bytes, bytes],
        writer: asyncio.StreamWriter,
    ) -> None:
        self.asked.append(subject)
        if traced := re.search(rb"Nats-Trace-Dest: (\S+)", body):
            inbox = traced[1]
        sid = next(sid for start, sid in inboxes.items() if inbox.startswith(start))
        if traced:
            for text in self.traces:
                writer.write(b"MSG %b %b %d\r\n%b\r\n" % (inbox, sid, len(text), text))
                await writer.drain()
            return
        if "CONSUMER.MSG.NEXT" in subject:
            for piece in self.pieces(inbox, sid):
                writer.write(piece)
                await writer.drain()
                self.sent += len(piece)
            return
        known: dict[str, Any] = {"STREAM.INFO": INFO_OF_STREAM}
        if "CONSUMER.CREATE" in subject:
            self.first = json.loads(body)["config"].get("opt_start_seq", self.first)
            left = max(self.messages - self.first + 1, 0)
            known["CONSUMER.CREATE"] = {"config": {}, "num_pending": left}
        known |= self.answers
        start = subject.removeprefix("$JS.API.")
        names = sorted(known, key=len, reverse=True)
        answer = next((known[name] for name in names if start.startswith(name)), {})
        if callable(answer):
            answer = answer(json.loads(body))
        text = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        writer.write(b"MSG %s %s %d\r\n%s\r\n" % (inbox, sid, len(text), text))


@contextmanager
def serving(impostor: Impostor) -> Iterator[Impostor]:
    """Runs the server, as long as the context lasts."""
    ready, loop = threading.Event(), asyncio.new_event_loop()

    async def serve() -> None:
        async with await asyncio.start_server(impostor._serve, "127.0.0.1", 0) as server:
            impostor.url = f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            ready.set()
            await asyncio.Event().wait()

    def run() -> None:
        with suppress(asyncio.CancelledError):
            loop.run_until_complete(serving)
        loop.close()

    serving = loop.create_task(serve())
    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert ready.wait(30)
        yield impostor
    finally:
        loop.call_soon_threadsafe(serving.cancel)
        thread.join()


def message(inbox: bytes, sid: bytes, sequence: int, number: int, pending: int = 0) -> bytes:
    """A message of a consumer."""
    reply = b"$JS.ACK.S.c.1.%d.%d.1700000000000000000.%d" % (sequence, number, pending)
    return b"MSG a %s %s 1\r\nx\r\n" % (sid, reply)


def once(text: bytes) -> Pieces:
    """Sends a text, in which `SID` stands for the number of the subscription."""
    return lambda inbox, sid: iter([text.replace(b"SID", sid)])


def endless(start: bytes, piece: bytes) -> Pieces:
    """Sends a start, and then a piece again and again."""
    return lambda inbox, sid: itertools.chain(
        [start.replace(b"SID", sid)], itertools.repeat(piece.replace(b"SID", sid))
    )
