"""The rows of files in the order of their sequences, however large the files are.

An archive is nearly always in order: the sequences of each file ascend, and no two files overlap.
Then the files are read one after the other. Files that overlap are merged, with a batch of each in
memory. A file whose sequences do not ascend is cut into batches that are sorted and kept on disk,
and these are merged.
"""

from __future__ import annotations

import heapq
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from jobs.files.plan import plan
from jobs.files.read import batches
from jobs.files.storage import Storage
from jobs.files.task import Piece

KEPT_BYTES = 512 * 2**10
"""The size of the batches of a sorted file on disk. A merge holds one batch of each file."""


@dataclass(slots=True)
class Extent:
    """The lowest sequence of a piece, and whether its sequences ascend.

    Attributes:
        piece: the piece.
        first: the lowest sequence of the rows so far; None before the first row.
        ascends: whether the sequence of each row is above that of the row before.
    """

    piece: Piece
    first: int | None = None
    ascends: bool = True
    _last: int | None = None

    def add(self, sequences: pa.Array) -> None:
        """Takes the next rows."""
        if not len(sequences):
            return
        lowest = pc.min(sequences).as_py()
        steps = pc.less(sequences.slice(0, len(sequences) - 1), sequences.slice(1))
        self.ascends &= pc.all(steps, min_count=0).as_py() and (
            self._last is None or self._last < lowest
        )
        self.first = lowest if self.first is None else min(self.first, lowest)
        self._last = sequences[-1].as_py()


def extents_of(table: Table, files: Iterable[DataFile]) -> list[Extent]:
    """Whole files of a stream, in the order of their days and sequences."""
    pieces = (piece for task in plan(table, files) for piece in task.pieces)
    return [Extent(Piece(path)) for path in dict.fromkeys(piece.path for piece in pieces)]


def in_order(
    storage: Storage, extents: Iterable[Extent], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The rows of pieces, in batches, by ascending sequence.

    Args:
        storage: the file systems of the table.
        extents: the pieces; all their rows have been added to the extents.
        schema: the columns to read; `seq` must be one of them.

    Raises:
        WarehouseError: a file cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="nats-transform-") as folder:
        # The number decides the order of two that begin with the same sequence.
        waiting: list[tuple[int, int, Iterator[pa.RecordBatch]]] = []
        for number, extent in enumerate(extents):
            if extent.first is None:
                continue
            rows = batches(storage, extent.piece, schema)
            if extent.ascends:
                waiting.append((extent.first, len(waiting), rows))
            else:
                for first, path in _sorted(rows, Path(folder, str(number))):
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
        found = [batch for batch in ready if len(batch)]
        yield found[0] if len(found) == 1 else _by_sequence(found)


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


def _by_sequence(found: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    rows = pa.concat_batches(found)
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
    """The batches of a file that `_sorted` wrote. The file is deleted at the end."""
    with pa.OSFile(str(path), "rb") as file:
        reader = pa.ipc.open_file(file)
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)
    path.unlink()
