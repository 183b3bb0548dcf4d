"""Where an ingest takes messages from: a live stream, a backup of one, or a dump.

A source says which spans of sequences it can add to what the table has, gives the rows of each,
and says again afterwards how many there must be.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Protocol

from pyiceberg.table import Table
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from jobs.errors import SPARK_ERRORS, ArchiveError, job_error
from jobs.jetstream.connection import NatsSettings, RawClient, connection
from jobs.jetstream.source import JetStreamSource
from jobs.jetstream.stream import (
    JetStreamSettings,
    StreamState,
    count_from,
    message_at,
    sequence_at,
    stream_state,
    wanted_range,
)
from jobs.session import Spark, started
from jobs.sources.files import DumpFiles, shown
from jobs.warehouse.coverage import Coverage
from jobs.warehouse.specs import MESSAGES
from jobs.warehouse.tables import read, times_of
from nats_transform.spark import digest

_DAY_NS = 86_400 * 1_000_000_000


@dataclass(frozen=True)
class Span:
    """Sequences to be published at once: first to last, both inclusive.

    Attributes:
        messages: how many the source had among them when the span was planned.
    """

    first: int
    last: int
    messages: int


class Source(Protocol):
    """Where messages come from."""

    kind: str

    def check(self, table: Table, have: Coverage) -> None:
        """Makes sure that what both have is the same messages; raises ArchiveError if not."""

    def plan(self, have: Coverage) -> list[Span]:
        """The spans to add to what the table has, ascending, of whole days where possible."""

    def rows(self, span: Span, have: Coverage) -> DataFrame:
        """The messages of a span that the table does not have."""

    def count(self, span: Span) -> int:
        """How many messages of a span there are now."""


@dataclass
class StreamSource:
    """A stream on a server.

    Attributes:
        publish_messages: a span ends at the first midnight after so many messages.
    """

    spark: Spark
    nats: NatsSettings
    settings: JetStreamSettings
    publish_messages: int
    kind: str = "jetstream"

    def check(self, table: Table, have: Coverage) -> None:
        """Compares the first and last message that both have, by time."""
        label = self.settings.label or self.settings.stream
        for sequence, ts_ns in asyncio.run(self._probe(have)):
            if times_of(table, label, sequence) != [ts_ns]:
                raise ArchiveError(
                    f"message {sequence} of stream {self.settings.stream} on {self.nats.where} "
                    f"is not the one in the table as {label}: the stream was made anew or is "
                    "another one; ingest it under another name"
                )

    async def _probe(self, have: Coverage) -> list[tuple[int, int]]:
        """(sequence, time) of messages that the table must have."""
        async with connection(self.nats) as client:
            state = await self._state(client)
            both = have & Coverage.of([(state.first, state.last)])
            found = []
            for sequence in {both.ranges[0][0], both.ranges[-1][1]} if both else set():
                message = await message_at(client, self.nats, self.settings.stream, sequence)
                if message is not None and message[0] in have:
                    found.append(message)
            return found

    def plan(self, have: Coverage) -> list[Span]:
        """Spans that end at midnight (UTC), where the stream's times let them."""
        return asyncio.run(self._plan(have))

    async def _plan(self, have: Coverage) -> list[Span]:
        async with connection(self.nats) as client:
            state = await self._state(client)
            if not state.messages and not have:
                raise ArchiveError(
                    f"stream {self.settings.stream} on {self.nats.where} is empty: "
                    "nothing to ingest"
                )
            first, last = await wanted_range(client, self.nats, self.settings, state)
            spans = []
            for start, end in (Coverage.of([(first, last)]) - have).ranges:
                while start <= end:
                    cut = await self._end_of_span(client, state, start, end)
                    spans.append(Span(start, cut, await self._most(client, start, cut)))
                    start = cut + 1
            return [span for span in spans if span.messages]

    async def _end_of_span(
        self, client: RawClient, state: StreamState, start: int, end: int
    ) -> int:
        beyond = max(start, state.first) + self.publish_messages
        if beyond > end:
            return end
        message = await message_at(client, self.nats, self.settings.stream, beyond)
        if message is None:
            return end
        day = date(1970, 1, 1) + timedelta(days=message[1] // _DAY_NS)
        midnight = datetime.combine(day + timedelta(days=1), time(), UTC)
        cut = await sequence_at(client, self.nats, self.settings.stream, midnight, state) - 1
        # A clock that was set back can put the midnight before the start.
        return min(cut, end) if cut >= start else end

    def rows(self, span: Span, have: Coverage) -> DataFrame:
        """The messages of a span; none of them is in the table."""
        spark = started(self.spark)
        spark.dataSource.register(JetStreamSource)
        settings = self.settings.model_copy(
            update={"first": span.first, "last": span.last, "since": None, "until": None}
        )
        options = self.nats.to_options() | settings.to_options()
        try:
            return spark.read.format("jetstream").options(**options).load()
        except SPARK_ERRORS as error:
            raise job_error(error) from error

    def count(self, span: Span) -> int:
        """How many messages of a span the stream has now."""

        async def count() -> int:
            async with connection(self.nats) as client:
                return await self._least(client, span.first, span.last)

        return asyncio.run(count())

    async def _most(self, client: RawClient, first: int, last: int) -> int:
        """At least as many as a later read can find: arrivals in between are counted too."""
        stream, subject = self.settings.stream, self.settings.subject
        behind = await count_from(client, self.nats, stream, last + 1, subject)
        return await count_from(client, self.nats, stream, first, subject) - behind

    async def _least(self, client: RawClient, first: int, last: int) -> int:
        """At most as many as an earlier read found: arrivals in between are taken off."""
        stream, subject = self.settings.stream, self.settings.subject
        total = await count_from(client, self.nats, stream, first, subject)
        return total - await count_from(client, self.nats, stream, last + 1, subject)

    async def _state(self, client: RawClient) -> StreamState:
        return await stream_state(client, self.nats, self.settings.stream)


@dataclass
class DumpSource:
    """Files with messages.

    Attributes:
        messages: all of them, as rows of the table.
        files: the paths of the files.
    """

    messages: DataFrame
    files: DumpFiles
    kind: str

    @property
    def path(self) -> str:
        """Where they are, for errors."""
        return shown(self.files.path)

    def check(self, table: Table, have: Coverage) -> None:
        """Compares all messages that both have."""
        if not have:
            return
        ours = self.messages.where(within(have))
        bounds = _collect(ours.agg(F.min("seq"), F.max("seq"), F.first("stream")))
        if bounds[0] is None:
            return
        columns = ["seq", "ts_ns", "subject", "headers", "headers_raw", "data"]
        between = F.col("seq").between(bounds[0], bounds[1])
        table_rows = read(self.messages.sparkSession, table, MESSAGES, bounds[2]).where(between)
        if digest.digest(ours, columns) != digest.digest(table_rows, columns):
            raise ArchiveError(
                f"{self.path} and the table have different messages among sequences "
                f"{bounds[0]} to {bounds[1]} of stream {bounds[2]}; number them apart with "
                "--first-seq, or ingest under another name"
            )

    def plan(self, have: Coverage) -> list[Span]:
        """One span with all that is new."""
        new = self.messages.where(F.coalesce(~within(have), F.lit(True)))
        faults = _faults()
        found = _collect(
            new.agg(
                F.count(F.lit(1)),
                F.count_distinct("seq"),
                F.min("seq"),
                F.max("seq"),
                *(F.count_if(wrong) for _, wrong in faults),
                *(F.min(F.when(wrong, F.col("seq"))) for _, wrong in faults),
            )
        )
        rows, distinct, first, last, *counts = found
        for (what, _), count, one in zip(
            faults, counts[: len(faults)], counts[len(faults) :], strict=True
        ):
            if count:
                raise ArchiveError(
                    f"{self.path}: {count} of {rows} messages have {what}"
                    + ("" if one is None else f"; the first is sequence {one}")
                )
        if rows != distinct:
            raise ArchiveError(f"{self.path}: {rows - distinct} sequences are there more than once")
        if rows and first < 1:
            raise ArchiveError(f"{self.path}: sequences start at 1, but there is {first}")
        if not rows and not have:
            raise ArchiveError(f"{self.path} has no messages in this range")
        return [Span(first, last, rows)] if rows else []

    def rows(self, span: Span, have: Coverage) -> DataFrame:
        """The messages that the table does not have."""
        return self.messages.where(~within(have))

    def count(self, span: Span) -> int:
        """As planned: files do not change."""
        return span.messages


def _faults() -> list[tuple[str, Column]]:
    """What no row of the table may be: what is wrong, and the rows where it is."""
    no_header = F.exists(
        "headers",
        lambda h: h.isNull() | h["name"].isNull() | h["value"].isNull(),
    )
    broken = F.exists(
        "headers",
        lambda h: h["name"].rlike(r"[\r\n]") | h["value"].rlike(r"[\r\n]"),
    )
    return [
        ("no sequence", F.col("seq").isNull()),
        ("no subject", F.col("subject").isNull()),
        (
            "no time, or one that is not between the years 1678 and 2262",
            F.col("ts_ns").isNull(),
        ),
        ("data that is not base64", F.col("data").isNull()),
        ("a header without a name or a value", no_header),
        ("a header with a line break, which no NATS header can have", broken),
    ]


def within(sequences: Coverage) -> Column:
    """Whether column `seq` is among these sequences."""
    inside = F.lit(False)
    for first, last in sequences.ranges:
        inside = inside | F.col("seq").between(first, last)
    return inside


def _collect(frame: DataFrame) -> Row:
    try:
        return frame.collect()[0]
    except SPARK_ERRORS as error:
        raise job_error(error) from error
