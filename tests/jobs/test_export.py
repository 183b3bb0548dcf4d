"""Streams that move with their history: backed up, mapped, exported, restored by a real server."""

from __future__ import annotations

import json
import secrets
import tempfile
import time
from collections.abc import Iterable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.export import ExportResult, export
from jobs.jetstream.headers import format_headers
from jobs.jetstream.process import NatsServer
from jobs.jetstream.process import nats_server as run_nats_server
from jobs.jetstream.stream import StreamState
from jobs.settings.export import ExportSettings
from jobs.settings.warehouse import Warehouse
from nats_transform import AccountMappings, Fate
from nats_transform.backup.archive import read_head
from nats_transform.backup.writer import ArchiveWriter
from nats_transform.config import load
from nats_transform.mappings.subject import decode, encode
from tests.support.jobs import archived, transformed
from tests.support.stream_backups import back_up, messages_of, restore, state_of_stream
from tests.support.streams import Raw, Stream, new_stream

pytestmark = pytest.mark.server

BLOCK = b"NATS/1.0\r\n"
ODD = [
    (b"n.1", b"", b""),
    (b"n.\xff\xfe", BLOCK + b"b:1\r\nA: 2\r\nA: 3\r\n\r\n", b"\x00\xff"),
    ("n.ü.日本".encode(), BLOCK + b"A: \xc3\xa9\r\n\r\n", b"unicode"),
    (b"n.ttl", BLOCK + b"Nats-TTL: 1h\r\n\r\n", b"lives an hour"),
    (b"n.short", BLOCK + b"Nats-TTL: 1s\r\n\r\n", b"lives a second"),
    (b"large.x", b"", bytes(range(256)) * 4096),
    (b"other", BLOCK + b"KV-Operation: DEL\r\n\r\n", b""),
    *((b"lost", b"", b"%d" % n) for n in range(20)),
    *((b"n.%d" % (n % 5), BLOCK + b"N: %d\r\n\r\n" % n, b"x" * n) for n in range(200)),
    (b"tail", b"", b"deleted"),
]
DELETED = (1, 2, 40, 41, len(ODD))


@pytest.fixture(scope="module")
def other_server() -> Iterator[NatsServer]:
    """Where backups are restored."""
    with run_nats_server() as server:
        yield server


