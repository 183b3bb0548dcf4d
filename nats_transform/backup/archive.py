"""The archive in a stream backup: state, consumers and messages of a stream, one behind the other.

It starts with the bytes `NATSARC1`. Then come entries: the state of the stream as JSON, one entry
for each consumer, the messages by ascending sequence, and an entry of zeros, which shows that
nothing was cut off. All of it is packed as S2. Sources: nats-server 2.15
`server/archive/archive.go` and `server/stream_backup.go`, which write and restore it.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import ValidationError

from nats_transform.backup.library import Bytes, Numbers, checked, library
from nats_transform.backup.s2 import LARGEST_BLOCK, Decoder, Readable
from nats_transform.errors import InvalidBackup, first_fault
from nats_transform.mappings.subject import decode
from nats_transform.streams.state import StreamNumbers
from nats_transform.untrusted import visible

MAGIC = b"NATSARC1"
LARGEST_MESSAGE = 64 * 2**20
"""The most bytes of headers and payload; nats-server allows no larger `max_payload`."""
LARGEST_HEADERS = 128 * 2**10
"""The most bytes of headers: nats-server stores 64 KiB of a client, and adds some of its own."""
# What the state and all consumers may have together, in bytes: so much, and so much for each byte
# of the file. The states of real consumers are packed to a third, those of hostile ones to nothing.
_DOCUMENTS, _DOCUMENTS_A_BYTE = 2 * 2**20, 10
_DOCUMENT = 256  # what a document counts beside its bytes
_BUFFER = 8 * 2**20  # unpacked bytes that are held at a time
_BATCH = 65_536  # messages
HEADERS_AT_ONCE = 2 * 2**20  # bytes; what is parsed of them takes 30 times as much
_STATE, _CONSUMER = b"state.json", b"consumers/"

# The numbers of an entry; keep in step with archive.c.
_NAME_AT, _NAME_SIZE, _TIME, _SEQUENCE, _HEADER_SIZE, _DATA_SIZE = range(6)


@dataclass(frozen=True)
class Point:
    """A place in an archive where reading can start.

    Attributes:
        offset: the offset of a chunk in the file.
        skipped: how many unpacked bytes lie between the start of this chunk and the place.
        position: the position of the place among all unpacked bytes.
        after: a sequence that is below every later one.
        state: the state of a decoder at the start of the chunk.
    """

    offset: int
    skipped: int
    position: int
    after: int
    state: int


@dataclass(frozen=True)
class Head:
    """The part of an archive in front of its messages.

    Attributes:
        state: the state of the stream, as the server writes it.
        consumers: the document of each consumer by its name, for `parse_consumer`.
        messages: the place where the messages start.
    """

    state: Mapping[str, Any]
    consumers: Mapping[str, bytes]
    messages: Point


@dataclass(frozen=True)
class Batch:
    """Messages that follow each other.

    Attributes:
        start: the place of the first message.
        sequences, times: the sequence and the time of each message; times are in ns since 1970.
    """

    start: Point
    sequences: Numbers
    times: Numbers
    _buffer: Bytes
    _entries: Numbers

    def __len__(self) -> int:
        return len(self.sequences)

    def cut(self, first: int, end: int) -> Batch:
        """The messages from number `first` on, up to but not including number `end`."""
        part = slice(first, end)
        entries = self._entries[part]
        return Batch(self.start, self.sequences[part], self.times[part], self._buffer, entries)

    def parts(self) -> Iterator[Batch]:
        """The same messages in parts, so that not all of their headers are parsed at once."""
        sizes = np.cumsum(self._entries[:, _HEADER_SIZE])
        edges = np.searchsorted(sizes, np.arange(0, sizes[-1], HEADERS_AT_ONCE), "right")
        for first, end in pairwise([*dict.fromkeys([0, *edges.tolist()]), len(self)]):
            yield self.cut(first, end)

    def subjects(self) -> pa.Array:
        """The subjects; their bytes need not be UTF-8."""
        return self._gathered(0, self._entries[:, _NAME_SIZE])

    def headers(self) -> pa.Array:
        """The header blocks as they are stored; empty where there is none."""
        entries = self._entries
        return self._gathered(entries[:, _NAME_SIZE], entries[:, _HEADER_SIZE])

    def data(self) -> pa.Array:
        """The payloads."""
        entries = self._entries
        before = entries[:, _NAME_SIZE] + entries[:, _HEADER_SIZE]
        return self._gathered(before, entries[:, _DATA_SIZE])

    def _gathered(self, before: Numbers | int, sizes: Numbers) -> pa.Array:
        starts, sizes = self._entries[:, _NAME_AT] + before, np.ascontiguousarray(sizes)
        offsets = np.zeros(len(sizes) + 1, np.int32)
        np.cumsum(sizes, out=offsets[1:])
        texts = np.empty(max(int(offsets[-1]), 1), np.uint8)
        library().nats_gather(
            self._buffer.ctypes, starts.ctypes, sizes.ctypes, len(sizes), texts.ctypes
        )
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(texts)]
        return pa.Array.from_buffers(pa.binary(), len(sizes), buffers)


def first_bytes(file: Readable) -> bytes:
    """The first eight bytes of the unpacked file: `MAGIC`, or those of some other content.

    Raises:
        InvalidBackup: it is no S2 stream, or has fewer.
    """
    out = np.empty(LARGEST_BLOCK, np.uint8)
    length = Decoder(file).into(out)
    if length < len(MAGIC):
        raise InvalidBackup("backup-empty")
    return out[: len(MAGIC)].tobytes()


def read_head(file: Readable) -> Head:
    """The part of the archive in a file that comes before its messages.

    Raises:
        InvalidBackup: it is not an archive, or it is damaged.
    """
    left = _DOCUMENTS + _DOCUMENTS_A_BYTE * file.seek(0, os.SEEK_END)
    unpacked = _Unpacked(file, Point(0, 0, 0, 0, 0))
    if unpacked.take(len(MAGIC)) != MAGIC:
        raise InvalidBackup("backup-not-magic", magic=MAGIC.decode())
    name, text = unpacked.document(left)
    if name != _STATE:
        raise InvalidBackup("backup-first-entry", entry=_shown(name), state=_STATE.decode())
    try:
        state = StreamNumbers.model_validate_json(text)
    except ValidationError as error:
        raise InvalidBackup(
            "backup-state-invalid", state=_STATE.decode(), reason=first_fault(error)
        ) from None
    consumers: dict[str, bytes] = {}
    for _ in range(state.consumer_count):
        left -= len(name) + len(text) + _DOCUMENT
        name, text = unpacked.document(left)
        if not name.startswith(_CONSUMER):
            raise InvalidBackup(
                "backup-consumer-count",
                consumers=len(consumers),
                state=_STATE.decode(),
                said=state.consumer_count,
            )
        consumers[_shown(name.removeprefix(_CONSUMER))] = text
    messages = unpacked.point(max(state.first_seq, 1) - 1)
    return Head(state.model_dump(), consumers, messages)


def read_messages(file: Readable, start: Point) -> Iterator[Batch]:
    """The messages from a place on, to the end of the archive.

    Raises:
        InvalidBackup: the archive is damaged, cut off, or out of order.
    """
    unpacked = _Unpacked(file, start)
    after = start.after
    while True:
        point, buffer, entries = unpacked.entries(_BATCH, LARGEST_MESSAGE, after)
        ends = np.flatnonzero(entries[:, _SEQUENCE] == 0)
        messages = entries[: ends[0]] if len(ends) else entries
        sequences = np.ascontiguousarray(messages[:, _SEQUENCE])
        rises = np.diff(sequences, prepend=after) > 0
        if not rises.all():
            place = int(np.argmin(rises))
            before = after if place == 0 else int(sequences[place - 1])
            raise InvalidBackup("backup-sequences-fall", sequence=sequences[place], before=before)
        if len(messages):
            if not messages[:, _NAME_SIZE].all():
                place = int(np.argmin(messages[:, _NAME_SIZE]))
                raise InvalidBackup("backup-no-subject", sequence=sequences[place])
            if messages[:, _HEADER_SIZE].max() > LARGEST_HEADERS:
                place = int(np.argmax(messages[:, _HEADER_SIZE]))
                raise InvalidBackup("backup-headers-too-large", sequence=sequences[place])
            after = int(sequences[-1])
            times = np.ascontiguousarray(messages[:, _TIME])
            yield Batch(point, sequences, times, buffer, np.ascontiguousarray(messages))
        if len(ends):
            end = entries[ends[0]]
            if any(end[column] for column in (_NAME_SIZE, _TIME, _HEADER_SIZE, _DATA_SIZE)):
                raise InvalidBackup("backup-no-sequence", after=after)
            if len(messages) + 1 < len(entries) or unpacked.has_more():
                raise InvalidBackup("backup-goes-on")
            return


class _Unpacked:
    """The unpacked bytes of an archive, as far as they are needed."""

    def __init__(self, file: Readable, start: Point) -> None:
        self._decoder = Decoder(file, start.offset, start.state)
        self._buffer = np.empty(0, np.uint8)
        self._start = 0  # of what is not taken yet, in the buffer
        self._position = start.position - start.skipped  # of that, in the archive
        # Places in the archive where chunks start, and where these are in the file.
        self._chunks = [(self._position, start.offset)]
        self.take(start.skipped)

    def point(self, after: int) -> Point:
        """The place of what is not taken yet."""
        while len(self._chunks) > 1 and self._chunks[1][0] <= self._position:
            del self._chunks[0]
        position, offset = self._chunks[0]
        skipped = self._position - position
        # At the start of the file the identifier of the stream is still to come.
        state = self._decoder.state if offset else 0
        return Point(offset, skipped, self._position, after, state)

    def take(self, count: int) -> bytes:
        """The next bytes."""
        while len(self._buffer) - self._start < count:
            if not self._more():
                raise InvalidBackup("backup-cut-off")
        taken = self._buffer[self._start : self._start + count].tobytes()
        self._move(count)
        return taken

    def entries(self, most: int, largest: int, after: int) -> tuple[Point, Bytes, Numbers]:
        """The place of the next entries, the buffer that they are in, and their numbers."""
        while True:
            point, buffer = self.point(after), self._buffer[self._start :]
            entries = np.empty((min(most, len(buffer) // 5 + 1), 6), np.int64)
            consumed = ctypes.c_int64()
            result = library().nats_archive_scan(
                *(buffer.ctypes, len(buffer), len(entries), largest, entries.ctypes),
                ctypes.byref(consumed),
            )
            try:
                count = checked(result)
            except InvalidBackup as error:
                raise InvalidBackup(
                    "backup-unpacked-fault", reason=error, position=self._position
                ) from None
            self._move(consumed.value)
            if count:
                return point, buffer, entries[:count]
            if not self._more():
                raise InvalidBackup("backup-cut-off")

    def document(self, largest: int) -> tuple[bytes, bytes]:
        """The next entry: its name and its content."""
        _, buffer, entries = self.entries(1, max(largest, 0), 0)
        at, name_size, _, _, header_size, data_size = entries[0]
        end = at + name_size
        name, text = buffer[at:end], buffer[end : end + header_size + data_size]
        return name.tobytes(), text.tobytes()

    def has_more(self) -> bool:
        """Whether there is something that is not taken yet."""
        return self._start < len(self._buffer) or self._more()

    def _move(self, count: int) -> None:
        self._start += count
        self._position += count

    def _more(self) -> bool:
        """Unpacks more behind what is not taken yet; whether there was something.

        The buffer is a new one each time: batches hold on to the older ones.
        """
        left = len(self._buffer) - self._start
        buffer = np.empty(max(_BUFFER, 2 * left) + LARGEST_BLOCK, np.uint8)
        buffer[:left] = self._buffer[self._start :]
        self._chunks.append((self._position + left, self._decoder.offset))
        length = self._decoder.into(buffer[left:])
        self._buffer, self._start = buffer[: left + length], 0
        return length > 0


def _shown(name: bytes) -> str:
    text = visible(decode(name))
    return text if len(text) <= 100 else f"{text[:100]}..."
