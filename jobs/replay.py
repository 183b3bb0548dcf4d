"""The job `replay`: transformed messages back into a JetStream stream, each of them once.

Messages are sent in the order of their sequences over one connection, so each mapped subject has
them in stream order. A message keeps its payload and its headers, byte for byte; added are

- `Nats-Msg-Id`, made of the mapping version, the stream and the sequence;
- `Nats-Transform-Time`, when the message was stored first (nanoseconds, ISO 8601).

A header of the original that only made sense when it was published (`Nats-Msg-Id`,
`Nats-Expected-*`) gets the prefix `Nats-Transform-Original-`.

The server forgets message ids after the stream's duplicate window (two minutes by default), so a
replay first reads the ids that the target already has and leaves those messages out. That is also
how a replay that was stopped is resumed: run it again.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from nats import errors as nats_errors
from pydantic import BaseModel, Field
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from jobs.days import StreamDays
from jobs.errors import SPARK_ERRORS, JobError, job_error, one_line
from jobs.jetstream.connection import NatsSettings, RawClient, connection
from jobs.jetstream.headers import format_headers
from jobs.jetstream.reader import JetStreamSettings, read_range, stream_state
from jobs.session import Spark, started
from jobs.warehouse.coverage import Coverage
from jobs.warehouse.tables import TRANSFORMED, open_table, read

SENT_FATES = ("mapped", "unmatched")
MSG_ID = b"Nats-Msg-Id"
TIME = b"Nats-Transform-Time"
_ORIGINAL = b"Nats-Transform-Original-"
_AT_PUBLISH = (b"nats-msg-id", b"nats-expected-")
_ANSWER_SECONDS = 30.0

Progress = Callable[[str], None]


class ReplaySettings(StreamDays):
    """What to replay, and into which stream.

    Attributes:
        to: the stream on the server that is to get them; it must capture their subjects.
        rate: messages a second at most; as fast as the server stores them by default.
        dry_run: count only, and send nothing.
        window: how many messages may wait for the server's answer.
    """

    to: str = Field(min_length=1)
    server: NatsSettings
    rate: float | None = Field(default=None, gt=0)
    dry_run: bool = False
    window: int = Field(default=500, ge=1)


class ReplayResult(BaseModel):
    """What a replay did.

    Attributes:
        sent: messages stored by this run; with `dry_run`, those that would be.
        already: messages that the target had.
        duplicates: messages that the server recognized by their id while they were sent.
        not_sent: messages by fate that are not sent.
    """

    stream: str
    to: str
    sent: int
    already: int
    duplicates: int
    not_sent: dict[str, int]
    dry_run: bool


def replay(
    spark: Spark, settings: ReplaySettings, progress: Progress | None = None
) -> ReplayResult:
    """What was sent, once all that is to be sent is in the target.

    Raises:
        JobError: the target refuses a message or stays away; run again to resume.
        ArchiveError: there is no such server or stream.
        WarehouseError: the tables cannot be read.
    """
    table = open_table(settings.warehouse, TRANSFORMED)
    rows = read(started(spark), table, TRANSFORMED, settings.stream, settings.days)
    try:
        fates = {row["fate"]: row["count"] for row in rows.groupBy("fate").count().collect()}
        versions = [row[0] for row in rows.select("mapping_version").distinct().collect()]
        if len(versions) > 1:
            raise JobError(
                f"the days of stream {settings.stream} were transformed with {len(versions)} "
                "mapping versions; choose days of one, or transform them again"
            )
        if not fates:
            raise JobError(f"no transformed messages of stream {settings.stream}: nothing to send")
        return asyncio.run(_replay(rows, fates, versions[0], settings, progress))
    except SPARK_ERRORS as error:
        raise job_error(error) from error


async def _replay(
    rows: DataFrame,
    fates: dict[str, int],
    version: str,
    settings: ReplaySettings,
    progress: Progress | None,
) -> ReplayResult:
    id_prefix = f"{version}:{settings.stream}:".encode()
    total = sum(fates.get(fate, 0) for fate in SENT_FATES)
    counts: Counter[str] = Counter()
    async with connection(settings.server) as client:
        there = await _sequences_there(client, settings, id_prefix)
        async with _Sender(client, settings) as sender:
            for row in _ordered(rows):
                if row["seq"] in there:
                    counts["already"] += 1
                    continue
                counts["sent"] += 1
                if not settings.dry_run:
                    await sender.send(bytes(row["to"]), *_message(row, id_prefix))
                done = counts["sent"] + counts["already"]
                if progress and done % 10_000 == 0:
                    progress(f"{settings.stream} to {settings.to}: {done:,} of {total:,}")
    return ReplayResult(
        stream=settings.stream,
        to=settings.to,
        sent=counts["sent"] - sender.duplicates,
        already=counts["already"],
        duplicates=sender.duplicates,
        not_sent={fate: n for fate, n in sorted(fates.items()) if fate not in SENT_FATES},
        dry_run=settings.dry_run,
    )


def _ordered(rows: DataFrame) -> Iterator[Row]:
    """The messages to send, by sequence; one Spark partition at a time is in memory."""
    chosen = rows.where(F.col("fate").isin(*SENT_FATES)).select(
        "seq",
        "ts_ns",
        F.coalesce("mapped_subject", "subject").cast("binary").alias("to"),
        F.transform(
            "headers",
            lambda h: F.struct(
                h["name"].cast("binary").alias("name"), h["value"].cast("binary").alias("value")
            ),
        ).alias("headers"),
        "headers_raw",
        "data",
    )
    return chosen.orderBy("seq").toLocalIterator()


def _message(row: Row, id_prefix: bytes) -> tuple[bytes, bytes]:
    """Header block and payload of a message to send."""
    if row["headers_raw"] is not None:
        block = bytes(row["headers_raw"])
    else:
        block = format_headers((bytes(h["name"]), bytes(h["value"])) for h in row["headers"] or ())
    added = [(MSG_ID, id_prefix + b"%d" % row["seq"]), (TIME, iso_time(row["ts_ns"]).encode())]
    return with_headers(block, added), bytes(row["data"] or b"")


def with_headers(block: bytes, added: Sequence[tuple[bytes, bytes]]) -> bytes:
    """A header block with headers in front, and those that matter at publish time set aside."""
    lines = []
    for line in block.removesuffix(b"\r\n\r\n").split(b"\r\n")[1:]:
        name = line.partition(b":")[0].strip().lower()
        lines.append(_ORIGINAL + line if name.startswith(_AT_PUBLISH) else line)
    return b"\r\n".join([format_headers(added)[:-4], *lines, b"", b""])


def iso_time(ts_ns: int) -> str:
    """A time in nanoseconds since 1970 as ISO 8601 with nine decimals, UTC."""
    seconds, nanoseconds = divmod(ts_ns, 1_000_000_000)
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{nanoseconds:09}Z"


async def _sequences_there(
    client: RawClient, settings: ReplaySettings, id_prefix: bytes
) -> Coverage:
    """The sequences that the target already has of this stream and mapping version."""
    state = await stream_state(client, settings.server, settings.to)
    if not state.messages:
        return Coverage()
    found = Coverage()
    to_read = JetStreamSettings(stream=settings.to)
    async for batch in read_range(settings.server, to_read, state.first, state.last, state):
        pairs = batch.column("headers").values
        # As bytes: names and values need not be UTF-8.
        names = pairs.field("name").view(pa.binary()).to_pylist()
        values = pairs.field("value").view(pa.binary()).to_pylist()
        numbers = [
            int(value[len(id_prefix) :])
            for name, value in zip(names, values, strict=True)
            if name == MSG_ID and value.startswith(id_prefix)
        ]
        found |= Coverage.of((n, n) for n in numbers)
    return found


class _Sender:
    """Publishes messages as bytes and counts the server's answers; a `Sink` of those answers."""

    def __init__(self, client: RawClient, settings: ReplaySettings) -> None:
        self.client = client
        self.settings = settings
        self.sid = 0
        self.duplicates = 0
        self._inbox = client.new_inbox()
        self._waiting: dict[bytes, bytes] = {}  # number in the inbox -> subject of the message
        self._answered = asyncio.Event()
        self._failure: str | None = None
        self._sent = 0
        self._started = time.monotonic()

    async def __aenter__(self) -> _Sender:
        subscription = await self.client.subscribe(f"{self._inbox}.*")
        self.sid = subscription._id
        self.client.sink = self
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                await self._room_for(0)
        finally:
            self.client.sink = None

    async def send(self, subject: bytes, block: bytes, data: bytes) -> None:
        """Sends one message once there is room in the window and it is time.

        Raises:
            JobError: the server refused a message before, or does not answer.
        """
        await self._room_for(self.settings.window - 1)
        if self.settings.rate:
            due = self._started + self._sent / self.settings.rate
            await asyncio.sleep(max(0.0, due - time.monotonic()))
        number = b"%d" % self._sent
        self._sent += 1
        self._waiting[number] = subject
        sizes = b"%d %d" % (len(block), len(block) + len(data))
        reply = self._inbox.encode() + b"." + number
        line = b" ".join([b"HPUB", subject, reply, sizes])
        # nats-py's own publish takes text and a dict, which cannot say all of these bytes.
        await self.client._send_command(line + b"\r\n" + block + data + b"\r\n")
        if self._sent % 64 == 0:
            await self.client._flush_pending()

    async def _room_for(self, waiting: int) -> None:
        while self._failure is None and len(self._waiting) > waiting:
            self._answered.clear()
            await self.client._flush_pending()
            try:
                await asyncio.wait_for(self._answered.wait(), _ANSWER_SECONDS)
            except TimeoutError:
                self._failure = f"no answer for {_ANSWER_SECONDS:.0f} s"
            except nats_errors.Error as error:
                self._failure = one_line(error)
        if self._failure is not None:
            raise JobError(
                f"stream {self.settings.to} on {self.settings.server.where}: {self._failure}; "
                "run again to resume"
            )

    def take(self, buffer: bytes) -> int:
        """Nothing in bulk: answers are few and small."""
        return 0

    def add(self, subject: bytes, reply: bytes, block: bytes | None, data: bytes) -> None:
        """Takes the server's answer to one message."""
        sent_to = self._waiting.pop(subject.rpartition(b".")[2], b"")
        name = sent_to.decode(errors="backslashreplace")
        if not data:
            self._failure = f"no stream captures subject {name}"
        else:
            answer = json.loads(data)
            if "error" in answer:
                reason = answer["error"].get("description", answer["error"])
                self._failure = f"subject {name} is refused: {reason}"
            elif answer.get("stream") != self.settings.to:
                self._failure = f"subject {name} is captured by stream {answer.get('stream')}"
            elif answer.get("duplicate"):
                self.duplicates += 1
        self._answered.set()
