"""Backups made and restored by a real server, as `nats stream backup` and `restore` do it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
from nats import connect

from jobs.jetstream.connection import connection
from jobs.jetstream.reader import RangeReader
from jobs.jetstream.stream import JetStreamSettings, StreamState, stream_state
from jobs.settings.connection import NatsSettings


def back_up(stream: Any, folder: Path, name: str = "stream.arc.s2") -> Path:
    """Backs a stream up into a new folder; source: nats-server `processStreamSnapshot`."""

    async def work() -> None:
        async with await connect(stream.server.url) as client:
            inbox = client.new_inbox()
            chunks = await client.subscribe(inbox)
            request = {"deliver_subject": inbox, "chunk_size": 64 * 1024, "jsck": True}
            subject = f"$JS.API.STREAM.SNAPSHOT.{stream.name}"
            answer = await client.request(subject, json.dumps(request).encode())
            described = json.loads(answer.data)
            assert "error" not in described, described
            with (folder / name).open("wb") as file:
                while (chunk := await chunks.next_msg(timeout=600)).data:
                    file.write(chunk.data)
                    if chunk.reply:  # the server waits for it before it sends more
                        await chunk.respond(b"")
        info = {"config": described["config"], "state": described["state"]}
        (folder / "backup.json").write_text(json.dumps(info))

    folder.mkdir()
    asyncio.run(work())
    return folder


def restore(url: str, folder: Path, **config: Any) -> StreamState:
    """Restores a backup, perhaps with another configuration; gives what the server then says.

    Raises:
        AssertionError: the server refuses it; the text is the server's.
    """

    async def work() -> str:
        described = json.loads((folder / "backup.json").read_text())
        described["config"] |= config
        name: str = described["config"]["name"]
        async with await connect(url) as client:

            async def ask(subject: str, data: bytes) -> Any:
                answer = await client.request(subject, data, timeout=600)
                found = json.loads(answer.data) if answer.data else {}
                assert "error" not in found, found["error"]["description"]
                return found

            answer = await ask(f"$JS.API.STREAM.RESTORE.{name}", json.dumps(described).encode())
            with (folder / "stream.arc.s2").open("rb") as file:
                while chunk := file.read(512 * 1024):
                    await ask(answer["deliver_subject"], chunk)
            await ask(answer["deliver_subject"], b"")
        return name

    return state_of_stream(url, asyncio.run(work()))


def state_of_stream(url: str, name: str) -> StreamState:
    """What the server says about a stream."""

    async def work() -> StreamState:
        async with connection(NatsSettings(servers=url)) as client:
            return await stream_state(client, name)

    return asyncio.run(work())


def messages_of(url: str, state: StreamState) -> list[dict[str, Any]]:
    """All messages of a stream, as rows of the table `messages`; texts are bytes."""
    if not state.messages:
        return []
    reader = RangeReader(
        NatsSettings(servers=url), JetStreamSettings(stream=str(state.config["name"])), state
    )
    rows = []
    for batch in reader((state.first, state.last)):
        names = ("seq", "ts_ns", "subject", "headers", "headers_raw", "data")
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        columns["subject"] = columns["subject"].view(pa.binary())
        kind = pa.list_(pa.struct([("name", pa.binary()), ("value", pa.binary())]))
        columns["headers"] = columns["headers"].cast(kind)
        rows += pa.RecordBatch.from_pydict({n: columns[n] for n in names}).to_pylist()
    return rows
