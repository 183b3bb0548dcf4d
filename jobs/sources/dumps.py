"""The parts that all dumps share: their columns, their blocks, and the choice of messages.

The columns of a dump have the names of the table's columns, unless `DumpColumns` gives others. A
dump needs `subject` and a time: `ts` or `time` (a timestamp, ISO 8601, or an epoch in s, ms, us or
ns), or `ts_ns` (nanoseconds). It may have `cluster`, `headers`, `data` and `seq`; without `seq`,
messages are numbered in the order of the files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from jobs.errors import ArchiveError
from jobs.settings.ingest import LARGEST_SEQUENCE, IngestSettings
from jobs.sources.files import DumpFile
from jobs.warehouse.rows import constant, header_values

NO_TIME = "no column ts, ts_ns or time; name it with --time-column"
BLOCK_BYTES = 64 * 2**20
"""How many bytes of a file one task reads, if the file can be cut."""


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
            f"{path}: the last message would be sequence {seq - 1}, but the largest is "
            f"{LARGEST_SEQUENCE}; give a lower --first-seq"
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
