"""The state of a stream on its server, and the range of sequences that an ingest wants."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from jobs.errors import ArchiveError
from jobs.jetstream.answers import (
    STREAM_NOT_FOUND,
    ApiError,
    Names,
    StreamInfo,
    can_be_named,
)
from jobs.jetstream.connection import RawClient, api
from jobs.jetstream.pull import Delivered, arrive, consumer, pulling, request
from jobs.settings.ingest import Bound
from nats_transform.errors import did_you_mean, printable
from nats_transform.mappings.subject import ANY_TAIL

COUNTED_SUBJECTS = 100_000  # nats-server counts so many in one answer
# What one range should hold, in bytes as the stream counts them: large enough for good Parquet
# files, small enough that the tasks of a job even out.
_RANGE_BYTES = 256 * 1024 * 1024
_MOST_RANGES = 1000  # whatever the server says
_SMALLEST_RANGE = 20_000  # messages; below, another consumer costs more than it brings


class JetStreamSettings(BaseModel):
    """The stream, and the messages of it to read.

    Attributes:
        stream: the name of the stream on the server.
        label: the value of the column `stream`; by default the name of the stream.
        since, until: the first and the last sequence, or the time from which and up to which, the
            end excluded; by default all.
        subject: a subject filter.
        cluster: the value of the column `cluster`. The server doesn't know it: a stream stores what
            is published in any cluster.
        cluster_header: a header with the value of that column, for messages that have it.
        batch: the most messages in one request to the server and in one Arrow batch.
        batch_bytes: the most bytes in one; a larger message comes alone.
        readers: how many ranges to read side by side, at least.
        headers_only: whether to leave the payloads out; the server adds the header `Nats-Msg-Size`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    stream: str
    label: str | None = None
    since: Bound | None = None
    until: Bound | None = None
    subject: str | None = None
    cluster: str | None = None
    cluster_header: str | None = None
    batch: int = Field(default=20_000, ge=1)
    batch_bytes: int = Field(default=8 * 1024 * 1024, ge=1)
    readers: int = Field(default=4, ge=1)
    headers_only: bool = False


@dataclass(frozen=True)
class StreamState:
    """The state of a stream, as the server shows it.

    Attributes:
        created: when the stream was made, as the server writes it. It differs for a later stream
            of the same name.
        messages, bytes, first, last: the numbers and the first and last sequence of what it holds
            now; `last` is below `first` if it is empty.
    """

    created: str
    messages: int
    bytes: int
    first: int
    last: int
    config: Mapping[str, Any]

    @classmethod
    def of(cls, info: StreamInfo) -> StreamState:
        """The state in an answer of the server."""
        state, config = info.state, info.config.model_dump(exclude_unset=True)
        size = state.messages, state.bytes
        return cls(info.created, *size, state.first_seq, state.last_seq, config)


async def stream_info(client: RawClient, stream: str) -> StreamInfo:
    """What the server shows of a stream.

    Raises:
        ApiError: there is no such stream, or nobody answers.
    """
    if not can_be_named(stream):
        raise ApiError(
            "no-stream-can-have-name", err_code=STREAM_NOT_FOUND, stream=printable(stream)
        )
    try:
        return await api(client, StreamInfo, f"STREAM.INFO.{stream}")
    except ApiError as error:
        if error.err_code == STREAM_NOT_FOUND:
            names: list[str] = []
            with contextlib.suppress(ApiError):  # not everyone may ask
                names = (await api(client, Names, "STREAM.NAMES")).streams or []
            near = did_you_mean(stream, names) or "; `nats stream ls` lists those that it has"
            raise ApiError(
                "no-stream", err_code=error.err_code, stream=stream, where=client.where, hint=near
            ) from error
        raise ApiError(
            "stream-refused",
            err_code=error.err_code,
            stream=stream,
            where=client.where,
            reason=error,
        ) from error


async def stream_state(client: RawClient, stream: str) -> StreamState:
    """The state of a stream.

    Raises:
        ApiError: there is no such stream, or nobody answers.
    """
    return StreamState.of(await stream_info(client, stream))


async def counts_by_subject(client: RawClient, stream: str) -> Counter[str] | None:
    """How many messages the stream has now under each subject; None if it has too many subjects.

    Bytes that are no UTF-8 stand as U+FFFD.

    Raises:
        ApiError: there is no such stream, or nobody answers.
    """
    info = await api(client, StreamInfo, f"STREAM.INFO.{stream}")
    if info.state.num_subjects > COUNTED_SUBJECTS:
        return None  # it would cost the server seconds to sort them
    asked = {"subjects_filter": ANY_TAIL}
    info = await api(client, StreamInfo, f"STREAM.INFO.{stream}", asked)
    return None if info.total > COUNTED_SUBJECTS else Counter(info.state.subjects or {})


