"""Makes messages from archived rows, a batch at a time.

`look` says which subjects there are and which messages cannot be sent. `messages` gives the
messages of the same rows that can be sent. The rows have the `COLUMNS`; their texts may hold any
bytes.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.jetstream import wire
from jobs.jetstream.chain import CHAIN_BYTES, Outgoing
from jobs.jetstream.control import outgoing
from jobs.jetstream.headers import Pair, pairs_of
from jobs.jetstream.schedules import Rewriting, schedules_in
from jobs.jetstream.target import SOURCE, TIME
from jobs.warehouse.rows import new_subjects

COLUMNS = ("seq", "ts_ns", "subject", "mapped_subject", "headers", "headers_raw", "data")
"""The columns of `transformed_messages` that messages are made of."""


@dataclass(frozen=True)
class Making:
    """The settings with which messages are made from rows.

    Attributes:
        version, stream: the mapping version and the stream of the archive, for the header `SOURCE`.
        acts: the archived headers that may act again.
        schedules: the schedules that act again, with their new headers.
        most: how many bytes the headers and the payload of a message may have together.
    """

    version: bytes
    stream: bytes
    acts: frozenset[str]
    most: int
    schedules: Rewriting = field(default_factory=Rewriting)

    def head(
        self,
        seq: int,
        ts_ns: int,
        archived: bytes | list[Pair],
        subject: bytes,
        size: int,
    ) -> bytes:
        """The header block of a message, without the empty line at its end.

        Raises:
            Unsendable: the protocol or the target cannot carry the message.
        """
        wire.literal(subject)
        if isinstance(archived, bytes):
            # Without its first line, whose status the server drops as well.
            lines = archived.removesuffix(b"\r\n\r\n").split(b"\r\n")[1:]
        else:
            lines = [wire.header(name, value) for name, value in archived]
        acts = self.acts
        if (rewritten := self.schedules.lines(seq, lines)) is not None:
            lines, acts = rewritten, acts | {"schedule"}
        block = self._added(seq, ts_ns)
        if lines:
            block = b"\r\n".join([block[:-2], *outgoing(lines, acts), b""])
        most = min(self.most - size, wire.MAX_HEADERS) - CHAIN_BYTES
        if len(block) > most:
            raise wire.Unsendable("message-too-large", about="size", size=len(block) + size)
        return block

    def _added(self, seq: int, ts_ns: int) -> bytes:
        """The first line and the headers that every message gets."""
        time_ = iso_time(ts_ns).encode()
        source = b"%b: %b %d %b" % (SOURCE, self.version, seq, self.stream)
        return b"NATS/1.0\r\n%b\r\n%b: %b\r\n" % (source, TIME, time_)

    @cached_property
    def plain_bytes(self) -> int:
        """The longest header block of a message that had no headers, with those of the chain."""
        return len(self._added(2**63 - 1, 2**63 - 1)) + CHAIN_BYTES


def iso_time(ts_ns: int) -> str:
    """A time in nanoseconds since 1970 as ISO 8601 with nine decimals, UTC."""
    seconds, nanoseconds = divmod(ts_ns, 1_000_000_000)
    return f"{_whole(seconds)}.{nanoseconds:09}Z"


@lru_cache(1000)
def _whole(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def _archived(rows: pa.RecordBatch) -> Iterator[bytes | list[Pair]]:
    """The header block of each row as it was stored, or the pairs that it is made of."""
    blocks, listed = rows.column("headers_raw").to_pylist(), pairs_of(rows.column("headers"))
    for block, pairs in zip(blocks, listed, strict=True):
        yield pairs if block is None else block


def _sizes(rows: pa.RecordBatch) -> pa.Array:
    return pc.fill_null(pc.binary_length(rows.column("data")), 0)


def _heads(
    making: Making, rows: pa.RecordBatch
) -> Iterator[tuple[int, bytes, bytes, wire.Unsendable | None]]:
    """Sequence, subject, header block and fault of each row."""
    columns = (rows.column("seq"), rows.column("ts_ns"), new_subjects(rows), _sizes(rows))
    lists = (column.to_pylist() for column in columns)
    for seq, ts_ns, subject, size, archived in zip(*lists, _archived(rows), strict=True):
        try:
            yield seq, subject, making.head(seq, ts_ns, archived, subject, size), None
        except wire.Unsendable as fault:
            yield seq, subject, b"", fault


@dataclass(frozen=True)
class Looked:
    """The result of a look at some rows.

    Attributes:
        subjects: the number of messages that can be sent, for each subject.
        faults: the sequence of each other message and why it cannot be sent, in the order of rows.
        schedules: how many of all messages have a schedule.
    """

    subjects: Counter[bytes]
    faults: list[tuple[int, wire.Unsendable]]
    schedules: int


def look(making: Making, rows: pa.RecordBatch) -> Looked:
    """The subjects of the rows, and what is wrong with their messages."""
    coded = new_subjects(rows).dictionary_encode()
    words, numbers = coded.dictionary.to_pylist(), coded.indices.to_numpy()
    # A message without headers needs no closer look if its subject is legal and it is small.
    legal = np.fromiter(map(wire.is_literal, words), bool, len(words))
    free = min(making.most, wire.MAX_HEADERS) - making.plain_bytes
    has_none = pc.equal(pc.fill_null(rows.column("headers").value_lengths(), 0), 0)
    is_small = pc.less_equal(_sizes(rows), making.most - making.plain_bytes)
    is_plain = pc.and_(pc.and_(has_none, is_small), rows.column("headers_raw").is_null())
    sure = is_plain.to_numpy(zero_copy_only=False) & legal[numbers] & (free >= 0)
    counts = np.bincount(numbers[sure], minlength=len(words)).tolist()
    subjects = Counter({w: n for w, n in zip(words, counts, strict=True) if n})
    faults: list[tuple[int, wire.Unsendable]] = []
    for seq, subject, _, fault in _heads(making, rows.filter(pa.array(~sure))):
        if fault is None:
            subjects[subject] += 1
        else:
            faults.append((seq, fault))
    return Looked(subjects, faults, schedules_in(rows.column("headers")))


def messages(making: Making, rows: pa.RecordBatch) -> Iterator[Outgoing]:
    """The messages of the rows that can be sent, in their order."""
    payloads = rows.column("data").to_pylist()
    for (seq, subject, head, fault), data in zip(_heads(making, rows), payloads, strict=True):
        if fault is None:
            yield Outgoing(seq, subject, head, data or b"")
