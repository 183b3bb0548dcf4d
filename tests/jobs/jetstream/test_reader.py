"""Reading a stream of a real server: nothing is lost, nothing is disturbed."""

from __future__ import annotations

import asyncio
import itertools
import json
import secrets
import signal
import threading
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from nats import errors as nats_errors
from nats.js import api
from nats.js.api import ConsumerConfig
from pydantic import ValidationError

from jobs.errors import ArchiveError
from jobs.jetstream import connection as connections
from jobs.jetstream.answers import Streams
from jobs.jetstream.connection import connection
from jobs.jetstream.headers import format_headers
from jobs.jetstream.process import NatsServer
from jobs.jetstream.process import nats_server as run_nats_server
from jobs.jetstream.stream import JetStreamSettings, StreamState, split
from jobs.settings.connection import NatsSettings
from jobs.sources.source import StreamSource
from jobs.warehouse.rows import SCHEMA
from nats_transform.kernel.coverage import Coverage
from tests.support.archive import BYTES_OF
from tests.support.awaiting import awaited
from tests.support.network import network
from tests.support.refused import refused
from tests.support.restarting import restart
from tests.support.streams import Stream, batches_of, column_of

pytestmark = pytest.mark.server

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
H = b"NATS/1.0\r\n"
# Without a status in the first line (`NATS/1.0 404 ...`): the server itself drops it on storing.
ODD = [
    (b"plain", b"", b"data"),
    (b"empty", b"", b""),
    (b"empty.h", H + b"A: b\r\n\r\n", b""),
    (b"binary", b"", bytes(range(256))),
    (b"crlf", b"", b"\r\nMSG x 1 2\r\n+OK\r\n"),  # like the protocol
    (b"order", H + b"b: 1\r\na: 2\r\nb: 3\r\nB: 4\r\n\r\n", b"x"),
    (b"spacing", H + b"A:1\r\nB:   2\r\nC : 3\r\nD: 4 \r\n\r\n", b"x"),
    (b"bytes", H + b"\xff: \xfe\r\n\r\n", b"\x00"),
    (b"caf\xe9.\xff", b"", b"x"),
    ("grüße.日本".encode(), b"", b"x"),
    (b"kv", H + b"KV-Operation: DEL\r\n\r\n", b""),
    (b"purge", H + b"KV-Operation: PURGE\r\nNats-Rollup: sub\r\n\r\n", b""),
]
TEXT_AS_BYTES = pa.schema(
    [field.with_type(BYTES_OF.get(field.name, field.type)) for field in SCHEMA]
)


def read(server: NatsServer, stream: str, **options: Any) -> list[list[Any]]:
    """The messages of each range, with text as its bytes."""
    nats = NatsSettings(servers=options.pop("servers", server.url))
    settings = JetStreamSettings.model_validate({"stream": stream} | options)
    source = StreamSource(nats, settings, 10**9)
    found = []
    for span in source.plan(Coverage.of([(10**9, 10**9)])):
        reader, ranges = source.tasks(span, Coverage())
        assert source.count(span) == span.messages
        for one in ranges:
            rows = [row for batch in reader(one) for row in batch.cast(TEXT_AS_BYTES).to_pylist()]
            found.append([SimpleNamespace(**row) for row in rows])
    return found


def read_rows(server: NatsServer, stream: str, **options: Any) -> list[Any]:
    return [row for rows in read(server, stream, **options) for row in rows]


def block_of(row: Any) -> bytes:
    if row.headers_raw is not None:
        return bytes(row.headers_raw)
    return format_headers((pair["name"], pair["value"]) for pair in row.headers)


def test_odd_messages_come_back_byte_for_byte(make_stream: Any) -> None:
    stream = make_stream(allow_rollup_hdrs=True)
    stream.publish(ODD)
    rows = read_rows(stream.server, stream.name, batch=5)
    prefix = stream.name.encode() + b"."
    read = [(bytes(r.subject).removeprefix(prefix), block_of(r), bytes(r.data)) for r in rows]
    assert read == ODD
    assert [r.seq for r in rows] == list(range(1, len(ODD) + 1))
    assert {(r.stream, r.cluster) for r in rows} == {(stream.name, None)}


def test_times_are_exact(stream: Any) -> None:
    stream.count(20)
    rows = read_rows(stream.server, stream.name)
    for row in rows:
        message = stream.run(lambda js, seq=row.seq: js.get_msg(stream.name, seq))
        micros = (row.ts.astimezone(UTC) - EPOCH) // timedelta(microseconds=1)
        assert micros == row.ts_ns // 1000
        assert abs(row.ts_ns / 1e9 - message.time.timestamp()) < 1e-3
        assert row.day == datetime.fromtimestamp(row.ts_ns / 1e9, UTC).date()
    assert [r.ts_ns for r in rows] == sorted(r.ts_ns for r in rows)