async def count_from(client: RawClient, stream: str, first: int, subject: str | None = None) -> int:
    """How many messages the stream has now at and after a sequence."""
    start = {"deliver_policy": "by_start_sequence", "opt_start_seq": max(first, 1)}
    try:
        async with consumer(client, stream, subject, **start) as (_, info):
            return info.num_pending
    except ApiError as error:
        raise ArchiveError(
            "stream-refused", stream=stream, where=client.where, reason=error
        ) from error


async def count_within(
    client: RawClient, stream: str, first: int, last: int, subject: str | None
) -> int:
    """How many messages first..last the stream has now; at most, if some come meanwhile."""
    total = await count_from(client, stream, first, subject)
    return total - await count_from(client, stream, last + 1, subject)


async def message_at(
    client: RawClient, stream: str, sequence: int, subject: str | None = None
) -> tuple[int, int] | None:
    """Sequence and time (ns) of the first message at or after a sequence, or None."""
    start = {"deliver_policy": "by_start_sequence", "opt_start_seq": max(sequence, 1)}
    first = await _first_message(client, stream, start, subject)
    if first is not None and first[0] < sequence:
        raise ArchiveError(
            "odd-first-sequence",
            stream=stream,
            where=client.where,
            first=first[0],
            sequence=sequence,
        )
    return first


async def last_message(
    client: RawClient, stream: str, subject: str | None
) -> tuple[int, int] | None:
    """Sequence and time (ns) of the last message, or None."""
    return await _first_message(client, stream, {"deliver_policy": "last"}, subject)


async def sequence_at(client: RawClient, stream: str, moment: datetime, state: StreamState) -> int:
    """The first sequence that was stored at or after a moment; one past the last if none was."""
    when = moment.isoformat().replace("+00:00", "Z")
    start = {"deliver_policy": "by_start_time", "opt_start_time": when}
    message = await _first_message(client, stream, start)
    return message[0] if message else state.last + 1


async def _first_message(
    client: RawClient, stream: str, start: Mapping[str, Any], subject: str | None = None
) -> tuple[int, int] | None:
    try:
        # Without payloads, which may be large.
        start = {**start, "headers_only": True}
        async with consumer(client, stream, subject, **start) as (name, info):
            if not info.num_pending:
                return None
            # As bytes: nats-py stops reading at a subject that is not UTF-8.
            async with pulling(client) as (pull, inbox):
                await request(client, stream, name, inbox, {"batch": 1, "no_wait": True})
                await arrive(client, pull, 1)
                if not pull.replies:
                    if pull.status is None:
                        raise ApiError("server-does-not-answer", where=client.where)
                    return None  # the message was deleted just now
                delivered = Delivered.parse(pull.replies, client.where)
                return int(delivered.sequence[0]), int(delivered.time[0])
    except ApiError as error:
        raise ArchiveError(
            "stream-refused", stream=stream, where=client.where, reason=error
        ) from error


async def wanted_range(
    client: RawClient, settings: JetStreamSettings, state: StreamState
) -> tuple[int, int]:
    """The first and last sequence that these settings ask for and the stream reaches.

    Raises:
        ArchiveError: a range in the wrong order, or a work queue, whose messages go to the one
            consumer that acknowledges them: the server lets nobody else read.
    """
    if state.config.get("retention") == "workqueue":
        raise ArchiveError("work-queue", stream=settings.stream, where=client.where)
    since, until = settings.since, settings.until
    first = max(since, 1) if isinstance(since, int) else 1
    last = until if isinstance(until, int) else state.last
    if isinstance(until, int) and first > last:
        raise ArchiveError("range-of-sequences-ends-early", first=first, last=last)
    if isinstance(since, datetime):
        first = max(first, await sequence_at(client, settings.stream, since, state))
    if isinstance(until, datetime):
        last = await sequence_at(client, settings.stream, until, state) - 1
    return first, min(last, state.last)


def split(first: int, last: int, state: StreamState, readers: int) -> list[tuple[int, int]]:
    """Divides first..last into ranges: enough for all readers, and none too large."""
    first = max(first, state.first)
    if first > last or not state.messages:
        return []
    share = (last - first + 1) / max(state.last - state.first + 1, 1)
    messages, size = state.messages * share, state.bytes * share
    by_size = min(int(size // _RANGE_BYTES), _MOST_RANGES)
    count = max(min(readers, int(messages // _SMALLEST_RANGE)), by_size, 1)
    edges = [first + (last - first + 1) * n // count for n in range(count + 1)]
    return [(a, b - 1) for a, b in itertools.pairwise(edges) if a < b]
