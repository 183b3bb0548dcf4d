"""Messages of a live JetStream stream, as the PySpark data source `jetstream`.

    spark.dataSource.register(JetStreamSource)
    spark.read.format("jetstream").option("servers", "nats://...").option("stream", "ORDERS").load()

One row per message, with the columns of the table `messages`. The wanted sequences are cut into
ranges that executors read side by side, each through an ephemeral pull consumer of its own: kept
in memory, no acknowledgements, gone when the range is read. Nothing on the stream changes and no
other consumer notices.

What makes a range complete: the consumer numbers what it delivers, so a message lost on the way
shows as a jump; after a jump, a lost connection or a restarted server a new consumer starts behind
the last message taken. The range ends when the server says that nothing is left at or below its
end. A stream that is not the same any more (deleted, made anew) fails the read.

Subjects, header names and values need not be UTF-8. Their bytes travel unchecked in Arrow string
columns, and Spark carries them in strings and into Parquet untouched; `cast(subject as binary)`
shows them. pyarrow and Polars refuse to decode such a value when they read the table.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import secrets
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from nats import errors as nats_errors
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructField, StructType

from jobs.errors import ArchiveError, one_line
from jobs.jetstream.connection import ApiError, NatsSettings, RawClient, api, connection, refusal
from jobs.jetstream.headers import ARROW_TYPE, header_columns
from jobs.warehouse.schema import MESSAGE_COLUMNS

STREAM_NOT_FOUND = 10059
_SILENCE_SECONDS = 5.0  # without an answer to a request: ask again through a new consumer
_INACTIVE_SECONDS = 120
# What one range should hold, in bytes as the stream counts them: large enough for good Parquet
# files, small enough that the tasks of a job even out.
_RANGE_BYTES = 256 * 1024 * 1024
_SMALLEST_RANGE = 20_000  # messages; below, another consumer costs more than it brings
_DAY_NS = 86_400 * 1_000_000_000


class JetStreamSettings(BaseModel):
    """What to read of which stream. The data source takes these as options, by these names.

    Attributes:
        stream: its name on the server.
        label: what column `stream` says; the stream's own name by default.
        first, last: sequences, both inclusive; all there is by default.
        since, until: times, until exclusive; ISO 8601, UTC if they name no zone.
        subject: a subject filter.
        cluster: what column `cluster` says.
        cluster_header: a header whose value it says, where the message has it.
            Default: the cluster that the stream lives in, if the server is in one.
        batch: most messages in one request to the server and one Arrow batch.
        batch_bytes: most bytes in one; a larger message still comes, alone.
        readers: how many ranges to read side by side at least.
        headers_only: leave the payloads out; the server adds the header `Nats-Msg-Size`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    stream: str
    label: str | None = None
    first: int | None = Field(default=None, ge=1)
    last: int | None = Field(default=None, ge=0)
    since: datetime | None = None
    until: datetime | None = None
    subject: str | None = None
    cluster: str | None = None
    cluster_header: str | None = None
    batch: int = Field(default=20_000, ge=1)
    batch_bytes: int = Field(default=8 * 1024 * 1024, ge=1)
    readers: int = Field(default=4, ge=1)
    headers_only: bool = False

    def to_options(self) -> dict[str, str]:
        """These settings as the options of the data source."""
        found = self.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
        return {name: str(value) for name, value in found.items()}


@dataclass(frozen=True)
class StreamState:
    """What the server says about a stream.

    Attributes:
        created: when, as the server writes it; tells a stream from a later one of its name.
        messages, bytes, first, last: of what it holds now; `last` below `first` if it is empty.
        cluster: the cluster that it lives in, or None.
        config: its configuration.
    """

    created: str
    messages: int
    bytes: int
    first: int
    last: int
    cluster: str | None
    config: Mapping[str, Any]


