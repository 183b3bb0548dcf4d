"""The sources of an ingest: a live stream here; `archive`, `backup` and `dump` have the others.

A source says which spans of sequences it can add to the table, which tasks read the messages of a
span, and afterwards how many messages there must be.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Protocol

import pyarrow as pa
from pyiceberg.table import Table

from jobs.errors import ArchiveError
from jobs.files.engine import end_if_told
from jobs.jetstream.connection import RawClient, connection
from jobs.jetstream.reader import RangeReader
from jobs.jetstream.stream import (
    JetStreamSettings,
    StreamState,
    count_from,
    count_within,
    last_message,
    message_at,
    sequence_at,
    split,
    stream_state,
    wanted_range,
)
from jobs.settings.connection import NatsSettings
from jobs.warehouse.accounting import Archived
from jobs.warehouse.rows import DAY_NS
from jobs.warehouse.tables import times_of
from nats_transform.kernel.coverage import NONE, Coverage

_MOST_SPANS = 250  # each takes some requests, so a server that lies must not make us plan many
ReadTask = Callable[[Any], Iterator[pa.RecordBatch]]
"""Gives the messages of a task, as `jobs.warehouse.rows` has them; it can be pickled."""


@dataclass(frozen=True)
class Span:
    """Sequences to be published at once: first to last, both inclusive.

    Attributes:
        messages: how many the source had among them when the span was planned.
        size: about how many bytes are read for it.
        has: the sequences of its messages; None if nobody knows, as a stream may lose some of them.
        lost: sequences that never come any more, of which some may be among those of messages.
        gone: other sequences that are below the first one of the source. Only a dump or an older
            backup can bring their messages.
    """

    first: int
    last: int
    messages: int
    size: int
    has: Coverage | None = None
    lost: Coverage = NONE
    gone: Coverage = NONE

    @property
    def all(self) -> Coverage:
        """The sequences from first to last."""
        return Coverage.of([(self.first, self.last)])


class Source(Protocol):
    """A source of messages."""

    kind: str

    def check(self, table: Table, have: Coverage) -> None:
        """Raises ArchiveError if the table has other messages under these sequences."""

    def plan(self, have: Coverage, erased: Coverage = NONE) -> list[Span]:
        """The spans to add to what the table has, ascending, of whole days where possible.

        Args:
            have: the sequences that are archived.
            erased: those of them whose messages the table no longer has.
        """

    def tasks(self, span: Span, have: Coverage) -> tuple[ReadTask, Sequence[Any]]:
        """The tasks for the messages of a span that the table lacks, and the function of a task."""

    def count(self, span: Span) -> int:
        """How many messages of a span there are now."""


@dataclass
class StreamSource:
    """A stream on a server.

    Attributes:
        publish_messages: a span ends at the first midnight after this number of messages.
        may_be_empty: whether a stream without messages is no mistake.
    """

    nats: NatsSettings
    settings: JetStreamSettings
    publish_messages: int
    kind: str = "jetstream"
    may_be_empty: bool = False
    _created: str | None = field(default=None, init=False)

    def check(self, table: Table, have: Coverage) -> None:
        """Compares the first and last message that both have, by time."""
        label = self.settings.label or self.settings.stream
        last = Archived.of(table, label).last_seq or 0
        for sequence, ts_ns in asyncio.run(self._probe(have, last)):
            if times_of(table, label, sequence) != [ts_ns]:
                raise ArchiveError(
                    "ingest-of-other-stream",
                    sequence=sequence,
                    stream=self.settings.stream,
                    where=self.nats.where,
                    label=label,
                )

    async def _probe(self, have: Coverage, last: int) -> list[tuple[int, int]]:
        """(sequence, time) of messages that the table must have; `last` is the last it ever had."""
        stream, subject = self.settings.stream, self.settings.subject
        async with connection(self.nats) as client:
            state = await self._state(client)
            both = have & Coverage.of([(state.first, state.last)])
            if not both:
                return []
            messages = [await message_at(client, stream, both.ranges[0][0], subject)]
            if last > state.last:
                messages.append(await last_message(client, stream, subject))
            else:  # a subject filter leaves sequences after the last message covered too
                end = min(last, both.ranges[-1][1])
                messages.append(await message_at(client, stream, end, subject))
            return [message for message in messages if message and message[0] in have]

    def plan(self, have: Coverage, erased: Coverage = NONE) -> list[Span]:
        """Spans that end at midnight (UTC), where the stream's times let them."""
        return asyncio.run(self._plan(have))

    async def _plan(self, have: Coverage) -> list[Span]:
        async with connection(self.nats) as client:
            state = await self._state(client)
            if not (state.messages or have or self.may_be_empty):
                raise ArchiveError(
                    "stream-empty", stream=self.settings.stream, where=self.nats.where
                )
            first, last = await wanted_range(client, self.settings, state)
            gone = Coverage.of([(first, min(last, state.first - 1))])
            first = max(first, state.first)
            spans, lost = [], NONE
            most = max(self.publish_messages, (last - first) // _MOST_SPANS)
            for start, end in (Coverage.of([(first, last)]) - have).ranges:
                while start <= end:
                    cut = await self._end_of_span(client, state, start, end, most)
                    messages = await self._most(client, start, cut)
                    size = messages * state.bytes // max(1, state.messages)
                    if messages:
                        spans.append(Span(start, cut, messages, size, lost=lost, gone=gone))
                        lost = NONE
                    else:  # part of the next commit, so that no later ingest asks again
                        lost |= Coverage.of([(start, cut)])
                    start = cut + 1
            return spans

    async def _end_of_span(
        self, client: RawClient, state: StreamState, start: int, end: int, most: int
    ) -> int:
        beyond = start + most
        if beyond > end:
            return end
        message = await message_at(client, self.settings.stream, beyond)
        if message is None:
            return end
        day = date(1970, 1, 1) + timedelta(days=message[1] // DAY_NS)
        midnight = datetime.combine(day + timedelta(days=1), time(), UTC)
        cut = await sequence_at(client, self.settings.stream, midnight, state) - 1
        # A clock that was set back can put the midnight before.
        return min(max(cut, beyond), end)

    def tasks(self, span: Span, have: Coverage) -> tuple[ReadTask, Sequence[Any]]:
        """Ranges of the span; none of its messages is in the table."""
        state = asyncio.run(self._connected_state())
        ranges = split(span.first, span.last, state, self.settings.readers)
        return RangeReader(self.nats, self.settings, state, end_if_told), ranges

    async def _connected_state(self) -> StreamState:
        async with connection(self.nats) as client:
            return await self._state(client)

    def count(self, span: Span) -> int:
        """How many messages of a span the stream has now."""

        async def count() -> int:
            stream, subject = self.settings.stream, self.settings.subject
            async with connection(self.nats) as client:
                await self._state(client)
                return await count_within(client, stream, span.first, span.last, subject)

        return asyncio.run(count())

    async def _most(self, client: RawClient, first: int, last: int) -> int:
        """At least as many as a later read can find: arrivals in between are counted too."""
        stream, subject = self.settings.stream, self.settings.subject
        behind = await count_from(client, stream, last + 1, subject)
        return await count_from(client, stream, first, subject) - behind

    async def _state(self, client: RawClient) -> StreamState:
        """The state of the stream, which must stay the same one."""
        state = await stream_state(client, self.settings.stream)
        if self._created not in (None, state.created):
            raise ArchiveError("read-recreated", stream=self.settings.stream, where=self.nats.where)
        self._created = state.created
        return state
