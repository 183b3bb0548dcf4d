"""The tasks of an erasure: find messages, and write files anew without them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobs.files.engine import end_if_told
from jobs.files.read import Piece, batches
from jobs.files.storage import Storage
from jobs.files.text import restored_rows
from jobs.files.write import Writer, Written
from jobs.progress import advance
from jobs.warehouse.rows import Total
from nats_transform.kernel.coverage import NONE, Coverage, Sequences
from nats_transform.kernel.covering import Covering


@dataclass(frozen=True)
class Matches:
    """Messages that an erasure names."""

    sequences: Coverage = NONE
    days: Counter[date] = field(default_factory=Counter)

    def __add__(self, other: Matches) -> Matches:
        return Matches(self.sequences | other.sequences, self.days + other.days)


@dataclass(frozen=True)
class Match:
    """Finds messages. One of the attributes is given.

    Attributes:
        subject: a filter, as subscriptions have it.
        header: the exact name and value of a header, of which a message may have several.
        sequences: the sequences themselves.
    """

    subject: str | None = None
    header: tuple[bytes, bytes] | None = None
    sequences: Coverage | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """What must be read."""
        more = (("subject", self.subject), ("headers", self.header))
        return ("seq", "day", *(column for column, value in more if value is not None))

    def __call__(self, read: Iterable[pa.RecordBatch]) -> Matches:
        """The messages among these rows."""
        sequences, days = [np.array([], np.int64)], Counter[date]()
        for rows in read:
            end_if_told()
            matching = rows.filter(pa.array(self._are_meant(rows)))
            sequences.append(matching.column("seq").drop_null().to_numpy())
            for day in matching.column("day").value_counts().to_pylist():
                days[day["values"]] += day["counts"]
        numbers = np.concatenate(sequences)
        return Matches(Coverage(Sequences.of(numbers).ranges) if len(numbers) else NONE, days)

    def _are_meant(self, rows: pa.RecordBatch) -> np.ndarray:
        if self.subject is not None:
            return Covering([self.subject]).stored(rows.column("subject"))
        if self.header is None:
            return (self.sequences or NONE).has(rows.column("seq"))
        headers = rows.column("headers")
        pairs = (column.view(pa.binary()) for column in headers.flatten().flatten())
        same = [pc.equal(column, text) for column, text in zip(pairs, self.header, strict=True)]
        are_meant = np.zeros(len(rows), bool)
        parents = pc.list_parent_indices(headers)
        are_meant[parents.filter(pc.and_(*same).fill_null(False)).to_numpy()] = True
        return are_meant


class Old(NamedTuple):
    """A file of a table, and the day of its rows."""

    path: str
    day: date


@dataclass(frozen=True)
class Rewritten:
    """What became of a file.

    Attributes:
        written: the file in its place; None if no row stays.
        left: the sums over the rows that left, in a table of messages; else empty.
    """

    written: Written | None
    left: Total


@dataclass(frozen=True)
class Rewrite:
    """The function of a task, with all that the task needs.

    Attributes:
        stored: the columns of the table, with their Iceberg numbers. None is a dictionary, because
            Parquet would keep the words of rows that left.
        erased: the sequences whose rows leave.
        summed: the columns that the sums are over; none if there are no sums.
    """

    storage: Storage
    folder: str
    stored: pa.Schema
    erased: Coverage
    summed: tuple[str, ...]

    def __call__(self, old: Old) -> Rewritten | None:
        """What became of a file; None if it has no row that must leave.

        Raises:
            WarehouseError: a file cannot be read or written.
        """
        seq = pa.schema([self.stored.field("seq")])
        whole = batches(self.storage, Piece(old.path), seq)
        if not any(self.erased.has(rows.column("seq")).any() for rows in whole):
            return None
        left, stay = Total(), 0
        # A file need not have all columns of its table, and jobs see which it has.
        filesystem, path = self.storage.find(old.path)
        there = pq.read_schema(path, filesystem=filesystem).names
        stored = pa.schema([field for field in self.stored if field.name in there])
        with Writer(self.storage, self.folder, old.day.isoformat(), stored) as writer:
            for rows in batches(self.storage, Piece(old.path), self.stored):
                end_if_told()
                leave = pa.array(self.erased.has(rows.column("seq")))
                if self.summed and leave.true_count:
                    left += Total.of(restored_rows(rows.filter(leave), self.summed))
                rows = rows.filter(pc.invert(leave)).select(stored.names)
                if len(rows):
                    writer.write(rows)
                stay += len(rows)
                advance(len(rows))
            return Rewritten(writer.close() if stay else None, left)
