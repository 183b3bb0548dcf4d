"""Reads a dump that is looked through before it is written, but parses it once."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from functools import partial
from threading import Lock

import pyarrow as pa

from jobs.sources.dumps import Block, ReadBlock

KEPT_BYTES = 2**30
"""At most so many bytes of rows wait on the disk. Blocks beyond them are parsed again."""


class ReadOnce:
    """Reads blocks, and keeps their rows for the next time in a file that has no name.

    So nothing is left of the file when the process dies. Leaving the context closes it. A worker of
    Spark, which can't see the file, gets the reader itself.
    """

    def __init__(self, read: ReadBlock) -> None:
        self._read = read
        self._places: dict[Block, list[tuple[int, int]]] = {}
        self._size, self._lock, self._has_room = 0, Lock(), True

    def __enter__(self) -> ReadOnce:
        self._file = tempfile.TemporaryFile(buffering=0)
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __reduce__(self) -> tuple[object, ...]:
        return partial, (self._read,)

    def __call__(self, block: Block) -> Iterator[pa.RecordBatch]:
        """The messages of a block; raises what the reader raises."""
        if block in self._places:
            for place, size in self._places[block]:
                kept = pa.py_buffer(os.pread(self._file.fileno(), size, place))
                yield pa.ipc.open_stream(kept).read_next_batch()
            return
        places = []
        for rows in self._read(block):
            if self._has_room:
                places.append(self._keep(rows))
            yield rows
        if self._has_room:
            self._places[block] = places

    def _keep(self, rows: pa.RecordBatch) -> tuple[int, int]:
        """Where the rows are in the file, and their size there."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as stream:
            stream.write_batch(rows)
        data = memoryview(sink.getvalue())
        with self._lock:
            place = self._size
            self._size += len(data)
        self._has_room = self._has_room and place + len(data) <= KEPT_BYTES
        written = 0
        try:
            while self._has_room and written < len(data):
                written += os.pwrite(self._file.fileno(), data[written:], place + written)
        except OSError:  # the disk is full
            self._has_room = False
        return place, len(data)