async def stream_state(client: RawClient, nats: NatsSettings, stream: str) -> StreamState:
    """The state of a stream.

    Raises:
        ApiError: there is no such stream, or nobody answers.
    """
    try:
        info = await api(client, nats, f"STREAM.INFO.{stream}")
    except ApiError as error:
        if error.code == STREAM_NOT_FOUND:
            raise ApiError(f"no stream {stream} on {nats.where}", error.code) from error
        raise ApiError(f"stream {stream} on {nats.where}: {error}", error.code) from error
    state = info["state"]
    return StreamState(
        info["created"],
        state["messages"],
        state["bytes"],
        state["first_seq"],
        state["last_seq"],
        (info.get("cluster") or {}).get("name"),
        info["config"],
    )


@contextlib.asynccontextmanager
async def _consumer(
    client: RawClient, nats: NatsSettings, stream: str, subject: str | None, **start: Any
) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """An ephemeral consumer: its name, and what the server said when it made it."""
    name = f"nats-transform-{secrets.token_hex(8)}"
    config: dict[str, Any] = {
        "name": name,
        "ack_policy": "none",
        "replay_policy": "instant",
        "mem_storage": True,
        "num_replicas": 1,
        # How long it outlives us if we are killed.
        "inactive_threshold": _INACTIVE_SECONDS * 1_000_000_000,
        **start,
    }
    if subject:
        config["filter_subject"] = subject
    body = {"stream_name": stream, "config": config, "action": "create"}
    info = await api(client, nats, f"CONSUMER.CREATE.{stream}.{name}", body)
    try:
        yield name, info
    finally:
        with contextlib.suppress(ApiError):
            if client.is_connected:
                await api(client, nats, f"CONSUMER.DELETE.{stream}.{name}")


async def count_from(
    client: RawClient, nats: NatsSettings, stream: str, first: int, subject: str | None = None
) -> int:
    """How many messages the stream has now at and after a sequence."""
    start = {"deliver_policy": "by_start_sequence", "opt_start_seq": max(first, 1)}
    try:
        async with _consumer(client, nats, stream, subject, **start) as (_, info):
            return int(info["num_pending"])
    except ApiError as error:
        raise ArchiveError(f"stream {stream} on {nats.where}: {error}") from error


async def message_at(
    client: RawClient, nats: NatsSettings, stream: str, sequence: int
) -> tuple[int, int] | None:
    """Sequence and time (ns) of the first message at or after a sequence, or None."""
    start = {"deliver_policy": "by_start_sequence", "opt_start_seq": max(sequence, 1)}
    return await _first_message(client, nats, stream, start)


async def sequence_at(
    client: RawClient, nats: NatsSettings, stream: str, moment: datetime, state: StreamState
) -> int:
    """The first sequence that was stored at or after a moment; one past the last if none was."""
    when = _utc(moment).isoformat().replace("+00:00", "Z")
    start = {"deliver_policy": "by_start_time", "opt_start_time": when}
    found = await _first_message(client, nats, stream, start)
    return found[0] if found else state.last + 1


async def _first_message(
    client: RawClient, nats: NatsSettings, stream: str, start: Mapping[str, Any]
) -> tuple[int, int] | None:
    try:
        async with _consumer(client, nats, stream, None, **start) as (name, info):
            if not info["num_pending"]:
                return None
            # As bytes: nats-py stops reading at a subject that is not UTF-8.
            async with _pulling(client) as (pull, inbox):
                await _request(client, nats, stream, name, inbox, {"batch": 1, "no_wait": True})
                await _arrive(client, pull, 1)
                if not pull.replies:
                    if pull.status is None:
                        raise ApiError(f"NATS server {nats.where} does not answer")
                    return None  # the message was deleted just now
                delivered = _Delivered.parse(pull.replies)
                return int(delivered.sequence[0]), int(delivered.time[0])
    except ApiError as error:
        raise ArchiveError(f"stream {stream} on {nats.where}: {error}") from error


