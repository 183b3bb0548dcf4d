"""The stream that a replay writes into: the subjects that it takes, and the messages that it has.

Every replayed message names its archived message in a header (`SOURCE`). This header is the only
record of what was sent, so any number of replays from any number of hosts agree on it.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from jobs.errors import ArchiveError
from jobs.jetstream.answers import MESSAGE_NOT_FOUND, ApiError, Message, Stored
from jobs.jetstream.connection import RawClient, api
from jobs.jetstream.control import OWN
from jobs.jetstream.headers import Pair, pairs_of, parse_headers
from jobs.jetstream.reader import read_range
from jobs.jetstream.stream import JetStreamSettings, StreamState
from jobs.settings.connection import NatsSettings
from nats_transform import Transform
from nats_transform.errors import NatsTransformError
from nats_transform.kernel.coverage import NONE, Coverage, Range, Sequences
from nats_transform.mappings.subject import SEPARATOR, encode, subscribes

SOURCE = OWN + b"Source"
"""`<mapping version> <sequence> <stream>` of the archived message; the stream percent-encoded."""
TIME = OWN + b"Time"
"""When the archived message was stored."""
NO_TIME = -(2**63)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ISO_TIME = re.compile(rb"[0-9]{4}(-[0-9]{2}){2}T[0-9]{2}(:[0-9]{2}){2}\.[0-9]{9}Z")
MSG_ID = b"Nats-Msg-Id"
_ONE_BY_ONE = 500  # messages; more are read through a consumer
_MOST_ONE_BY_ONE = 1_000_000  # messages, whatever the server says
_AT_ONCE = 50  # requests on the way
FOLDED = 2**16
"""After so many messages of the target, their sequences become ranges."""
TIMES = 2**22
"""Of a target with more messages, the times of only a part are compared, evenly spread."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """The archived message that a message of the target was made from.

    Attributes:
        version: the mapping version that it was transformed with.
        seq: its sequence in the archive.
        stream: the archived stream, percent-encoded.
        msg_id: the message id of the target's message.
        ts_ns: when the archived message was stored; `NO_TIME` if the message does not say it.
    """

    version: bytes
    seq: int
    stream: bytes
    msg_id: bytes
    ts_ns: int = NO_TIME


def source_stream(stream: str) -> bytes:
    """A stream's name as `SOURCE` has it: one word of ASCII, whatever the archive calls it."""
    return quote(encode(stream), safe="").encode()


def replayed(pairs: Iterable[Pair]) -> Replayed | None:
    """Which archived message this is, by its headers; None for a message of somebody else."""
    values: dict[bytes, bytes] = {}
    for name, value in pairs:
        if name in (SOURCE, MSG_ID, TIME):
            values.setdefault(name, value)
    msg_id = values.get(MSG_ID, b"")
    if SOURCE in values:
        words = values[SOURCE].split(b" ")
        if len(words) == 3 and _is_sequence(words[1]):
            time = _nanoseconds(values.get(TIME, b""))
            return Replayed(words[0], int(words[1]), words[2], msg_id, time)
        return None
    # As release 0.1.0 wrote it: <mapping version>:<stream>:<sequence>.
    version, _, rest = msg_id.partition(b":")
    stream, _, number = rest.rpartition(b":")
    if len(version) == 64 and stream and _is_sequence(number):
        return Replayed(version, int(number), quote(stream, safe="").encode(), msg_id)
    return None


def _is_sequence(text: bytes) -> bool:
    return text.isdigit() and len(text) <= 19 and int(text) < 2**63


def _nanoseconds(text: bytes) -> int:
    """A time as `jobs.jetstream.outgoing.iso_time` writes it; `NO_TIME` for any other text."""
    if _ISO_TIME.fullmatch(text):
        with contextlib.suppress(ValueError):  # a month 13
            since = datetime.fromisoformat(f"{text[:19].decode()}+00:00") - _EPOCH
            time = since // timedelta(seconds=1) * 10**9 + int(text[20:29])
            return time if abs(time) < 2**63 else NO_TIME
    return NO_TIME


