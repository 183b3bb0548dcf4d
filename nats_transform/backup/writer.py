"""Writes the archive of a stream backup, in one pass and with bounded memory.

The state of the stream comes first in an archive, but it is only known at the end. So the writer
leaves room for it after the start of the S2 stream and fills it at the end. Readers skip the rest
of that room.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nats_transform.backup.archive import LARGEST_HEADERS, LARGEST_MESSAGE, MAGIC
from nats_transform.backup.library import library
from nats_transform.backup.s2 import IDENTIFIER, Encoder, Writable, chunk, padding
from nats_transform.errors import InvalidBackup

_ROOM = 8192  # bytes for the state of the stream
_ENTRY_BYTES = 44  # what an entry needs beside its texts, at most; as in archive.c
_END = bytes(5)  # an entry with an empty name and zeros
_NO_TIME = "0001-01-01T00:00:00Z"


class Seekable(Writable, Protocol):
    """A file that can be written from a place on."""

    def seek(self, offset: int, /) -> object:
        """Goes to a byte."""


class ArchiveWriter:
    """Writes an archive into a file.

    Args:
        file: an empty file, which stays open.
        consumers: the `config` and `state` of each consumer by its name, as in `Head`.
        is_memory: whether the stream keeps its messages in memory, which decides how many bytes the
            server counts for each of them.
    """

    def __init__(
        self, file: Seekable, consumers: Mapping[str, Mapping[str, Any]], is_memory: bool = False
    ) -> None:
        self._file = file
        self._is_memory = is_memory
        self._consumers = len(consumers)
        self._messages = self._bytes = self._last = 0
        self._first: tuple[int, int] | None = None  # sequence and time
        self._last_time = 0
        file.write(IDENTIFIER + padding(_ROOM))
        self._encoder = Encoder(file)
        for name, consumer in consumers.items():
            self._encoder.write(_document(f"consumers/{name}", consumer))

    def write(
        self,
        sequences: pa.Array,
        times: pa.Array,
        subjects: pa.Array,
        headers: pa.Array,
        data: pa.Array,
    ) -> None:
        """Appends messages.

        Args:
            sequences: the sequences, ascending and above all earlier ones.
            times: the times, in ns since 1970.
            subjects, headers, data: binary arrays; a null stands for no headers or no data.

        Raises:
            InvalidBackup: the sequences do not ascend, or the server would not restore a message.
        """
        count = len(sequences)
        if not count:
            return
        numbers = np.ascontiguousarray(sequences.to_numpy(), np.int64)
        moments = np.ascontiguousarray(times.to_numpy(), np.int64)
        if not (np.diff(numbers, prepend=self._last) > 0).all():
            raise InvalidBackup("new-backup-sequences-fall", last=self._last)
        texts = [_plain(column) for column in (subjects, headers, data)]
        sizes = [np.diff(offsets).astype(np.int64) for offsets, _ in texts]
        for fault, where in (
            ("has no subject", sizes[0] == 0),
            ("has more than 128 KiB of headers", sizes[1] > LARGEST_HEADERS),
            ("is larger than 64 MiB", sizes[1] + sizes[2] > LARGEST_MESSAGE),
        ):
            if where.any():
                raise InvalidBackup(
                    "new-backup-message", sequence=numbers[np.argmax(where)], fault=fault
                )
        total = int(sum(part.sum() for part in sizes))
        out = np.empty(total + count * _ENTRY_BYTES, np.uint8)
        columns = np.array([[o.ctypes.data, b.ctypes.data] for o, b in texts], np.uintp)
        length = library().nats_archive_write(
            columns.ctypes, moments.ctypes, numbers.ctypes, count, out.ctypes
        )
        self._encoder.write(out[:length].data)
        self._first = self._first or (int(numbers[0]), int(moments[0]))
        self._last, self._last_time = int(numbers[-1]), int(moments[-1])
        self._messages += count
        self._bytes += total + self._overhead(sizes[1])

    def _overhead(self, header_sizes: np.ndarray[Any, Any]) -> int:
        """The bytes that `fileStoreMsgSizeRaw` or `memStoreMsgSizeRaw` count beside the texts."""
        if self._is_memory:
            return 16 * len(header_sizes)
        return 30 * len(header_sizes) + 4 * int(np.count_nonzero(header_sizes))

    def close(self, last: int = 0) -> dict[str, Any]:
        """Completes the archive; returns the state of the stream, which also goes to `backup.json`.

        Args:
            last: the last sequence that the stream has used, if messages after the written ones
                were deleted.
        """
        last = max(last, self._last)
        first, first_time = self._first or (last + 1, None)
        state = {
            "messages": self._messages,
            "bytes": self._bytes,
            "first_seq": first,
            "first_ts": _NO_TIME if first_time is None else utc(first_time),
            "last_seq": last,
            "last_ts": _NO_TIME if first_time is None else utc(self._last_time),
            "consumer_count": self._consumers,
        }
        self._encoder.write(_END)
        self._encoder.close()
        head = chunk(MAGIC + _document("state.json", state))
        self._file.seek(len(IDENTIFIER))
        self._file.write(head + padding(_ROOM - len(head)))
        return state


def utc(time: int) -> str:
    """A time in ns since 1970 as the server writes it.

    >>> utc(1_700_000_000_000_000_001)
    '2023-11-14T22:13:20.000000001Z'
    """
    seconds, rest = divmod(time, 10**9)
    moment = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{moment}.{rest:09}".rstrip("0").rstrip(".") + "Z"


def _plain(column: pa.Array) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The offsets and the bytes of a column of texts, without missing ones."""
    if column.null_count:
        column = pc.fill_null(column, b"")
    column = column.cast(pa.binary())
    _, offsets, texts = column.buffers()
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    # An array without bytes has no buffer, and the C wants an address.
    has_bytes = texts is not None and texts.size > 0
    return ends, np.frombuffer(texts, np.uint8) if has_bytes else np.zeros(1, np.uint8)


def _document(name: str, content: Any) -> bytes:
    """An entry with JSON."""
    text = json.dumps(content).encode()
    document = np.empty(len(name) + len(text) + _ENTRY_BYTES, np.uint8)
    texts = [_plain(pa.array([part], pa.binary())) for part in (name.encode(), b"", text)]
    columns = np.array([[o.ctypes.data, b.ctypes.data] for o, b in texts], np.uintp)
    zero = np.zeros(1, np.int64)
    length = library().nats_archive_write(
        columns.ctypes, zero.ctypes, zero.ctypes, 1, document.ctypes
    )
    return document[:length].tobytes()