async def wanted_range(
    client: RawClient, nats: NatsSettings, settings: JetStreamSettings, state: StreamState
) -> tuple[int, int]:
    """The first and last sequence that these settings ask for and the stream reaches.

    Raises:
        ArchiveError: a range in the wrong order, or a work queue, whose messages go to the one
            consumer that acknowledges them: the server lets nobody else read.
    """
    if state.config.get("retention") == "workqueue":
        raise ArchiveError(
            f"stream {settings.stream} on {nats.where} is a work queue, which only its own "
            "consumers may read: ingest a backup of it instead (nats stream backup)"
        )
    first, last = settings.first or 1, settings.last if settings.last is not None else state.last
    if settings.last is not None and first > settings.last:
        raise ArchiveError(f"the range ends before it starts: sequence {first} to {settings.last}")
    since, until = settings.since, settings.until
    if since and until and _utc(since) >= _utc(until):
        raise ArchiveError(f"the range ends before it starts: {since} to {until}")
    if since:
        first = max(first, await sequence_at(client, nats, settings.stream, since, state))
    if until:
        last = min(last, await sequence_at(client, nats, settings.stream, until, state) - 1)
    return first, min(last, state.last)


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def split(first: int, last: int, state: StreamState, readers: int) -> list[tuple[int, int]]:
    """Ranges that together are first..last: enough for the readers, none too large."""
    first = max(first, state.first)
    if first > last or not state.messages:
        return []
    share = (last - first + 1) / max(state.last - state.first + 1, 1)
    messages, size = state.messages * share, state.bytes * share
    count = max(min(readers, int(messages // _SMALLEST_RANGE)), int(size // _RANGE_BYTES), 1)
    edges = [first + (last - first + 1) * n // count for n in range(count + 1)]
    return [(a, b - 1) for a, b in itertools.pairwise(edges) if a < b]


class _Pull:
    """The messages that one request brings, as they come: columns of bytes."""

    def __init__(self, sid: int) -> None:
        self.sid = sid
        self.changed = asyncio.Event()
        self.clear()

    def clear(self) -> None:
        """Forgets what came, for the next request."""
        self.subjects: list[bytes] = []
        self.replies: list[bytes] = []
        self.blocks: list[bytes | None] = []
        self.data: list[bytes] = []
        self.status: bytes | None = None
        self.changed.clear()

    def take(self, buffer: bytes) -> int:
        """How far the buffer was read: whole messages of this subscription, none with a status."""
        sid = b" %d " % self.sid
        find = buffer.find
        add_subject, add_reply = self.subjects.append, self.replies.append
        add_block, add_data = self.blocks.append, self.data.append
        size, at = len(buffer), 0
        while True:
            end_of_line = find(b"\r\n", at)
            if end_of_line < 0:
                break
            words = buffer[at:end_of_line].split(b" ")
            if words[0] == b"MSG" and len(words) == 5:
                start = end_of_line + 2
                end = start + int(words[4])
                if end + 2 > size or words[2] != sid[1:-1]:
                    break
                add_block(None)
                add_data(buffer[start:end])
            elif words[0] == b"HMSG" and len(words) == 6:
                start = end_of_line + 2
                end = start + int(words[5])
                if end + 2 > size or words[2] != sid[1:-1]:
                    break
                split_at = start + int(words[4])
                add_block(buffer[start:split_at])
                add_data(buffer[split_at:end])
            else:
                break
            add_subject(words[1])
            add_reply(words[3])
            at = end + 2
        if at:
            self.changed.set()
        return at

    def add(self, subject: bytes, reply: bytes, block: bytes | None, data: bytes) -> None:
        """Takes one message, or the status that ends the request: only that has no reply."""
        if reply:
            self.subjects.append(subject)
            self.replies.append(reply)
            self.blocks.append(block)
            self.data.append(data)
        elif not (block or b"").startswith(b"NATS/1.0 100"):  # a heartbeat
            self.status = block or b""
        self.changed.set()


@dataclass(frozen=True)
class _Delivered:
    """What the reply subjects say about messages, as arrays: see `JSAck` in nats-server."""

    sequence: np.ndarray[Any, np.dtype[np.int64]]
    consumer_sequence: np.ndarray[Any, np.dtype[np.int64]]
    time: np.ndarray[Any, np.dtype[np.int64]]
    pending: np.ndarray[Any, np.dtype[np.int64]]

    @classmethod
    def parse(cls, replies: Sequence[bytes]) -> _Delivered:
        """From `$JS.ACK.[domain.account.]stream.consumer.delivered.sseq.cseq.time.pending[.x]`."""
        tokens = pc.split_pattern(pa.array(replies, pa.binary()).view(pa.string()), ".")
        width = len(tokens[0])
        flat = tokens.values
        base = 5 if width == 9 else 7
        columns = [
            flat.take(pa.array(np.arange(base + n, len(flat), width))).cast(pa.int64()).to_numpy()
            for n in range(4)
        ]
        return cls(*columns)


class _Stale(Exception):
    """The consumer or the connection is gone, or a message was lost on the way."""


async def read_range(
    nats: NatsSettings, settings: JetStreamSettings, first: int, last: int, state: StreamState
) -> AsyncIterator[pa.RecordBatch]:
    """The messages with sequences first..last, in order, in batches.

    Raises:
        ArchiveError: the stream is gone or another one, or the server stays away.
    """
    columns = _Columns(settings, state)
    following = first
    deadline = time.monotonic() + nats.patience
    async with connection(nats) as client:
        while following <= last:
            try:
                async for pull, delivered, count in _pulls(client, nats, settings, following, last):
                    following = int(delivered.sequence[count - 1]) + 1
                    deadline = time.monotonic() + nats.patience
                    yield columns.batch(pull, delivered, count)
                return
            except _Stale as reason:
                if client.is_closed:  # by the server, and for good: credentials that expired
                    raise ArchiveError(refusal(nats, client.last_error or reason)) from reason
                if time.monotonic() > deadline:
                    raise ArchiveError(
                        f"stream {settings.stream} on {nats.where}: no message after sequence "
                        f"{following - 1} for {nats.patience:.0f} s ({one_line(reason)})"
                    ) from reason
                await asyncio.sleep(0.2)
                await _check_same_stream(client, nats, settings.stream, state)


async def _check_same_stream(
    client: RawClient, nats: NatsSettings, stream: str, state: StreamState
) -> None:
    try:
        now = await api(client, nats, f"STREAM.INFO.{stream}")
    except ApiError as error:
        if error.code == STREAM_NOT_FOUND:
            raise ArchiveError(
                f"stream {stream} on {nats.where} vanished while it was read"
            ) from error
        return  # the server is not back yet
    if now["created"] != state.created:
        raise ArchiveError(f"stream {stream} on {nats.where} was made anew while it was read")


@contextlib.asynccontextmanager
async def _pulling(client: RawClient) -> AsyncIterator[tuple[_Pull, str]]:
    """A subscription whose messages come as bytes, and its inbox."""
    inbox = client.new_inbox()
    subscription = await client.subscribe(inbox)
    pull = _Pull(subscription._id)
    client.sink = pull
    try:
        yield pull, inbox
    finally:
        client.sink = None
        with contextlib.suppress(Exception):
            await subscription.unsubscribe()


async def _request(
    client: RawClient,
    nats: NatsSettings,
    stream: str,
    consumer: str,
    inbox: str,
    wanted: Mapping[str, Any],
) -> None:
    subject = f"{nats.api_prefix}.CONSUMER.MSG.NEXT.{stream}.{consumer}"
    await client.publish(subject, json.dumps(wanted).encode(), reply=inbox)


async def _arrive(client: RawClient, pull: _Pull, wanted: int) -> None:
    """Waits until a request is done: all wanted messages, or a status; or nothing comes."""
    while len(pull.replies) < wanted and pull.status is None:
        before = len(pull.replies)
        pull.changed.clear()
        try:
            await asyncio.wait_for(pull.changed.wait(), _SILENCE_SECONDS)
        except TimeoutError:
            if len(pull.replies) == before:
                return
        if not client.is_connected:
            return


async def _pulls(
    client: RawClient, nats: NatsSettings, settings: JetStreamSettings, first: int, last: int
) -> AsyncIterator[tuple[_Pull, _Delivered, int]]:
    """What each request to one consumer brought, and how many messages of it are in the range."""
    stream, batch_bytes = settings.stream, settings.batch_bytes
    start = {"deliver_policy": "by_start_sequence", "opt_start_seq": first}
    if settings.headers_only:
        start["headers_only"] = True
    consumer_sequence = 0
    try:
        async with (
            _pulling(client) as (pull, inbox),
            _consumer(client, nats, stream, settings.subject, **start) as (name, info),
        ):
            left = int(info["num_pending"])
            while left and first <= last:
                wanted = min(settings.batch, last - first + 1, left)
                request = {"batch": wanted, "max_bytes": batch_bytes, "no_wait": True}
                await _request(client, nats, stream, name, inbox, request)
                await _arrive(client, pull, wanted)
                if not pull.replies:
                    status = pull.status or b"the connection was lost"
                    if b" 409 Message Size" in status:
                        batch_bytes *= 2  # a message larger than a whole batch
                        pull.clear()
                        continue
                    if b" 404 " in status:
                        return
                    raise _Stale(status.decode(errors="replace").strip())
                delivered = _Delivered.parse(pull.replies)
                expected = np.arange(consumer_sequence + 1, consumer_sequence + 1 + len(pull.data))
                whole = delivered.consumer_sequence == expected
                count = len(whole) if whole.all() else int(np.argmin(whole))
                consumer_sequence += count
                count_in_range = int(np.searchsorted(delivered.sequence[:count], last, "right"))
                if count_in_range:
                    first = int(delivered.sequence[count_in_range - 1]) + 1
                    yield pull, delivered, count_in_range
                if count < len(whole):
                    raise _Stale("a message was lost on the way")
                if count_in_range < count:
                    return
                left = int(delivered.pending[-1])
                pull.clear()
    except ApiError as error:
        if error.code in (0, STREAM_NOT_FOUND):
            raise _Stale(str(error)) from error
        raise ArchiveError(f"stream {stream} on {nats.where}: {error}") from error
    except (nats_errors.Error, OSError) as error:
        raise _Stale(one_line(error)) from error


class _Columns:
    """Turns messages as they came into rows of the table `messages`."""

    def __init__(self, settings: JetStreamSettings, state: StreamState) -> None:
        self.label = settings.label or settings.stream
        self.cluster = settings.cluster or state.cluster
        self.cluster_header = None if settings.cluster else settings.cluster_header

    def batch(self, pull: _Pull, delivered: _Delivered, count: int) -> pa.RecordBatch:
        """The first messages that a request brought."""
        ts_ns = delivered.time[:count]
        headers, raw = header_columns(pull.blocks[:count])
        subjects = pa.array(pull.subjects[:count], pa.binary()).view(pa.string())
        return pa.RecordBatch.from_arrays(
            [
                _constant(self.label, count),
                pa.array(delivered.sequence[:count]),
                pa.array(ts_ns // 1000).cast(pa.timestamp("us", "UTC")),
                pa.array(ts_ns),
                pa.array((ts_ns // _DAY_NS).astype(np.int32)).cast(pa.date32()),
                subjects,
                self._clusters(headers, count),
                headers,
                raw,
                pa.array(pull.data[:count], pa.binary()),
            ],
            schema=_ARROW_SCHEMA,
        )

    def _clusters(self, headers: pa.ListArray, count: int) -> pa.Array:
        fallback = _constant(self.cluster, count)
        if self.cluster_header is None:
            return fallback
        names, values = headers.values.field(0), headers.values.field(1)
        found = np.flatnonzero(pc.equal(names, self.cluster_header).to_numpy(zero_copy_only=False))
        rows = pc.list_parent_indices(headers).to_numpy()[found]
        rows, earliest = np.unique(rows, return_index=True)  # the first of repeated headers
        places = np.zeros(count, np.int64)
        present = np.zeros(count, bool)
        places[rows], present[rows] = found[earliest], True
        taken = values.take(pa.array(places, mask=~present))
        return pc.if_else(pa.array(present), taken, fallback)


def _constant(value: str | None, count: int) -> pa.Array:
    return pa.nulls(count, pa.string()) if value is None else pa.repeat(value, count)


_ARROW_SCHEMA = pa.schema(
    [
        ("stream", pa.string()),
        ("seq", pa.int64()),
        ("ts", pa.timestamp("us", "UTC")),
        ("ts_ns", pa.int64()),
        ("day", pa.date32()),
        ("subject", pa.string()),
        ("cluster", pa.string()),
        ("headers", ARROW_TYPE),
        ("headers_raw", pa.binary()),
        ("data", pa.binary()),
    ]
)


@dataclass
class SequenceRange(InputPartition):
    """The sequences that one task reads, and the stream they are of."""

    first: int
    last: int
    state: StreamState


class JetStreamSource(DataSource):
    """`spark.read.format("jetstream")`; see the module, `NatsSettings` and `JetStreamSettings`."""

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return "jetstream"

    def schema(self) -> StructType:
        """The columns of the table `messages`."""
        return StructType([StructField(*column) for column in MESSAGE_COLUMNS.items()])

    def reader(self, schema: StructType) -> JetStreamReader:
        """A reader for the options given."""
        nats, settings = settings_from_options(self.options)
        return JetStreamReader(nats, settings)


def settings_from_options(
    options: Mapping[str, str],
) -> tuple[NatsSettings, JetStreamSettings]:
    """The settings that data source options say; `clusterHeader` is `cluster_header`.

    Raises:
        ArchiveError: an unknown option or a bad value.
    """
    by_option = {name.replace("_", ""): name for name in NatsSettings.model_fields}
    of_stream = {name.replace("_", ""): name for name in JetStreamSettings.model_fields}
    nats: dict[str, str] = {}
    settings: dict[str, str] = {}
    for option, value in options.items():
        key = option.lower().replace("_", "")
        if key in by_option:
            nats[by_option[key]] = value
        elif key in of_stream:
            settings[of_stream[key]] = value
        else:
            known = sorted([*NatsSettings.model_fields, *JetStreamSettings.model_fields])
            raise ArchiveError(f"jetstream: no option {option}; there are {', '.join(known)}")
    try:
        return NatsSettings.model_validate(nats), JetStreamSettings.model_validate(settings)
    except ValidationError as error:
        raise ArchiveError(f"jetstream: option {one_line(error)}") from error


class JetStreamReader(DataSourceReader):
    """Plans the ranges, on the driver's side, and reads one of them, in a task."""

    def __init__(self, nats: NatsSettings, settings: JetStreamSettings) -> None:
        self.nats = nats
        self.settings = settings

    def partitions(self) -> Sequence[SequenceRange]:
        """The ranges to read."""
        return asyncio.run(self._plan())

    async def _plan(self) -> list[SequenceRange]:
        async with connection(self.nats) as client:
            state = await stream_state(client, self.nats, self.settings.stream)
            first, last = await wanted_range(client, self.nats, self.settings, state)
            ranges = split(first, last, state, self.settings.readers)
            # Spark wants one range at least.
            return [SequenceRange(a, b, state) for a, b in ranges or [(1, 0)]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one range."""
        assert isinstance(partition, SequenceRange)  # noqa: S101 - we made it
        batches = read_range(
            self.nats, self.settings, partition.first, partition.last, partition.state
        )
        loop = asyncio.new_event_loop()
        try:
            while True:
                try:
                    yield loop.run_until_complete(anext(batches))
                except StopAsyncIteration:
                    return
        finally:
            loop.run_until_complete(batches.aclose())  # type: ignore[attr-defined]
            loop.close()
