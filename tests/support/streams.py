"""Streams for the tests of the archive, filled byte by byte where a client would tidy up."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
from nats import connect

from jobs.jetstream.connection import connection
from jobs.jetstream.process import NatsServer
from jobs.jetstream.reader import read_range
from jobs.jetstream.stream import JetStreamSettings, stream_state
from jobs.settings.connection import NatsSettings
from nats_transform.mappings.subject import decode
from tests.conformance.client import Client

Raw = tuple[bytes, bytes, bytes]  # subject, header block (perhaps empty), payload


@dataclass
class Stream:
    """A stream of its own on the module's server."""

    server: NatsServer
    name: str

    def publish(self, messages: Iterable[Raw]) -> None:
        """Publishes raw messages; subjects get the stream's name in front. All are stored."""
        left = iter(messages)
        with Client(self.server.url) as client:
            acks = client.subscribe("acks")
            while some := list(islice(left, 100)):
                for subject, block, payload in some:
                    client.publish(f"{self.name}.{decode(subject)}", payload, "acks", block=block)
                for answer in client.wait_for(len(some), acks):
                    assert "error" not in json.loads(answer.body), answer

    def count(self, number: int, size: int = 10) -> None:
        """Publishes so many plain messages."""
        self.publish((b"n.%d" % (n % 7), b"", b"%d " % n + b"x" * size) for n in range(number))

    def run(self, work: Callable[[Any], Awaitable[Any]]) -> Any:
        """The result of some work with a nats-py JetStream context."""

        async def connected() -> Any:
            async with await connect(self.server.url, connect_timeout=600) as client:
                return await work(client.jetstream(timeout=600))

        return asyncio.run(connected())

    def delete(self, *sequences: int) -> None:
        """Deletes messages."""

        async def work(js: Any) -> None:
            for sequence in sequences:
                await js.delete_msg(self.name, sequence)

        self.run(work)

    def update(self, **config: Any) -> None:
        """Changes some of its configuration."""
        changed = self.info().config.evolve(**config)
        self.run(lambda js: js.update_stream(config=changed))

    def remove(self) -> None:
        """Deletes the stream."""
        self.run(lambda js: js.delete_stream(self.name))

    def create_again(self) -> None:
        """Deletes the stream, and makes an empty one of the same name."""
        self.remove()
        self.run(lambda js: js.add_stream(name=self.name, subjects=[f"{self.name}.>"]))

    def info(self) -> Any:
        """What the server says about the stream."""
        return self.run(lambda js: js.stream_info(self.name))


def new_stream(default: NatsServer, server: NatsServer | None = None, **config: Any) -> Stream:
    """A new stream, on the module's server unless another is given."""
    stream = Stream(server or default, f"S{secrets.token_hex(4)}")
    if "mirror" not in config:
        config.setdefault("subjects", [f"{stream.name}.>"])
    stream.run(lambda js: js.add_stream(name=stream.name, **config))
    return stream


def settings_of_ingest(folder: Path, server: NatsServer, *streams: str, **settings: Any) -> None:
    """`ingest.json` for `python -m jobs` in a folder: these streams, into a warehouse in it."""
    given = {
        "stream": ",".join(streams),
        "server": {"servers": server.url},
        "warehouse": {"dir": str(folder / "warehouse")},
    }
    (folder / "ingest.json").write_text(json.dumps(given | settings))


async def batches_of(
    nats: NatsSettings, stream: str, first: int = 1, last: int | None = None, **settings: Any
) -> AsyncIterator[pa.RecordBatch]:
    """A stream's messages, up to the last one or the one given, as the reader gives them.

    Args:
        nats: how to reach the server.
        stream: its name.
        first: the first sequence that is asked for.
        last: the last one.
        settings: more of `JetStreamSettings`.
    """
    wanted = JetStreamSettings(stream=stream, **settings)
    async with connection(nats) as client:
        state = await stream_state(client, stream)
    async for batch in read_range(nats, wanted, first, state.last if last is None else last, state):
        yield batch


def column_of(
    nats: NatsSettings, stream: str, column: str, last: int | None = None, **settings: Any
) -> list[Any]:
    """A column of these messages, of which `column` is the name in the table `messages`."""

    async def read() -> list[Any]:
        batches = batches_of(nats, stream, last=last, **settings)
        return [value async for batch in batches for value in batch.column(column).to_pylist()]

    return asyncio.run(read())
