"""The parts that all dumps share: their columns, their blocks, and the choice of messages.

The columns of a dump have the names of the table's columns, unless `DumpColumns` gives others. A
dump needs `subject` and a time: `ts` or `time` (a timestamp, ISO 8601, or an epoch in s, ms, us or
ns), or `ts_ns` (nanoseconds). It may have `cluster`, `headers`, `data` and `seq`; without `seq`,
messages are numbered in the order of the files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from jobs.sources.files import DumpFile
from jobs.warehouse.rows import constant, header_values

NO_TIME = "no column ts, ts_ns or time; name it with --time-column"
BLOCK_BYTES = 64 * 2**20
"""How many bytes of a file one task reads, if the file can be cut."""


@dataclass(frozen=True, slots=True)
class Block:
    """The part of a file that one task reads.

    Attributes:
        file: the file.
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


class ReadBlock(Protocol):
    """Reads blocks of a dump, in tasks; it can be pickled."""

    def __call__(self, block: Block) -> Iterator[pa.RecordBatch]:
        """The messages of a block, as `jobs.warehouse.rows` has them.

        Raises:
            ArchiveError: the file cannot be read, or has something that is no message.
        """


def numbered(blocks: Sequence[Block], first_seq: int) -> list[Block]:
    """The blocks of files in their order, with the numbers of their first messages."""
    found, seq, number, path = list[Block](), first_seq, 1, None
    for block in blocks:
        number = number if block.file.path == path else 1
        path = block.file.path
        found.append(replace(block, number=number, seq=seq))
        seq += block.messages
        number += block.messages
    return found


@dataclass(frozen=True)
class Choice:
    """Which messages of a dump are wanted, and where they were published.

    Attributes:
        since: the first sequence, or the first moment (with a zone).
        until: the last sequence (included), or the end of the time (excluded).
        cluster, cluster_header: the same as in the settings of an ingest.
    """

    since: int | datetime | None = None
    until: int | datetime | None = None
    cluster: str | None = None
    cluster_header: str | None = None

    def of(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The wanted rows, with their clusters."""
        match self.since:
            case int():
                rows = rows.filter(pc.greater_equal(rows.column("seq"), self.since))
            case datetime():
                rows = rows.filter(pc.greater_equal(rows.column("ts"), _moment(self.since)))
        match self.until:
            case int():
                rows = rows.filter(pc.less_equal(rows.column("seq"), self.until))
            case datetime():
                rows = rows.filter(pc.less(rows.column("ts"), _moment(self.until)))
        place = rows.schema.get_field_index("cluster")
        if self.cluster is not None:
            return rows.set_column(place, "cluster", constant(self.cluster, len(rows)))
        if self.cluster_header is not None:
            values = header_values(
                rows.column("headers"), self.cluster_header, rows.column("cluster")
            )
            return rows.set_column(place, "cluster", values.dictionary_encode())
        return rows


def _moment(moment: datetime) -> pa.Scalar:
    return pa.scalar(moment, pa.timestamp("us", "UTC"))
