"""The tasks of an ingest: each reads messages, counts them, and writes a file for each day."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.files.run import end_if_told
from jobs.files.storage import Storage
from jobs.files.text import stored_rows
from jobs.files.write import Writer, Written
from jobs.progress import advance
from nats_transform.kernel.digest import digest_batch

HELD_BYTES = 96 * 2**20
"""How many bytes of rows a task holds, over all days, before it writes a row group."""
MOST_OPEN = 64
"""How many files a task has open. If a day comes again after its file was closed, it gets another.
"""


@dataclass(frozen=True, slots=True)
class Part:
    """Messages of one day in one file.

    Attributes:
        day: the day of all of them.
        written: the file.
        rows: the number of messages, which were counted before they were written.
        first, last: the lowest and the highest sequence.
        bytes: the size of the payloads.
        digest: the sum of the hashes of the rows.
    """

    day: date
    written: Written
    rows: int
    first: int
    last: int
    bytes: int
    digest: int


@dataclass(frozen=True)
class IngestTask:
    """The function of a task, with all that the task needs.

    Attributes:
        storage: the file systems of the table.
        folder: the folder for the new files.
        stored: the columns to write, with their Iceberg numbers.
        read: a function that gives the messages of a task, in the form of `jobs.warehouse.rows`.
    """

    storage: Storage
    folder: str
    stored: pa.Schema
    read: Callable[[Any], Iterator[pa.RecordBatch]]

    def __call__(self, task: Any) -> list[Part]:
        """The files that the task wrote.

        Raises:
            JobError: the messages cannot be read, or a file cannot be written.
        """
        with _Days(self) as days:
            for rows in self.read(task):
                end_if_told()
                for day, mine in by_day(rows):
                    days.write(day, mine)
                advance(len(rows))
            return days.close()


def by_day(rows: pa.RecordBatch) -> Iterator[tuple[date, pa.RecordBatch]]:
    """The rows of each day, in their order."""
    numbers = rows.column("day").cast(pa.int32()).to_numpy()
    if not len(numbers):
        return
    days = rows.column("day")
    if numbers.min() == numbers.max():
        yield days[0].as_py(), rows
        return
    order = np.argsort(numbers, kind="stable")
    for places in np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1):
        # `take` copies the rows; a slice would keep the rows of all days in memory.
        yield days[int(places[0])].as_py(), rows.take(pa.array(places))


class _Day:
    """The file of a day, with counts of what is in it."""

    def __init__(self, day: date, writer: Writer) -> None:
        self.day, self.writer = day, writer
        self.rows = self.bytes = self.digest = 0
        self.first, self.last = 2**63 - 1, -(2**63)

    def write(self, rows: pa.RecordBatch, schema: pa.Schema) -> None:
        count, digest = digest_batch(rows)
        self.rows += count
        self.digest += digest
        if "data" in schema.names:
            self.bytes += pc.sum(pc.binary_length(rows.column("data"))).as_py() or 0
        bounds = pc.min_max(rows.column("seq")).as_py()
        self.first, self.last = min(self.first, bounds["min"]), max(self.last, bounds["max"])
        self.writer.write(stored_rows(rows, schema))

    def close(self) -> Part:
        written = self.writer.close()
        return Part(
            self.day,
            written,
            self.rows,
            self.first,
            self.last,
            self.bytes,
            self.digest % 2**64,
        )


class _Days:
    """A file for each day. If the context is left by an exception, all files are deleted."""

    def __init__(self, task: IngestTask) -> None:
        self._task = task
        self._open: dict[date, _Day] = {}
        self._done: list[Part] = []
        self._writers: list[Writer] = []

    def __enter__(self) -> _Days:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            for writer in self._writers:
                writer.abandon()

    def write(self, day: date, rows: pa.RecordBatch) -> None:
        if day not in self._open:
            task = self._task
            writer = Writer(task.storage, task.folder, day.isoformat(), task.stored)
            self._open[day] = _Day(day, writer)
            self._writers.append(writer)
        self._open[day].write(rows, self._task.stored)
        while sum(one.writer.pending for one in self._open.values()) > HELD_BYTES:
            max(self._open.values(), key=lambda one: one.writer.pending).writer.flush()
            self._close_some()

    def _close_some(self) -> None:
        """Closes the files that were opened first, so that at most `MOST_OPEN` are open."""
        opened = [one for one in self._open.values() if one.writer.is_open]
        for one in opened[: max(0, len(opened) - MOST_OPEN)]:
            self._done.append(self._open.pop(one.day).close())

    def close(self) -> list[Part]:
        """Completes all files."""
        self._done += [one.close() for one in self._open.values()]
        return self._done
