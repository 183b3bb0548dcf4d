"""The blocks that a dump is read in, and the choice of messages among their rows.

The columns of a dump have the names of the table's columns, unless `DumpColumns` gives others. A
dump needs `subject` and a time: `ts` or `time` (a timestamp, ISO 8601, or an epoch in s, ms, us or
ns), or `ts_ns` (nanoseconds). It may have `cluster`, `headers`, `data` and `seq`; without `seq`,
messages are numbered in the order of the files.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from threading import Lock

import pyarrow as pa
import pyarrow.compute as pc

from jobs.errors import ArchiveError
from jobs.settings.ingest import LARGEST_SEQUENCE, IngestSettings
from jobs.sources.files import DumpFile
from jobs.warehouse.rows import constant, header_values

NO_TIME = "no column ts, ts_ns or time; name it with --time-column"
BLOCK_BYTES = 64 * 2**20
"""How many bytes of a file one task reads, if the file can be cut."""
KEPT_BYTES = 2**30
"""At most so many bytes of rows wait on the disk. Blocks beyond them are parsed again."""


@dataclass(frozen=True, slots=True)
class Block:
    """The part of a file that one task reads.

    Attributes:
        start, end: bytes of JSON lines, or row groups of Parquet; the end is exclusive, and None
            is the end of the file.
        messages: how many messages begin in it.
        number: the place of its first message in the file, from 1.
        seq: the sequence of its first message, if the dump has no sequences.
    """

    file: DumpFile
    start: int = 0
    end: int | None = None
    messages: int = 0
    number: int = 1
    seq: int = 1


ReadBlock = Callable[[Block], Iterator[pa.RecordBatch]]
"""Gives the messages of a block, as `jobs.warehouse.rows` has them; it can be pickled.

It raises ArchiveError if the file cannot be read, or has something that is no message.
"""


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


def numbered(blocks: Sequence[Block], first_seq: int) -> list[Block]:
    """The blocks of files in their order, with the numbers of their first messages.

    Raises:
        ArchiveError: a number is no sequence any more.
    """
    with_numbers, seq, number, path = list[Block](), first_seq, 1, None
    for block in blocks:
        number = number if block.file.path == path else 1
        path = block.file.path
        with_numbers.append(replace(block, number=number, seq=seq))
        seq += block.messages
        number += block.messages
    if seq - 1 > LARGEST_SEQUENCE:
        raise ArchiveError(
            "dump-sequence-too-large", path=path, sequence=seq - 1, largest=LARGEST_SEQUENCE
        )
    return with_numbers


def chosen(rows: pa.RecordBatch, settings: IngestSettings) -> pa.RecordBatch:
    """The rows that the settings of an ingest ask for, with their clusters."""
    match settings.since:
        case int(first):
            rows = _where(pc.greater_equal(rows.column("seq"), first), rows)
        case datetime() as since:
            rows = _where(pc.greater_equal(rows.column("ts"), _moment(since)), rows)
    match settings.until:
        case int(last):
            rows = _where(pc.less_equal(rows.column("seq"), last), rows)
        case datetime() as until:
            rows = _where(pc.less(rows.column("ts"), _moment(until)), rows)
    place, clusters = rows.schema.get_field_index("cluster"), rows.column("cluster")
    if settings.cluster is not None:
        clusters = constant(settings.cluster, len(rows))
    elif settings.cluster_header is not None:
        values = header_values(rows.column("headers"), settings.cluster_header, clusters)
        clusters = values.dictionary_encode()
    return rows.set_column(place, "cluster", clusters)


def _where(is_wanted: pa.Array, rows: pa.RecordBatch) -> pa.RecordBatch:
    """The wanted rows; one that has no sequence or time is refused later, so it stays."""
    return rows.filter(pc.fill_null(is_wanted, True))


def _moment(moment: datetime) -> pa.Scalar:
    return pa.scalar(moment, pa.timestamp("us", "UTC"))
