"""S2 streams, read and written.

nats-server writes them with klauspost/compress: blocks of up to 4 MB, and copies that repeat the
last offset. No maintained Python library reads these. The blocks that we write are made by Snappy,
and every reader of S2 knows them. For the sources see s2.c.
"""

from __future__ import annotations

import ctypes
from typing import Protocol

import numpy as np
import pyarrow as pa

from nats_transform.backup.library import Bytes, checked, library
from nats_transform.errors import InvalidBackup

LARGEST_BLOCK = 4 * 2**20
"""Bytes that one chunk unpacks to, at most."""
IDENTIFIER = b"\xff\x06\x00\x00S2sTwO"
"""The bytes that every stream starts with."""
_BLOCK = 2**20  # what writers of S2 take
_READ_BYTES = 4 * 2**20


class Readable(Protocol):
    """A file of Python or pyarrow that can be read from any place."""

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Goes to a byte, counted from the start, or with 2 from the end; returns its place."""

    def read(self, size: int, /) -> bytes:
        """The next bytes; fewer than asked for only at the end."""


class Writable(Protocol):
    """A file that can be written, front to back."""

    def write(self, data: bytes, /) -> object:
        """Appends bytes."""


class Decoder:
    """Unpacks a stream from one of its chunks on.

    Args:
        file: the file with the stream. Nobody else may change its position.
        offset: the offset of the chunk in the file.
        state: 0 at the start of the stream; elsewhere the state of another decoder there.

    Attributes:
        offset: the offset of the first chunk that is not unpacked yet.
    """

    def __init__(self, file: Readable, offset: int = 0, state: int = 0) -> None:
        file.seek(offset)
        self.offset = offset
        self._file = file
        self._state = ctypes.c_int32(state)
        self._packed = b""
        self._is_at_end = False

    @property
    def state(self) -> int:
        """The state with which another decoder can go on at `offset`."""
        return self._state.value

    def into(self, out: Bytes) -> int:
        """Unpacks as many chunks as there is room for; returns the number of unpacked bytes.

        It is 0 only at the end of the stream. There must be room for `LARGEST_BLOCK`.

        Raises:
            InvalidBackup: the stream is damaged or cut off.
        """
        while True:
            length = self._unpack(out)
            if length or (self._is_at_end and not self._packed):
                return length
            if self._is_at_end:
                raise InvalidBackup("backup-cut-off-at", offset=self.offset + len(self._packed))
            more = self._file.read(_READ_BYTES)
            self._is_at_end = not more
            self._packed += more

    def _unpack(self, out: Bytes) -> int:
        packed = np.frombuffer(self._packed, np.uint8)
        consumed = ctypes.c_int64()
        length = library().nats_s2_decode(
            *(packed.ctypes, len(packed), out.ctypes, len(out)),
            *(ctypes.byref(self._state), ctypes.byref(consumed)),
        )
        self.offset += consumed.value
        self._packed = self._packed[consumed.value :]
        try:
            return checked(length)
        except InvalidBackup as error:
            raise InvalidBackup("backup-packed-fault", reason=error, offset=self.offset) from None


class Encoder:
    """Packs everything after the identifier of a stream. `close` completes the file."""

    def __init__(self, file: Writable) -> None:
        self._file = file
        self._codec = pa.Codec("snappy")
        self._pending = bytearray()

    def write(self, data: bytes | memoryview) -> None:
        """Appends bytes."""
        self._pending += data
        end = len(self._pending) - len(self._pending) % _BLOCK
        for start in range(0, end, _BLOCK):
            self._put(self._pending[start : start + _BLOCK])
        del self._pending[:end]

    def close(self) -> None:
        """Writes what is left; the file itself stays open."""
        if self._pending:
            self._put(self._pending)
        self._pending = bytearray()

    def _put(self, block: bytearray) -> None:
        packed = self._codec.compress(block, asbytes=True)
        is_smaller = len(packed) < len(block) * 7 // 8
        self._file.write(chunk(bytes(block), packed if is_smaller else None))


def chunk(data: bytes, packed: bytes | None = None) -> bytes:
    """A chunk with some data, or with the packed block of the data if that is given."""
    plain = np.frombuffer(data, np.uint8)
    checksum = library().nats_checksum(plain.ctypes, len(plain))
    body = data if packed is None else packed
    return b"".join(
        (
            b"\x01" if packed is None else b"\x00",
            (len(body) + 4).to_bytes(3, "little"),
            checksum.to_bytes(4, "little"),
            body,
        )
    )


def padding(count: int) -> bytes:
    """A chunk that readers skip, of a given number of bytes, at least 4."""
    return b"\xfe" + (count - 4).to_bytes(3, "little") + bytes(count - 4)
