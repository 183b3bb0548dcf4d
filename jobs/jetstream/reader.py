"""The messages of a range of sequences, as rows of the table `messages`.

A range is always complete. The consumer numbers the messages that it delivers, so a lost message
shows as a jump in the numbers. After a jump, a lost connection or a restarted server, a new
consumer starts after the last message that was taken. The range ends when the server says that
nothing is left at or below its end. If the stream was deleted or made anew, the read fails.

Subjects, header names and values need not be UTF-8. Their bytes travel unchecked in Arrow string
columns; tables store them as `jobs.warehouse.raw` says.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from nats import errors as nats_errors

from jobs.errors import ArchiveError, text_of
from jobs.jetstream.answers import (
    NO_MORE_CONSUMERS,
    STREAM_NOT_FOUND,
    ApiError,
    StreamInfo,
)
from jobs.jetstream.connection import LARGEST_MESSAGE, RawClient, api, connection, no_connection
from jobs.jetstream.headers import header_columns
from jobs.jetstream.pull import Delivered, Pull, arrive, consumer, pulling, request
from jobs.jetstream.stream import JetStreamSettings, StreamState, count_within
from jobs.settings.connection import NatsSettings
from jobs.warehouse.rows import constant, header_values, rows_of

_PAUSE_SECONDS = 0.2  # before the server is asked again
_LOOK_SECONDS = 0.5  # without a message: look whether the read should end


class _Stale(Exception):
    """The consumer or the connection is gone, or a message was lost on the way."""


@dataclass(frozen=True)
class RangeReader:
    """Reads ranges of a stream, in tasks. It has everything that a task needs.

    Attributes:
        settings: what to read; its range and times are ignored.
        state: the state of the stream when the ranges were planned.
        look: a function that is called while nothing comes; what it raises ends the read.
    """

    nats: NatsSettings
    settings: JetStreamSettings
    state: StreamState
    look: Callable[[], object] | None = None

    def __call__(self, sequences: tuple[int, int]) -> Iterator[pa.RecordBatch]:
        """The messages of a range, in batches.

        Raises:
            ArchiveError: as `read_range`.
        """
        batches = read_range(self.nats, self.settings, *sequences, self.state)
        loop = asyncio.new_event_loop()
        try:
            while (rows := loop.run_until_complete(self._next(batches))) is not None:
                yield rows
        finally:
            loop.run_until_complete(batches.aclose())
            loop.close()

    async def _next(self, batches: AsyncGenerator[pa.RecordBatch]) -> pa.RecordBatch | None:
        coming = asyncio.ensure_future(anext(batches, None))
        try:
            while not (await asyncio.wait([coming], timeout=_LOOK_SECONDS))[0]:
                if self.look is not None:
                    self.look()
            return coming.result()
        finally:
            if coming.cancel():
                await asyncio.wait([coming])


async def read_range(
    nats: NatsSettings, settings: JetStreamSettings, first: int, last: int, state: StreamState
) -> AsyncGenerator[pa.RecordBatch]:
    """The messages with sequences first..last, in order, in batches.

    Raises:
        ArchiveError: the stream is gone or another one, the server stays away, or it keeps back
            messages that it counts.
    """
    following = first
    deadline = time.monotonic() + nats.patience
    async with connection(nats) as client:
        while following <= last:
            try:
                async for pull, delivered, count in _pulls(client, settings, following, last):
                    following = int(delivered.sequence[count - 1]) + 1
                    deadline = time.monotonic() + nats.patience
                    yield stored_messages(
                        settings,
                        delivered.sequence[:count],
                        delivered.time[:count],
                        pa.array(pull.subjects[:count], pa.binary()),
                        pull.blocks[:count],
                        pa.array(pull.data[:count], pa.binary()),
                    )
                if following <= last:
                    await _check_nothing_left(client, settings, following, last)
                return
            except _Stale as reason:
                await asyncio.sleep(_PAUSE_SECONDS)
                while client.is_reconnecting and time.monotonic() < deadline:
                    await asyncio.sleep(_PAUSE_SECONDS)  # a request would take its whole timeout
                if client.is_closed:  # by the server, and for good: credentials that expired
                    raise no_connection(nats, client.last_error or reason) from reason
                if time.monotonic() > deadline:
                    raise ArchiveError(
                        "read-no-answer",
                        stream=settings.stream,
                        where=nats.where,
                        sequence=following - 1,
                        patience=nats.patience,
                        reason=text_of(reason),
                    ) from reason
                await _check_same_stream(client, settings.stream, state)


async def _check_nothing_left(
    client: RawClient, settings: JetStreamSettings, first: int, last: int
) -> None:
    """Raises ArchiveError if the server still counts messages in a range that has ended.

    Else a server that lies would have us read thousands of ranges for nothing.
    """
    stream, subject = settings.stream, settings.subject
    try:
        left = await count_within(client, stream, first, last, subject)
    except (ArchiveError, nats_errors.Error, OSError) as error:
        raise _Stale(text_of(error)) from error
    if left > 0:
        raise ArchiveError(
            "read-nothing", stream=stream, where=client.where, count=left, first=first, last=last
        )


async def _check_same_stream(client: RawClient, stream: str, state: StreamState) -> None:
    try:
        now = await api(client, StreamInfo, f"STREAM.INFO.{stream}")
    except ApiError as error:
        if error.err_code == STREAM_NOT_FOUND:
            raise ArchiveError("read-deleted", stream=stream, where=client.where) from error
        return  # the server is not back yet
    if now.created != state.created:
        raise ArchiveError("read-recreated", stream=stream, where=client.where)


async def _pulls(
    client: RawClient, settings: JetStreamSettings, first: int, last: int
) -> AsyncIterator[tuple[Pull, Delivered, int]]:
    """What each request to one consumer brought, and how many messages of it are in the range."""
    stream, batch_bytes = settings.stream, settings.batch_bytes
    start = {"deliver_policy": "by_start_sequence", "opt_start_seq": first}
    if settings.headers_only:
        start["headers_only"] = True
    consumer_sequence = 0
    try:
        async with (
            pulling(client) as (pull, inbox),
            consumer(client, stream, settings.subject, **start) as (name, info),
        ):
            left = info.num_pending
            while left and first <= last:
                wanted = min(settings.batch, last - first + 1, left)
                asked = {"batch": wanted, "max_bytes": batch_bytes, "no_wait": True}
                await request(client, stream, name, inbox, asked)
                await arrive(client, pull, wanted, batch_bytes)
                if not pull.replies:
                    status = pull.status or b"the connection was lost"
                    if b" 409 Message Size" in status and batch_bytes < LARGEST_MESSAGE:
                        batch_bytes *= 2  # a message larger than a whole batch
                        pull.clear()
                        continue
                    if b" 404 " in status:
                        return
                    raise _Stale(status.decode(errors="replace").strip())
                delivered = Delivered.parse(pull.replies, client.where)
                expected = np.arange(consumer_sequence + 1, consumer_sequence + 1 + len(pull.data))
                whole = delivered.consumer_sequence == expected
                count = len(whole) if whole.all() else int(np.argmin(whole))
                consumer_sequence += count
                rises = np.diff(delivered.sequence[:count], prepend=first - 1) > 0
                if not rises.all():
                    wrong = int(delivered.sequence[np.argmin(rises)])
                    raise ArchiveError(
                        "read-out-of-order", stream=stream, where=client.where, sequence=wrong
                    )
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
        # A stream may allow few consumers; those of the other ranges end.
        if error.err_code in (0, STREAM_NOT_FOUND, NO_MORE_CONSUMERS):
            raise _Stale(str(error)) from error
        raise ArchiveError(
            "read-failed", stream=stream, where=client.where, reason=error
        ) from error
    except (nats_errors.Error, OSError) as error:
        raise _Stale(text_of(error)) from error


def stored_messages(
    settings: JetStreamSettings,
    sequences: np.ndarray,
    times: np.ndarray,
    subjects: pa.Array,
    blocks: list[bytes | None],
    data: pa.Array,
) -> pa.RecordBatch:
    """The rows of messages of a stream: subjects, header blocks and payloads are bytes."""
    headers, raw = header_columns(blocks)
    clusters = constant(settings.cluster, len(blocks))
    if settings.cluster_header is not None:
        clusters = header_values(headers, settings.cluster_header, clusters)
    label = settings.label or settings.stream
    text = subjects.view(pa.string())
    columns = pa.array(sequences), pa.array(times), text, clusters, headers, raw, data
    return rows_of(label, *columns)
