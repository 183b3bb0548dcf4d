"""Backups that a real server made: restored in private, refused when they are damaged."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nats import connect
from pyspark.sql import SparkSession

from jobs.errors import ArchiveError
from jobs.ingest import IngestSettings, ingest
from jobs.jetstream.connection import connection
from jobs.jetstream.headers import format_headers
from jobs.jetstream.process import nats_server as run_nats_server
from jobs.jetstream.stream import StreamState, stream_state
from jobs.sources.backup import open_backup, restored
from jobs.warehouse.specs import MESSAGES
from jobs.warehouse.tables import Warehouse, open_table, read

pytestmark = pytest.mark.server


def back_up(stream: Any, folder: Path) -> Path:
    """Does what `nats stream backup` does; source: nats-server `processStreamSnapshot`."""

    async def work() -> None:
        client = await connect(stream.server.url)
        try:
            await save(client)
        finally:
            await client.close()

    async def save(client: Any) -> None:
        inbox = client.new_inbox()
        chunks = await client.subscribe(inbox)
        request = {"deliver_subject": inbox, "chunk_size": 64 * 1024, "jsck": True}
        answer = await client.request(
            f"$JS.API.STREAM.SNAPSHOT.{stream.name}", json.dumps(request).encode()
        )
        described = json.loads(answer.data)
        assert "error" not in described, described
        with (folder / "stream.tar.s2").open("wb") as file:
            while True:
                chunk = await chunks.next_msg(timeout=600)
                if not chunk.data:
                    break
                file.write(chunk.data)
                if chunk.reply:  # the server waits for it before it sends more
                    await chunk.respond(b"")
        info = {"config": described["config"], "state": described["state"]}
        (folder / "backup.json").write_text(json.dumps(info))

    folder.mkdir()
    asyncio.run(work())
    return folder


@pytest.fixture
def backup(stream: Any, tmp_path: Path) -> Path:
    stream.count(500, 200)
    stream.delete(3, 4, 500)
    return back_up(stream, tmp_path / "backup")


@pytest.mark.spark
def test_a_backup_and_its_stream_are_the_same(
    spark: SparkSession, make_stream: Callable[..., Any], tmp_path: Path
) -> None:
    """Both archives are equal, and the stream goes on where its backup ended."""
    stream = make_stream()
    odd = [
        (b"a.\xff", b"NATS/1.0\r\nb:1\r\nA: 2\r\nA: 3\r\n\r\n", b"\x00\xff"),
        (b"empty", b"", b""),
        (b"marker", b"NATS/1.0\r\nKV-Operation: DEL\r\n\r\n", b""),
    ]
    stream.publish(odd)
    stream.count(300)
    stream.delete(10, 11)
    folder = back_up(stream, tmp_path / "backup")
    settings = {"stream": stream.name, "warehouse": Warehouse(dir=tmp_path / "a")}
    from_backup = ingest(spark, IngestSettings(backup=folder, **settings))
    live = {"server": {"servers": stream.server.url}}
    other = settings | {"warehouse": Warehouse(dir=tmp_path / "b")}
    from_stream = ingest(spark, IngestSettings.model_validate(other | live))
    assert from_backup.digest == from_stream.digest
    assert (from_backup.messages, from_backup.gaps) == (301, 2)

    table = open_table(Warehouse(dir=tmp_path / "a"), MESSAGES)
    row = read(spark, table, MESSAGES).where("seq = 1").collect()[0]
    assert (
        row.headers_raw == odd[0][1] != format_headers([(b"b", b"1"), (b"A", b"2"), (b"A", b"3")])
    )

    stream.count(10)
    followed = ingest(spark, IngestSettings.model_validate(settings | live))
    assert (followed.messages, followed.added) == (311, 10)


STORES = [
    pytest.param("", {}, id="plain"),
    pytest.param("", {"compression": "s2"}, id="compressed"),
    pytest.param("", {"max_age": 0.5}, id="messages-too-old-since"),
    pytest.param("", {"max_msgs": 100, "discard": "old"}, id="limited"),
    pytest.param("", {"retention": "workqueue"}, id="work-queue"),
    pytest.param("jetstream { key: secret, cipher: aes }", {}, id="encrypted"),
]


@pytest.mark.parametrize(("server_config", "config"), STORES)
def test_every_kind_of_store_is_restored_whole(
    make_stream: Callable[..., Any], tmp_path: Path, server_config: str, config: dict[str, Any]
) -> None:
    with run_nats_server(server_config) as server:
        stream = make_stream(server=server, **config)
        stream.count(400, 500)
        folder = back_up(stream, tmp_path / "backup")
        expected = json.loads((folder / "backup.json").read_text())["state"]
    assert expected["messages"] in (400, 100)
    backup = open_backup(folder)
    with restored(backup) as nats:

        async def state() -> StreamState:
            async with connection(nats) as client:
                return await stream_state(client, nats, backup.stream)

        found = asyncio.run(state())
    assert (found.messages, found.bytes) == (expected["messages"], expected["bytes"])
    assert (found.first, found.last) == (expected["first_seq"], expected["last_seq"])


def test_messages_whose_time_to_live_is_over(
    make_stream: Callable[..., Any], tmp_path: Path
) -> None:
    stream = make_stream(allow_msg_ttl=True)
    stream.publish([(b"t", b"NATS/1.0\r\nNats-TTL: 1s\r\n\r\n", b"x")] * 10)
    stream.count(90)
    folder = back_up(stream, tmp_path / "backup")
    assert json.loads((folder / "backup.json").read_text())["state"]["messages"] == 100
    time.sleep(1.5)
    with restored(open_backup(folder)) as nats:
        assert nats.servers


def test_blocks_that_unpack_to_far_more_than_they_say(
    make_stream: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = make_stream(compression="s2")
    stream.publish((b"z", b"", bytes(900_000)) for _ in range(60))
    folder = back_up(stream, tmp_path / "backup")
    assert (folder / "stream.tar.s2").stat().st_size < 10 * 2**20
    described = json.loads((folder / "backup.json").read_text())
    described["state"]["bytes"] = 1000
    (folder / "backup.json").write_text(json.dumps(described))
    monkeypatch.setattr("jobs.sources.backup._SPARE_BYTES", 2**20)
    with pytest.raises(ArchiveError, match="is damaged"), restored(open_backup(folder)):
        pass


def test_a_backup_for_which_there_is_no_room(backup: Path) -> None:
    described = json.loads((backup / "backup.json").read_text())
    described["state"]["bytes"] = 2**60
    (backup / "backup.json").write_text(json.dumps(described))
    with pytest.raises(ArchiveError, match="point TMPDIR at"), restored(open_backup(backup)):
        pass


def spoil(folder: Path, how: str) -> None:
    blocks, info = folder / "stream.tar.s2", folder / "backup.json"
    data = bytearray(blocks.read_bytes())
    match how:
        case "truncated":
            blocks.write_bytes(data[: len(data) * 2 // 3])
        case "flipped":
            data[len(data) // 2] ^= 0x10
            blocks.write_bytes(data)
        case "flipped-at-the-end":
            data[-40] ^= 0x01
            blocks.write_bytes(data)
        case "empty":
            blocks.write_bytes(b"")
        case "random":
            blocks.write_bytes(os.urandom(len(data)))
        case "no-blocks":
            blocks.unlink()
        case "not-json":
            info.write_text("{")
        case "nested":
            info.write_text("[" * 200_000 + "]" * 200_000)
        case "no-state":
            info.write_text(json.dumps({"config": {"name": "S"}}))
        case "other-state":
            described = json.loads(info.read_text())
            described["state"]["messages"] += 1
            info.write_text(json.dumps(described))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("truncated", "cannot be restored"),
        ("flipped", "cannot be restored"),
        ("flipped-at-the-end", "cannot be restored"),
        ("empty", "cannot be restored"),
        ("random", "cannot be restored"),
        ("no-blocks", r"is no stream backup: it has no stream\.tar\.s2"),
        ("not-json", r"backup\.json cannot be read"),
        ("nested", r"backup\.json cannot be read"),
        ("no-state", r"backup\.json cannot be read"),
        ("other-state", "is damaged: .* says messages 498, .* has 497"),
    ],
)
def test_damaged_backups(backup: Path, how: str, message: str) -> None:
    spoil(backup, how)
    with pytest.raises(ArchiveError, match=message) as caught, restored(open_backup(backup)):
        pass
    assert "\n" not in str(caught.value)
