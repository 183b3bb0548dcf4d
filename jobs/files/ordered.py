"""The rows of a table in the order of their sequences, however large its files are.

An archive is nearly always in order: the sequences of each task ascend, and no two tasks overlap.
Then the tasks are read one after the other. Tasks that overlap are merged, with a batch of each in
memory. A task whose sequences do not ascend is cut into batches that are sorted and kept on disk,
and these are merged.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from jobs.files.scan import Scan
from jobs.files.sequences import Run, Runs
from jobs.scratch import temporary_folder

KEPT_BYTES = 512 * 2**10
"""The size of the batches of a sorted task on disk. A merge holds one batch of each task."""


@dataclass(frozen=True)
class Ordered:
    """Rows that are read in this process, task by task or in the order of their sequences.

    Attributes:
        runs: the ascending runs of each task, once `look` has read it.
    """

    scan: Scan
    runs: list[tuple[Run, ...]] = field(default_factory=list)

    def look(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Some columns of all rows, among them `seq`. Read them to the end before `in_order`."""
        reader = self.scan.reader.only(columns)
        for task in self.scan.tasks:
            sequences = Runs()
            for rows in reader.read(task):
                sequences.add(rows.column("seq"))
                yield rows
            self.runs.append(sequences.runs)

    def rows(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Some columns of all rows, task by task.

        Raises:
            WarehouseError: a file cannot be read.
        """
        reader = self.scan.reader.only(columns)
        for task in self.scan.tasks:
            yield from reader.read(task)

    def in_order(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Some columns of all rows, among them `seq`, by ascending sequence.

        Raises:
            WarehouseError: a file cannot be read.
        """
        reader = self.scan.reader.only(columns)
        with temporary_folder() as folder:
            # The number decides the order of two that begin with the same sequence.
            waiting: list[tuple[int, int, Iterator[pa.RecordBatch]]] = []
            for task, runs in zip(self.scan.tasks, self.runs, strict=True):
                rows = reader.read(task)
                if len(runs) == 1 and runs[0].ascends:
                    waiting.append((runs[0].first, len(waiting), rows))
                elif runs:
                    for first, path in _sorted(rows, folder / str(task.number)):
                        waiting.append((first, len(waiting), _kept(path)))
            heapq.heapify(waiting)
            yield from _merged(waiting)


def _merged(
    waiting: list[tuple[int, int, Iterator[pa.RecordBatch]]],
) -> Iterator[pa.RecordBatch]:
    """The rows of several iterators of batches, merged by sequence; each iterator ascends.

    Each step gives all rows up to the lowest of the last sequences of the batches in memory.

    Args:
        waiting: a heap; each entry is a lowest sequence, a number, and an iterator of batches.
    """
    open_: list[tuple[pa.RecordBatch, Iterator[pa.RecordBatch]]] = []
    while open_ or waiting:
        end = min((_last(batch) for batch, _ in open_), default=None)
        if waiting and (end is None or waiting[0][0] <= end):
            _, _, rows = heapq.heappop(waiting)
            _open_next(open_, rows)
            continue
        assert end is not None  # noqa: S101 - something is open
        ready, still_open = [], list[tuple[pa.RecordBatch, Iterator[pa.RecordBatch]]]()
        for batch, rows in open_:
            count = pc.sum(pc.less_equal(batch.column("seq"), end)).as_py() or 0
            ready.append(batch.slice(0, count))
            if count < len(batch):
                still_open.append((batch.slice(count), rows))
            else:
                _open_next(still_open, rows)
        open_ = still_open
        parts = [batch for batch in ready if len(batch)]
        yield parts[0] if len(parts) == 1 else _by_sequence(parts)


def _open_next(
    open_: list[tuple[pa.RecordBatch, Iterator[pa.RecordBatch]]], rows: Iterator[pa.RecordBatch]
) -> None:
    for batch in rows:
        if len(batch):
            open_.append((batch, rows))
            return


def _last(batch: pa.RecordBatch) -> int:
    last: int = batch.column("seq")[-1].as_py()
    return last


def _by_sequence(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    rows = pa.concat_batches(batches)
    return rows.take(pc.sort_indices(rows.column("seq")))


def _sorted(rows: Iterable[pa.RecordBatch], path: Path) -> Iterator[tuple[int, Path]]:
    """Writes a file on disk for each batch, in the order of its sequences.

    Yields:
        The lowest sequence of each file, and its path.
    """
    for number, batch in enumerate(rows):
        ordered = _by_sequence([batch])
        kept = path.with_name(f"{path.name}-{number}")
        step = max(1, len(ordered) * KEPT_BYTES // max(1, ordered.nbytes))
        with pa.OSFile(str(kept), "wb") as file, pa.ipc.new_file(file, ordered.schema) as writer:
            for at in range(0, len(ordered), step):
                writer.write_batch(ordered.slice(at, step))
        yield ordered.column("seq")[0].as_py(), kept


def _kept(path: Path) -> Iterator[pa.RecordBatch]:
    """The batches of a file that `_sorted` wrote. The file is deleted at the end.

    It is open only while a batch is read: a merge may go through more files than may be open.
    """
    number, count = 0, 1
    while number < count:
        with pa.OSFile(str(path), "rb") as file:
            reader = pa.ipc.open_file(file)
            count = reader.num_record_batches
            batch = reader.get_batch(number)
        yield batch
        number += 1
    path.unlink()
