"""The tasks of an ingest: each reads messages, counts them, and writes a file for each day."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa

from jobs.files.engine import end_if_told
from jobs.files.storage import Storage
from jobs.files.text import stored_rows
from jobs.files.write import Writer, Written
from jobs.progress import advance
from jobs.warehouse.rows import Total

HELD_BYTES = 96 * 2**20
"""How many bytes of rows a task holds, over all days, before it writes a row group."""
MOST_OPEN = 64
"""How many files a task has open. If a day comes again after its file was closed, it gets another.
"""


@dataclass(frozen=True, slots=True)
class DayFile:
    """Messages of one day in one file.

    Attributes:
        total: the sums over the messages, which were counted before they were written.
    """

    day: date
    written: Written
    total: Total


@dataclass(frozen=True)
class IngestTask:
    """The function of a task, with all that the task needs.

    Attributes:
        stored: the columns to write, with their Iceberg numbers.
        read: a function that gives the messages of a task, in the form of `jobs.warehouse.rows`.
    """

    storage: Storage
    folder: str
    stored: pa.Schema
    read: Callable[[Any], Iterator[pa.RecordBatch]]

    def __call__(self, task: Any) -> list[DayFile]:
        """The files that the task wrote; an error deletes them.

        Raises:
            JobError: the messages cannot be read, or a file cannot be written.
        """
        files: list[DayFile] = []
        writers: dict[date, Writer] = {}
        totals: dict[date, Total] = {}

        def close(day: date) -> None:
            files.append(DayFile(day, writers.pop(day).close(), totals.pop(day)))

        with ExitStack() as undo:
            for rows in self.read(task):
                end_if_told()
                for day, messages in by_day(rows):
                    if day not in writers:
                        writer = Writer(self.storage, self.folder, day.isoformat(), self.stored)
                        writers[day] = undo.enter_context(writer)
                    totals[day] = totals.get(day, Total()) + Total.of(messages)
                    writers[day].write(stored_rows(messages, self.stored))
                    while sum(writer.pending for writer in writers.values()) > HELD_BYTES:
                        max(writers.values(), key=lambda writer: writer.pending).flush()
                        on_disk = [day for day, writer in writers.items() if writer.is_open]
                        for opened_first in on_disk[: max(0, len(on_disk) - MOST_OPEN)]:
                            close(opened_first)
                advance(len(rows))
            for day in list(writers):
                close(day)
        return files


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