def many(count: int) -> Iterator[Raw]:
    """So many messages: a hundred of 1 MB, some without a payload, headers on every third.

    The odd ones are among them, but for the one that is soon gone: each reader would see another
    stream.
    """
    yield from (message for message in ODD if message[0] != b"n.short")
    for number in range(count):
        block = BLOCK + b"N: %d\r\n\r\n" % number if number % 3 == 0 else b""
        large = number % (max(count, 100) // 100) == 7
        yield b"n.%d" % (number % 999), block, b"x" * (1_000_000 if large else number % 40)


class Moving:
    """A stream with odd messages that was backed up, ingested and transformed."""

    def __init__(self, server: NatsServer, folder: Path, messages: Iterable[Raw] = ODD) -> None:
        self.stream = new_stream(server, allow_msg_ttl=True, allow_direct=True)
        name = self.name = self.stream.name
        self.stream.publish(messages)
        self.stream.delete(*DELETED)
        filters = {
            "all": None, "large": f"{name}.large.>", "numbers": f"{name}.n.>", "one": f"{name}.n.1",
        }  # fmt: skip
        self.stream.run(lambda js: self._consume(js, filters))
        self.folder = folder
        self.backup = back_up(self.stream, folder / "backup")
        self.warehouse = Warehouse(dir=folder / "warehouse")
        self.mapping = folder / "mapping.json"
        self.mapping.write_text(
            json.dumps(
                {
                    f"{name}.n.>": [{"subject": f"{name}-v2.numbers.>"}],
                    f"{name}.large.*": [{"subject": f"{name}-v2.large.{{{{partition(3,1)}}}}.$1"}],
                    f"{name}.lost": [
                        {"subject": f"{name}.lost", "weight": 10},
                        {"subject": f"{name}-v2.found", "weight": 40},
                    ],
                }
            )
        )
        self.mappings = load(self.mapping)
        archived(self.warehouse, name, backup=self.backup)
        self.transformed = transformed(self.warehouse, self.mapping, stream=name)

    @staticmethod
    async def _consume(js: Any, filters: dict[str, str | None]) -> None:
        stream = (await js.streams_info())[-1].config.name
        for name, subject in filters.items():
            await js.pull_subscribe(subject or f"{stream}.>", durable=name, stream=stream)
        # Two acknowledged, then some that wait for their acknowledgement.
        one = await js.pull_subscribe_bind("one", stream)
        for place, message in enumerate(await one.fetch(5)):
            if place < 2:
                await message.ack_sync()

    def consumer(self, name: str) -> tuple[int, int, int]:
        """What a consumer had delivered and acknowledged when the backup was made, and pending."""
        with (self.backup / "stream.arc.s2").open("rb") as file:
            state = json.loads(read_head(file).consumers[name])["state"]
        delivered, floor = state["delivered"]["stream_seq"], state["ack_floor"]["stream_seq"]
        return delivered, floor, len(state.get("pending", {}))

    def state(self) -> StreamState:
        return state_of_stream(self.stream.server.url, self.name)

    def export(self, to: str, **settings: Any) -> ExportResult:
        given = {"original": self.backup, "mapping": self.mapping} | settings
        wanted = {"stream": self.name, "to_backup": str(self.folder / to)} | given
        return export(ExportSettings(warehouse=self.warehouse, **wanted))


@pytest.fixture(scope="module")
def moving(nats_server: NatsServer, tmp_path_factory: pytest.TempPathFactory) -> Moving:
    return Moving(nats_server, tmp_path_factory.mktemp("moving"))


def expected(moving: Moving, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the library makes of messages: those that are lost are not there."""
    assert isinstance(moving.mappings, AccountMappings)
    found = []
    for row in rows:
        outcome = moving.mappings.replay(
            decode(row["subject"]), stream=moving.name, seq=row["seq"], seed=0
        )
        if outcome.fate in (Fate.MAPPED, Fate.UNMATCHED):
            found.append(row | {"subject": encode(outcome.subject)})
    return found


def progress_of(info: Any) -> tuple[int, int, int]:
    """What a consumer has delivered and acknowledged, and how much is pending."""
    return info.delivered.stream_seq, info.ack_floor.stream_seq, info.num_ack_pending


def consumer(server: NatsServer, stream: str, name: str) -> Any:
    return Stream(server, stream).run(lambda js: js.consumer_info(stream, name))


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_a_stream_with_new_subjects(moving: Moving, other_server: NatsServer, storage: str) -> None:
    """Every subject, sequence, time, header and payload is what the library says, gaps included."""
    original = messages_of(moving.stream.server.url, moving.state())
    result = moving.export(f"to-{storage}")
    lost = moving.transformed.fates["lost"]
    assert lost > 3
    assert result.left_out == {"lost": lost}
    assert (result.first_seq, result.last_seq) == (3, len(ODD))
    assert result.messages == moving.transformed.messages - lost
    time.sleep(max(0.0, original[-1]["ts_ns"] / 1e9 + 2 - time.time()))  # past the short TTL
    name = f"{moving.name}-{storage}"
    described = json.loads((moving.folder / f"to-{storage}" / "backup.json").read_text())
    assert described["config"]["subjects"] == result.subjects
    state = restore(
        other_server.url, moving.folder / f"to-{storage}", name=name, storage=storage,
        subjects=[f"{storage}.{subject}" for subject in result.subjects],
    )  # fmt: skip
    found = messages_of(other_server.url, state)
    wanted = [row for row in expected(moving, original) if not row["subject"].endswith(b".short")]
    assert found == wanted
    assert (state.first, state.last) == (wanted[0]["seq"], len(ODD))
    one = consumer(other_server, name, "one")
    assert one.config.filter_subject == f"{moving.name}-v2.numbers.1"
    assert progress_of(one) == moving.consumer("one")
    later = [r for r in wanted if r["subject"].endswith(b".numbers.1")]
    assert one.num_pending == sum(r["seq"] > one.delivered.stream_seq for r in later)
    assert result.consumers == ["all", "large", "numbers", "one"]


@pytest.mark.slow
def test_thirty_thousand_messages(
    nats_server: NatsServer, other_server: NatsServer, tmp_path: Path
) -> None:
    """All of a large stream, and its archive is that of the live stream."""
    moving = Moving(nats_server, tmp_path, many(30_000))
    places = (Warehouse(dir=tmp_path / "live"), moving.warehouse)
    server = {"servers": nats_server.url}
    live, backup = (archived(place, moving.name, server=server) for place in places)
    assert (live.digest, live.messages) == (backup.digest, backup.messages)
    original = messages_of(nats_server.url, moving.state())
    moving.export("all")
    state = restore(other_server.url, tmp_path / "all", name=f"{moving.name}-all")
    kept = expected(moving, original)
    assert messages_of(other_server.url, state) == kept
    assert len(kept) > 30_000


def test_the_way_back(moving: Moving, other_server: NatsServer) -> None:
    """The untransformed export is the backup, message for message and consumer for consumer."""
    original = messages_of(moving.stream.server.url, moving.state())
    result = moving.export("back", messages="archived", mapping=None)
    assert (result.findings, result.left_out, result.mapping_version) == ([], {}, None)
    first = (moving.folder / "backup" / "backup.json").read_text()
    described = json.loads(first)["state"]
    assert (result.messages, result.bytes) == (described["messages"], described["bytes"])
    state = restore(other_server.url, moving.folder / "back")
    found = messages_of(other_server.url, state)
    assert found == [r for r in original if r in found or not r["subject"].endswith(b".short")]
    assert len(found) >= len(original) - 1
    assert (state.first, state.last) == (described["first_seq"], described["last_seq"])
    for name in ("all", "large", "numbers", "one"):
        after = consumer(other_server, moving.name, name)
        before = consumer(moving.stream.server, moving.name, name)
        assert after.config.filter_subject == before.config.filter_subject
        assert progress_of(after) == moving.consumer(name)


_TOKEN = st.binary(min_size=1, max_size=6).map(lambda b: bytes(x | 0x80 for x in b))
_STREAMS = st.lists(
    st.tuples(
        st.integers(1, 40),  # how far its sequence is from the one before
        # A file store with gaps counts a message of the nanosecond 0, but does not deliver it.
        st.integers(-(2**62), 2**62).filter(bool),
        st.lists(_TOKEN | st.just(b"a"), min_size=1, max_size=3).map(b".".join),
        st.just(b"") | st.binary(max_size=20).map(lambda b: BLOCK + b"A: " + b.hex().encode() * 9),
        st.binary(max_size=300),
    ),
    max_size=12,
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_STREAMS, st.integers(0, 50), st.sampled_from(["file", "memory"]))
def test_any_stream_is_restored(
    other_server: NatsServer, messages: list[Any], more: int, storage: str
) -> None:
    """The writer against the server's own reader: messages, gaps, tail and bytes."""
    with tempfile.TemporaryDirectory() as folder:
        steps, times, subjects, headers, data = (
            zip(*messages, strict=True) if messages else [()] * 5
        )
        sequences = list(accumulate(steps))
        headers = [block + b"\r\n\r\n" if block else b"" for block in headers]
        with Path(folder, "stream.arc.s2").open("wb") as file:
            writer = ArchiveWriter(file, {}, storage == "memory")
            columns = [pa.array(column, pa.binary()) for column in (subjects, headers, data)]
            writer.write(pa.array(sequences, pa.int64()), pa.array(times, pa.int64()), *columns)
            written = writer.close(sum(steps) + more)
        config = {"name": f"H{secrets.token_hex(4)}", "subjects": [f"h.{secrets.token_hex(4)}"]}
        described = {"config": config | {"storage": storage}, "state": written}
        Path(folder, "backup.json").write_text(json.dumps(described))
        state = restore(other_server.url, Path(folder))
    assert (state.messages, state.bytes) == (written["messages"], written["bytes"])
    assert (state.first, state.last) == (written["first_seq"], written["last_seq"])
    found = messages_of(other_server.url, state)
    assert [(row["seq"], row["ts_ns"], row["subject"], row["data"]) for row in found] == list(
        zip(sequences, times, subjects, data, strict=True)
    )
    blocks = [row["headers_raw"] or format_headers(map(tuple, map(dict.values, row["headers"])))
              for row in found]  # fmt: skip
    assert blocks == headers


def test_consumers_go_on(moving: Moving, other_server: NatsServer) -> None:
    """What was not acknowledged comes again, then what was not delivered; once each."""
    moving.export("on")
    name = f"{moving.name}-on"
    restore(other_server.url, moving.folder / "on", name=name, subjects=[f"on.{moving.name}.>"])

    async def rest(js: Any) -> list[int]:
        # Those waiting for an acknowledgement come again when it is overdue.
        await js.add_consumer(name, durable_name="one", ack_policy="explicit", ack_wait=0.2,
                              filter_subject=f"{moving.name}-v2.numbers.1")  # fmt: skip
        one = await js.pull_subscribe_bind("one", name)
        found: list[int] = []
        deadline = time.monotonic() + 20
        while len(set(found)) < 38 and time.monotonic() < deadline:
            for message in await one.fetch(10, timeout=5):
                await message.ack_sync()
                found.append(message.metadata.sequence.stream)
        return found

    found = Stream(other_server, name).run(rest)
    wanted = [
        row["seq"]
        for row in messages_of(moving.stream.server.url, moving.state())
        if row["subject"] == f"{moving.name}.n.1".encode()
    ]
    assert sorted(found) == wanted[2:]
