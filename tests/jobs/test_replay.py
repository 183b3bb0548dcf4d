"""Replay: every message once, in order, as it was; however often it is run or stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from jobs.errors import ArchiveError, JobError
from jobs.jetstream.connection import NatsSettings, connection
from jobs.jetstream.headers import parse_headers
from jobs.jetstream.reader import JetStreamSettings, read_range, stream_state
from jobs.replay import ReplayResult, ReplaySettings, iso_time, replay, with_headers
from jobs.warehouse.tables import TRANSFORMED, Warehouse, open_table, publish, stage

pytestmark = pytest.mark.server

BLOCK = b"NATS/1.0\r\n"


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        pytest.param(b"", BLOCK + b"N: 1\r\n\r\n", id="none"),
        pytest.param(
            BLOCK + b"b:1\r\nA:  2\r\nA: 3\r\n\r\n",
            BLOCK + b"N: 1\r\nb:1\r\nA:  2\r\nA: 3\r\n\r\n",
            id="as-they-were",
        ),
        pytest.param(
            BLOCK + b"Nats-Msg-Id: x\r\nnats-expected-stream: S\r\n\r\n",
            BLOCK + b"N: 1\r\nNats-Transform-Original-Nats-Msg-Id: x\r\n"
            b"Nats-Transform-Original-nats-expected-stream: S\r\n\r\n",
            id="of-their-publishing",
        ),
    ],
)
def test_headers(block: bytes, expected: bytes) -> None:
    assert with_headers(block, [(b"N", b"1")]) == expected


def test_time() -> None:
    assert iso_time(1767355200_123456789) == "2026-01-02T12:00:00.123456789Z"


COUNT = 200


@pytest.fixture
def warehouse(spark: SparkSession, tmp_path: Path) -> Callable[[Any], Warehouse]:
    """A warehouse with transformed messages for a target stream."""

    def make(target: Any) -> Warehouse:
        warehouse = Warehouse(dir=tmp_path / "warehouse")
        table = open_table(warehouse, TRANSFORMED, create=True)
        fates = ["mapped", "mapped", "unmatched", "lost", "invalid"]
        noon = datetime(2026, 1, 2, 12, tzinfo=UTC)
        rows = [
            {
                "stream": "OLD", "seq": n, "ts": noon, "ts_ns": 1767355200_000000000 + n,
                "day": date(2026, 1, 2), "subject": f"{target.name}.unmatched", "cluster": None,
                "headers": [("B", str(n)), ("A", "x")], "headers_raw": None, "data": b"\x00%d" % n,
                "mapped_subject": f"{target.name}.m.{n % 3}" if fates[n % 5] == "mapped" else None,
                "fate": fates[n % 5], "reason": None, "mapping_source": None,
                "mapping_destination": None, "draw": None, "mapping_version": "v1",
            }
            for n in range(1, COUNT + 1)
        ]  # fmt: skip
        frame = spark.createDataFrame(rows, TRANSFORMED.spark_schema).repartition(3)
        odd = F.when(F.col("seq") == 1, F.lit(b"NATS/1.0\r\nB:1\r\n\r\n"))
        mapped = F.when(F.col("seq") == 1, F.lit(target.name.encode() + b".\xff").cast("string"))
        frame = frame.withColumns(
            {"headers_raw": odd, "mapped_subject": F.coalesce(mapped, "mapped_subject")}
        )
        staged = stage(frame, table, TRANSFORMED)
        publish(table, staged, "OLD", replace=True, properties={})
        return warehouse

    return make


SENT = [n for n in range(1, COUNT + 1) if n % 5 in (0, 1, 2)]


def stored(nats: NatsSettings, stream: str) -> list[tuple[bytes, dict[bytes, bytes], bytes]]:
    """Subject, headers and payload of each message of a stream, in order."""

    async def read() -> list[Any]:
        async with connection(nats) as client:
            state = await stream_state(client, nats, stream)
        found = []
        settings = JetStreamSettings(stream=stream)
        async for batch in read_range(nats, settings, 1, max(state.last, 0), state):
            subjects = batch.column("subject").view("binary").to_pylist()
            raw = batch.column("headers_raw").to_pylist()
            headers = batch.column("headers").to_pylist()
            data = batch.column("data").to_pylist()
            for subject, block, pairs, payload in zip(subjects, raw, headers, data, strict=True):
                plain = {p["name"].encode(): p["value"].encode() for p in pairs}
                found.append((subject, dict(parse_headers(block)) if block else plain, payload))
        return found

    return asyncio.run(read())


def run(spark: SparkSession, warehouse: Warehouse, target: Any, **given: Any) -> ReplayResult:
    server = NatsSettings(servers=target.server.url)
    settings = {"stream": "OLD", "to": target.name, "server": server, "warehouse": warehouse}
    return replay(spark, ReplaySettings(**settings | given))


@pytest.mark.spark
def test_twice_stores_once(
    spark: SparkSession, warehouse: Any, make_stream: Any, nats: NatsSettings
) -> None:
    # So short a window that the server has forgotten every id when the second run starts.
    target = make_stream(duplicate_window=0.1)
    tables = warehouse(target)
    planned = run(spark, tables, target, dry_run=True)
    assert (planned.sent, planned.dry_run) == (len(SENT), True)
    assert stored(nats, target.name) == []

    first = run(spark, tables, target, window=7)
    assert (first.sent, first.already, first.duplicates) == (len(SENT), 0, 0)
    assert first.not_sent == {"invalid": COUNT // 5, "lost": COUNT // 5}
    messages = stored(nats, target.name)
    assert [data for _, _, data in messages] == [b"\x00%d" % n for n in SENT]
    subject, headers, _ = messages[0]
    assert subject == target.name.encode() + b".\xff"
    assert headers == {
        b"Nats-Msg-Id": b"v1:OLD:1",
        b"Nats-Transform-Time": b"2026-01-02T12:00:00.000000001Z",
        b"B": b"1",
    }
    assert messages[1][0] == f"{target.name}.unmatched".encode()
    assert list(messages[1][1]) == [b"Nats-Msg-Id", b"Nats-Transform-Time", b"B", b"A"]

    second = run(spark, tables, target)
    assert (second.sent, second.already) == (0, len(SENT))
    assert stored(nats, target.name) == messages


@pytest.mark.spark
def test_a_stopped_replay_is_resumed(
    spark: SparkSession, warehouse: Any, make_stream: Any, nats: NatsSettings
) -> None:
    target = make_stream(max_msgs=50, discard="new")
    tables = warehouse(target)
    with pytest.raises(JobError, match=r"maximum messages exceeded; run again to resume") as caught:
        run(spark, tables, target)
    assert "\n" not in str(caught.value)
    target.run(lambda js: js.update_stream(name=target.name, subjects=[f"{target.name}.>"]))
    result = run(spark, tables, target)
    assert (result.sent, result.already) == (len(SENT) - 50, 50)
    assert [data for _, _, data in stored(nats, target.name)] == [b"\x00%d" % n for n in SENT]


@pytest.mark.spark
def test_a_rate_is_kept(spark: SparkSession, warehouse: Any, stream: Any) -> None:
    tables = warehouse(stream)
    started = datetime.now(UTC)
    run(spark, tables, stream, rate=100)
    assert (datetime.now(UTC) - started).total_seconds() >= (len(SENT) - 1) / 100


@pytest.mark.spark
def test_what_cannot_be_replayed(
    spark: SparkSession, warehouse: Any, stream: Any, make_stream: Any
) -> None:
    tables = warehouse(stream)
    with pytest.raises(ArchiveError, match="no stream NONE"):
        run(spark, tables, stream, to="NONE")
    with pytest.raises(JobError, match=f"is captured by stream {stream.name}"):
        run(spark, tables, make_stream(), window=1)
    with pytest.raises(JobError, match="no transformed messages of stream OTHER"):
        run(spark, tables, stream, stream="OTHER")
