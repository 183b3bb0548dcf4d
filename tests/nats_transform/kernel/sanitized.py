"""Runs tests of the kernel where the library is built with sanitizers: see test_sanitizers.py.

Every buffer of a result is then a block of its own size exactly, with nothing behind it that may be
written. Arrow itself rounds sizes up to 64 bytes.
"""

from __future__ import annotations

import ctypes
import sys

import pyarrow as pa
import pytest

from tests.nats_transform.kernel.comparing import exact_buffer


class Growing:
    """A buffer that can be resized, as far as the kernel's callers use it."""

    def __init__(self, size: int) -> None:
        self._buffer = exact_buffer(size)

    @property
    def address(self) -> int:
        return int(self._buffer.address)

    @property
    def size(self) -> int:
        return int(self._buffer.size)

    def resize(self, size: int) -> None:
        larger = exact_buffer(size)
        ctypes.memmove(larger.address, self._buffer.address, self._buffer.size)
        self._buffer = larger

    def slice(self, start: int, length: int) -> pa.Buffer:
        return self._buffer.slice(start, length)


def allocate(size: int, resizable: bool = False) -> pa.Buffer | Growing:
    return Growing(size) if resizable else exact_buffer(size)


if __name__ == "__main__":
    pa.allocate_buffer = allocate
    sys.exit(pytest.main(sys.argv[1:]))