@dataclass(frozen=True)
class Target:
    """A stream as its server describes it.

    Attributes:
        archived: the sequences that a replay can have sent; `NONE` if nobody knows. Whoever
            publishes into the stream can claim others.
    """

    name: str
    state: StreamState
    archived: Coverage = NONE

    @cached_property
    def _ingress(self) -> Transform | None:
        if transform := self.state.config.get("subject_transform"):
            with contextlib.suppress(NatsTransformError):  # the server takes it, but we do not
                return Transform(transform.get("src") or ">", transform["dest"])
        return None

    def impossible(self) -> Iterator[str]:
        """Why nothing can be replayed into this stream at all."""
        config = self.state.config
        for field, why in (
            ("mirror", "is a mirror, which only takes its origin's messages"),
            ("sealed", "is sealed"),
            ("no_ack", "does not acknowledge messages (no_ack)"),
            ("allow_msg_counter", "is made of counters, which only take increments"),
        ):
            if config.get(field):
                yield f"stream {self.name} {why}"

    def forgets(self) -> Iterator[str]:
        """The settings by which the stream removes messages, so it cannot tell what was sent."""
        config = self.state.config
        if (retention := config.get("retention", "limits")) != "limits":
            yield f"retention {retention}"
        for field in ("max_age", "max_msgs_per_subject"):
            refuses_instead = config.get("discard_new_per_subject") and field != "max_age"
            if config.get(field, 0) > 0 and not refuses_instead:
                yield field
        for field in ("max_msgs", "max_bytes"):
            if config.get(field, -1) > 0 and config.get("discard", "old") == "old":
                yield field

    def room(self) -> int | None:
        """How many more messages `max_msgs` allows; None if it makes room, or has no limit."""
        limit: int = self.state.config.get("max_msgs", -1)
        if limit <= 0 or self.state.config.get("discard", "old") == "old" or any(self.forgets()):
            return None
        return max(limit - self.state.messages, 0)

    @property
    def is_readable(self) -> bool:
        """Whether a new consumer can read the stream without changing it."""
        return bool(self.state.config.get("retention", "limits") == "limits")

    def fault(self, subject: str) -> str | None:
        """Why a message with this subject would not be stored here; None if it would be."""
        filters = [f for f in self.state.config.get("subjects") or () if subscribes(f, subject)]
        if not filters:
            return f"stream {self.name} does not capture it"
        if subject.startswith("$"):
            first = subject.partition(SEPARATOR)[0]
            if all(f.partition(SEPARATOR)[0] != first for f in filters):
                return f"stream {self.name} captures it only by a wildcard, not as {first}"
        return None

    def stored_as(self, subject: str) -> str:
        """The subject that the message gets here by the stream's ingress transform."""
        return (self._ingress.apply(subject) if self._ingress else None) or subject

    async def messages(
        self, nats: NatsSettings, first: int, last: int
    ) -> AsyncIterator[tuple[int, Replayed | None]]:
        """Sequence here of each message first..last, and which archived one it is."""
        settings = JetStreamSettings(stream=self.name, headers_only=True)
        async for batch in read_range(nats, settings, first, last, self.state):
            listed = pairs_of(batch.column("headers"))
            for seq, pairs in zip(batch.column("seq").to_pylist(), listed, strict=True):
                yield seq, self._replayed(pairs)

    async def tail(self, client: RawClient, first: int, last: int) -> dict[int, Replayed | None]:
        """Reads a short range as `messages` does, over an existing connection."""
        if last - first >= _ONE_BY_ONE and self.is_readable:
            return {
                seq: source async for seq, source in self.messages(client.settings, first, last)
            }
        if last - first >= _MOST_ONE_BY_ONE:
            raise ArchiveError(
                "target-too-far-ahead", stream=self.name, where=client.where, count=last - first + 1
            )
        sources: dict[int, Replayed | None] = {}
        for at in range(first, last + 1, _AT_ONCE):
            sequences = range(at, min(at + _AT_ONCE, last + 1))
            reads = (self._stored(client, seq) for seq in sequences)
            for seq, message in zip(sequences, await asyncio.gather(*reads), strict=True):
                if message is not None:
                    sources[seq] = self._replayed(parse_headers(base64.b64decode(message.hdrs)))
        return sources

    def _replayed(self, pairs: Iterable[Pair]) -> Replayed | None:
        found = replayed(pairs)
        is_ours = found is not None and (not self.archived or found.seq in self.archived)
        return found if is_ours else None

    async def _stored(self, client: RawClient, seq: int) -> Stored | None:
        """A message as the API has it; None if the stream does not hold it any more."""
        try:
            subject = f"STREAM.MSG.GET.{self.name}"
            return (await api(client, Message, subject, {"seq": seq})).message
        except ApiError as error:
            if error.err_code == MESSAGE_NOT_FOUND:
                return None
            raise


class Sent:
    """The messages of one archive and mapping version that a target has, in bounded memory."""

    def __init__(self) -> None:
        self._new, self._folded = list[tuple[int, int]](), list[Sequences]()
        self._times, self._every = np.empty((0, 2), np.int64), 1  # of every so many messages

    def add(self, replayed: Replayed) -> None:
        """Adds a message of the target."""
        self._new.append((replayed.seq, replayed.ts_ns))
        if len(self._new) >= FOLDED:
            self._fold()

    def _fold(self) -> None:
        new = np.array(self._new, np.int64)
        self._new = []
        self._folded = [Sequences.together([*self._folded, Sequences.of(new[:, 0])])]
        timed = new[new[:, 1] != NO_TIME][:: self._every]
        self._times = np.concatenate([self._times, timed])
        if len(self._times) > TIMES:
            self._times, self._every = self._times[::2], 2 * self._every

    def close(self) -> tuple[Range, ...]:
        """The archived sequences, when all messages have been added."""
        if self._new:
            self._fold()
        self._times = self._times[np.argsort(self._times[:, 0], kind="stable")]
        return self._folded[0].ranges if self._folded else ()

    def replaced(self, rows: pa.RecordBatch) -> Iterator[tuple[int, int, int]]:
        """Sequence, sent time and archived time of rows that are not the messages of the target."""
        if not len(self._times):
            return
        known, sent = self._times.T
        seqs, times = (rows.column(name).to_numpy() for name in ("seq", "ts_ns"))
        at = np.searchsorted(known, seqs).clip(max=len(known) - 1)
        differs = (known[at] == seqs) & (sent[at] != times)
        columns = (seqs[differs], sent[at][differs], times[differs])
        yield from zip(*(column.tolist() for column in columns), strict=True)