LARGEST = 8 * 1024 * 1024


def test_messages_of_eight_mebibytes(make_stream: Any) -> None:
    """Each is larger than a batch may be, and small ones are between them."""
    sizes = [LARGEST, 10, LARGEST - 1, 0, LARGEST]
    with run_nats_server("max_payload: 9MB") as server:
        stream = make_stream(server=server)
        stream.publish((b"large", b"", bytes([n]) * size) for n, size in enumerate(sizes))
        nats = NatsSettings(servers=server.url)
        payloads = column_of(nats, stream.name, "data", batch_bytes=1024 * 1024)
        assert payloads == [bytes([n]) * size for n, size in enumerate(sizes)]


@pytest.mark.timeout(60)
def test_batches_of_exactly_as_many_bytes_as_were_asked_for(
    stream: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nats-server tells the end of such a request by nothing."""
    monkeypatch.setattr("jobs.jetstream.pull.SILENCE_SECONDS", 3600)
    block, data = H + b"A: b\r\n\r\n", bytes(100)
    stream.publish([(b"a", block, data)] * 9)
    reply = f"$JS.ACK.{stream.name}.nats-transform-{'0' * 16}.1.1.1.{10**18}.8"
    size = len(f"{stream.name}.a{reply}") + len(block + data)
    [range_of_all] = read(stream.server, stream.name, batch_bytes=3 * size)
    assert len(range_of_all) == 9


@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_gaps_and_a_purged_head(stream: Any, nats: NatsSettings, batch: int) -> None:
    stream.count(200)
    stream.run(lambda js: js.purge_stream(stream.name, seq=31))
    stream.delete(40, 41, 42, 100, 199, 200)
    expected = [n for n in range(31, 199) if n not in (40, 41, 42, 100)]
    assert column_of(nats, stream.name, "seq", batch=batch) == expected
    assert column_of(nats, stream.name, "seq", 41, batch=batch) == [n for n in expected if n < 40]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({}, range(1, 101), id="all"),
        pytest.param({"since": 11, "until": 20}, range(11, 21), id="sequences"),
        pytest.param({"since": 90}, range(90, 101), id="from"),
        pytest.param({"since": 0, "until": 2}, range(1, 3), id="from-nothing"),
        pytest.param({"since": 101}, [], id="beyond-the-end"),
        pytest.param({"until": 1000}, range(1, 101), id="end-beyond-the-end"),
        pytest.param({"subject": "{stream}.n.3"}, range(4, 101, 7), id="subject-filter"),
        pytest.param({"until": "2001-01-01"}, [], id="before-its-time"),
        pytest.param({"since": "2001-01-01", "readers": 1}, range(1, 101), id="since"),
    ],
)
def test_ranges(shared_stream: Any, options: dict[str, Any], expected: Any) -> None:
    name = shared_stream.name
    options = {k: str(v).format(stream=name) for k, v in options.items()}
    rows = read_rows(shared_stream.server, name, **options)
    assert [row.seq for row in rows] == list(expected)


def test_a_range_of_time(shared_stream: Any) -> None:
    rows = read_rows(shared_stream.server, shared_stream.name)
    # Options are in microseconds: a bound between messages takes those at or after it.
    since = datetime.fromtimestamp(rows[30].ts_ns // 1000 / 1e6, UTC)
    until = datetime.fromtimestamp(rows[60].ts_ns // 1000 / 1e6, UTC) + timedelta(microseconds=1)
    given = {"since": since.isoformat(), "until": until.isoformat()}
    found = read_rows(shared_stream.server, shared_stream.name, **given)
    low, high = (int(m.timestamp() * 1e6) * 1000 for m in (since, until))
    expected = [row.seq for row in rows if low <= row.ts_ns < high]
    assert [row.seq for row in found] == expected
    assert 25 < len(expected) < 40


def test_ranges_are_read_side_by_side(stream: Any) -> None:
    stream.count(60_000, 1)
    ranges = read(stream.server, stream.name, readers=3)
    found = [(rows[0].seq, rows[-1].seq, len(rows)) for rows in ranges]
    assert found == [(1, 20000, 20000), (20001, 40000, 20000), (40001, 60000, 20000)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({}, [None, None, None], id="none"),
        pytest.param({"cluster": "eu"}, ["eu", "eu", "eu"], id="fixed"),
        pytest.param({"cluster_header": "C"}, ["a", None, "b"], id="header"),
    ],
)
def test_cluster(make_stream: Any, options: dict[str, str], expected: list[str | None]) -> None:
    stream = make_stream()
    blocks = [H + b"X: 1\r\nC: a\r\nC: z\r\n\r\n", b"", H + b"c: q\r\nC: b\r\n\r\n"]
    stream.publish((b"x", block, b"") for block in blocks)
    rows = read_rows(stream.server, stream.name, **options)
    assert [row.cluster for row in rows] == expected


def test_streams_that_forbid_deletes_and_mirrors(make_stream: Any, nats: NatsSettings) -> None:
    origin = make_stream(deny_delete=True, deny_purge=True, allow_direct=False)
    origin.count(50)
    mirror = make_stream(mirror=api.StreamSource(name=origin.name))
    while mirror.info().state.messages < 50:  # pytest's timeout ends it
        time.sleep(0.05)
    for name in (origin.name, mirror.name):
        assert column_of(nats, name, "seq") == list(range(1, 51))


def test_nothing_is_left_and_nobody_is_disturbed(stream: Any, nats: NatsSettings) -> None:
    stream.count(100)

    async def half(js: Any) -> Any:
        await js.add_consumer(stream.name, ConsumerConfig(durable_name="d", ack_policy="explicit"))
        subscription = await js.pull_subscribe_bind("d", stream.name)
        for message in await subscription.fetch(50):
            await message.ack_sync()
        return await js.consumer_info(stream.name, "d")

    before = stream.run(half)
    state = stream.info().state
    assert len(column_of(nats, stream.name, "seq")) == 100

    (after,) = stream.run(lambda js: js.consumers_info(stream.name))
    assert after.name == "d"
    for name in ("ack_floor", "delivered", "num_pending", "num_ack_pending"):
        assert getattr(after, name) == getattr(before, name), name
    assert stream.info().state.messages == state.messages


@pytest.mark.timeout(60)
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=lambda s: s.name)
def test_a_server_that_restarts_in_mid_read(
    how: signal.Signals, make_stream: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lost connection is no silence: the read goes on as soon as there is a new one."""
    monkeypatch.setattr("jobs.jetstream.pull.SILENCE_SECONDS", 3600)
    with run_nats_server() as server:
        stream = make_stream(server=server)
        stream.count(3000)
        nats = NatsSettings(servers=server.url, patience=30)

        async def read() -> list[int]:
            found, away = list[int](), None
            async for batch in batches_of(nats, stream.name, batch=100):
                found += batch.column("seq").to_pylist()
                if away is None and len(found) >= 500:
                    away = asyncio.create_task(asyncio.to_thread(restart, server, how, 0.5))
            await away
            return found

        assert asyncio.run(read()) == list(range(1, 3001))


def test_a_message_that_takes_longer_than_silence(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.publish([(b"large", b"", b"x" * 400_000)])
    monkeypatch.setattr("jobs.jetstream.pull.SILENCE_SECONDS", 1.0)
    with network(stream.server.url, lambda _, data: (data, len(data) / 200_000, False)) as slow:
        nats = NatsSettings(servers=slow, patience=1)
        assert column_of(nats, stream.name, "seq") == [1]


@pytest.mark.parametrize(
    "limits",
    [{"max_consumers": 1}, {"consumer_limits": {"inactive_threshold": 1_000_000_000}}],
    ids=["number", "threshold"],
)
def test_ranges_of_a_stream_that_limits_consumers(
    nats_server: NatsServer, nats: NatsSettings, limits: dict[str, Any]
) -> None:
    stream = Stream(nats_server, f"S{secrets.token_hex(4)}")
    config = json.dumps({"name": stream.name, "subjects": [f"{stream.name}.>"]} | limits).encode()
    stream.run(lambda js: js._api_request(f"$JS.API.STREAM.CREATE.{stream.name}", config))
    stream.count(3000)

    async def one(first: int) -> list[int]:
        batches = batches_of(nats, stream.name, first, first + 999, batch=100)
        return [seq async for batch in batches for seq in batch.column("seq").to_pylist()]

    async def read() -> list[int]:
        return [*itertools.chain.from_iterable(await asyncio.gather(*map(one, (1, 1001, 2001))))]

    assert asyncio.run(read()) == [*range(1, 3001)]


@pytest.mark.parametrize("again", [False, True], ids=["deleted", "made-anew"])
def test_a_stream_that_vanishes_in_mid_read(stream: Any, nats: NatsSettings, again: bool) -> None:
    stream.count(1000)

    async def vanish(js: Any) -> None:
        await js.delete_stream(stream.name)
        if again:
            await js.add_stream(name=stream.name, subjects=[f"{stream.name}.>"])

    async def read() -> None:
        gone = False
        async for _ in batches_of(nats, stream.name, batch=10):
            if not gone:
                gone = True
                thread = threading.Thread(target=stream.run, args=(vanish,))
                thread.start()
                thread.join()

    with refused(ArchiveError, "read-recreated" if again else "read-deleted"):
        asyncio.run(read())


@pytest.mark.timeout(60)
def test_a_server_that_stays_away(make_stream: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.jetstream.pull.SILENCE_SECONDS", 3600)
    with run_nats_server() as server:
        stream = make_stream(server=server)
        stream.count(100)
        nats = NatsSettings(servers=server.url, patience=1)

        async def read() -> None:
            async for _ in batches_of(nats, stream.name, batch=10):
                server.stop()

        with refused(ArchiveError, "read-no-answer", patience=1.0):
            asyncio.run(read())


@pytest.mark.parametrize(
    ("options", "code"),
    [
        pytest.param({"stream": "NONE"}, "no-stream", id="no-stream"),
        pytest.param({"stream": "a.b"}, "no-stream-can-have-name", id="no-name"),
        pytest.param({"servers": "nats://127.0.0.1:1"}, "server-not-reached", id="no-server"),
        pytest.param({"since": "9", "until": "3"}, "range-of-sequences-ends-early", id="backwards"),
    ],
)
def test_what_cannot_be_read(shared_stream: Any, options: dict[str, str], code: str) -> None:
    options = {"stream": shared_stream.name} | options
    with refused(ArchiveError, code):
        read(shared_stream.server, **options)


@pytest.mark.parametrize("given", [{"stram": "x"}, {"since": "x"}], ids=["typo", "not-a-number"])
def test_bad_settings(given: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=next(iter(given))):
        JetStreamSettings.model_validate({"stream": "S"} | given)


def test_an_empty_server() -> None:
    with refused(ValidationError, "no-server"):
        NatsSettings.model_validate({"servers": ""})


def test_a_refusal_that_is_lost_on_the_way_is_asked_for_again() -> None:
    calls = itertools.count()

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id": "x", "max_payload": 1048576, "auth_required": true}\r\n')
        await writer.drain()
        if next(calls) < 3:
            writer.transport.abort()  # resets the connection
        else:
            await reader.readline()
            writer.write(b"-ERR 'Authorization Violation'\r\n")
            await writer.drain()
            writer.close()

    async def connect() -> None:
        server = await asyncio.start_server(refuse, "127.0.0.1", 0)
        url = f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server, connection(NatsSettings(servers=url)):
            pass

    with refused(ArchiveError, "needs-credentials"):
        asyncio.run(connect())


def test_a_user_who_may_not_ask_is_told_so() -> None:
    user = "authorization { users: [{user: a, password: b, permissions: {publish: x}}] }"
    with run_nats_server(user) as server:
        given = {"user": "a", "password": "b", "connect_timeout": 0.5}
        nats = NatsSettings.model_validate({"servers": server.url} | given)
        with refused(ArchiveError, "stream-refused", reason="not-allowed"):
            column_of(nats, "S", "seq")


def state(messages: int, size: int, first: int, last: int) -> StreamState:
    return StreamState("", messages, size, first, last, {})


@pytest.mark.parametrize(
    ("first", "last", "of", "readers", "expected"),
    [
        pytest.param(1, 0, state(0, 0, 1, 0), 4, 0, id="empty"),
        pytest.param(1, 100, state(100, 10_000, 1, 100), 4, 1, id="small"),
        pytest.param(1, 100_000, state(100_000, 10**7, 1, 100_000), 4, 4, id="as-many-as-readers"),
        pytest.param(1, 10**6, state(10**6, 10**10, 1, 10**6), 4, 37, id="by-size"),
        pytest.param(1, 10, state(5, 500, 8, 20), 4, 1, id="purged-head"),
    ],
)
def test_split(first: int, last: int, of: StreamState, readers: int, expected: int) -> None:
    ranges = split(first, last, of, readers)
    assert len(ranges) == expected
    covered = [n for a, b in ranges for n in (a, b)]
    assert covered == sorted(covered)
    if ranges:
        assert ranges[0][0] == max(first, of.first)
        assert ranges[-1][1] == last
        assert all(b + 1 == a for (_, b), (a, _) in itertools.pairwise(ranges))


@awaited
async def test_what_was_published_before_a_flush_was_delivered(nats: NatsSettings) -> None:
    async with connection(nats) as client:
        subscription = await client.subscribe("flushed")
        for rounds in range(1, 101):
            for _ in range(500):
                await client.publish("flushed", b"")
            await client.flush()
            assert subscription.pending_msgs == 500 * rounds


def test_a_timeout_after_another_request_was_refused() -> None:
    """The client keeps the last refusal, which may be of a request long ago."""

    class Silent:
        settings = NatsSettings(servers="nats://h")
        is_closed = False
        last_error = nats_errors.Error('nats: permissions violation for publish to "$sys.x"')

        async def request(self, *_: Any, **__: Any) -> Any:
            raise nats_errors.TimeoutError

    with refused(ArchiveError, "server-silent"):
        asyncio.run(connections.api(Silent(), Streams, "STREAM.LIST"))  # type: ignore[arg-type]
