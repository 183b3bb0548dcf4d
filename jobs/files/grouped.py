"""Rows added up by keys of which there may be as many as rows, in bounded memory.

A task groups what it reads, a part at a time, and keeps the groups in files beside the table, cut
into buckets by a hash of the first key. Then each share of the buckets is put together by a task of
its own. So no task, and not the driver either, holds all groups; of few groups there is one share.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.errors import WarehouseError, text_of
from jobs.files.run import run
from jobs.files.storage import Storage
from nats_transform.functions import Partition
from nats_transform.kernel import Program
from nats_transform.kernel.rules import End, State
from nats_transform.mapping import Fate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")

BUCKETS = 256
MOST_ROWS = 2**18
MOST_BYTES = 24 * 2**20
"""Rows, and so groups, that a task holds at once, about. More are not faster."""
_FEW_ROWS = 2**16
"""So many rows stay together in a file: cut into buckets, they would be slower to read."""
_HASH = Program([], End(State(Fate.UNMATCHED), (Partition(BUCKETS, ()),)))


@dataclass(frozen=True)
class Grouping:
    """How rows are added up.

    Attributes:
        keys: columns of a group; by the first one, a text, groups are put into buckets.
        sums: columns of whole numbers that are added up.
        lows, highs: columns of which the lowest or the highest value counts.
    """

    keys: tuple[str, ...]
    sums: tuple[str, ...] = ()
    lows: tuple[str, ...] = ()
    highs: tuple[str, ...] = ()

    def of(self, batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """The groups of some rows, one row each, with the columns of the rows."""
        what = {"sum": self.sums, "min": self.lows, "max": self.highs}
        wanted = [(name, how) for how, names in what.items() for name in names]
        grouped = pa.Table.from_batches(batches).group_by(list(self.keys), use_threads=False)
        found = grouped.aggregate(wanted)
        columns = [*self.keys, *(f"{name}_{how}" for name, how in wanted)]
        renamed = [*self.keys, *(name for name, _ in wanted)]
        whole = found.select(columns).rename_columns(renamed).combine_chunks()
        return _batch(whole).select(batches[0].schema.names)


@dataclass(frozen=True)
class Kept:
    """Groups in a file.

    Attributes:
        path: of the file, in Arrow's own format.
        rows: how many.
        is_cut: whether it has a batch for each bucket, and not one for all.
    """

    path: str
    rows: int
    is_cut: bool


@dataclass(frozen=True)
class _Share:
    """The groups of some buckets, in files of some tasks; `number` of `shares`."""

    of: object
    files: tuple[Kept, ...]
    number: int
    shares: int


@dataclass(frozen=True)
class _First(Generic[T]):
    """Groups the rows of a task."""

    storage: Storage
    folder: str
    grouping: Grouping
    read: Callable[[T], Iterable[pa.RecordBatch]]

    def __call__(self, task: T) -> list[Kept]:
        held: list[pa.RecordBatch] = []
        kept: list[Kept] = []
        share = 0.0  # of what may be held
        for batch in self.read(task):
            held.append(batch)
            share += _share_of(batch)
            if share >= 1:
                held = [self.grouping.of(held)]
                share = _share_of(held[0])
                if share > 0.5:
                    kept.append(self._keep(held[0]))
                    held, share = [], 0.0
        if held:
            kept.append(self._keep(self.grouping.of(held)))
        return kept

    def _keep(self, groups: pa.RecordBatch) -> Kept:
        path = f"{self.folder}/{uuid.uuid4().hex}.arrow"
        filesystem, place = self.storage.find(path)
        is_cut = len(groups) > _FEW_ROWS
        parts = _cut(groups, groups.column(self.grouping.keys[0])) if is_cut else [groups]
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        try:
            if filesystem.type_name == "local":
                filesystem.create_dir(place.rpartition("/")[0])
            with (
                filesystem.open_output_stream(place) as sink,
                pa.ipc.new_file(sink, groups.schema, options=options) as writer,
            ):
                for part in parts:
                    writer.write_batch(part)
        except OSError as error:
            raise WarehouseError(f"writing to {path} failed: {text_of(error)}") from error
        return Kept(path, len(groups), is_cut)


@dataclass(frozen=True)
class _Second(Generic[R]):
    """Puts the groups of a share together."""

    storage: Storage
    grouping: Grouping
    finish: Callable[[Any, pa.RecordBatch], R]

    def __call__(self, share: _Share) -> R | None:
        found = [batch for kept in share.files for batch in self._read(kept, share)]
        return self.finish(share.of, self.grouping.of(found)) if found else None

    def _read(self, kept: Kept, share: _Share) -> Iterator[pa.RecordBatch]:
        filesystem, place = self.storage.find(kept.path)
        chosen = [n for n in range(BUCKETS) if n * share.shares // BUCKETS == share.number]
        try:
            with filesystem.open_input_file(place) as source, pa.ipc.open_file(source) as reader:
                for number in chosen if kept.is_cut else [0]:
                    batch = reader.get_batch(number)
                    if not kept.is_cut and share.shares > 1:
                        bucket = _buckets(batch.column(self.grouping.keys[0]))
                        batch = batch.filter(pa.array(np.isin(bucket, chosen)))
                    if len(batch):
                        yield batch
        except (OSError, pa.ArrowException) as error:
            raise WarehouseError(f"{kept.path} cannot be read: {text_of(error)}") from error


def grouped(
    tasks: Sequence[T],
    read: Callable[[T], Iterable[pa.RecordBatch]],
    grouping: Grouping,
    finish: Callable[[Any, pa.RecordBatch], R],
    *,
    storage: Storage,
    folder: str,
    spark: SparkSession | None,
    apart: Callable[[T], object] = lambda _: None,
) -> list[R]:
    """What `finish` makes of the groups; it is called once or more, each time with whole groups.

    Args:
        tasks: what to read.
        read: gives the rows of a task; can be pickled.
        grouping: how they are added up.
        finish: takes what `apart` said, and groups; can be pickled.
        storage: where the folder is.
        folder: for files that are needed until this returns, when it is deleted.
        spark: runs the tasks; None is this process.
        apart: tasks of which this differs have no group in common.
    """
    try:
        first = run(_First(storage, folder, grouping, read), tasks, spark)
        together: dict[object, list[Kept]] = {}
        for task, kept in zip(tasks, first, strict=True):
            together.setdefault(apart(task), []).extend(kept)
        shares = [
            _Share(of, tuple(files), number, count)
            for of, files in together.items()
            for count in [min(BUCKETS, max(1, -(-sum(f.rows for f in files) // MOST_ROWS)))]
            for number in range(count)
        ]
        found = run(_Second(storage, grouping, finish), shares, spark)
    finally:
        filesystem, place = storage.find(folder)
        with contextlib.suppress(OSError):
            filesystem.delete_dir(place)
    return [one for one in found if one is not None]


def _share_of(batch: pa.RecordBatch) -> float:
    """How much some rows are of what may be held at once."""
    return float(max(len(batch) / MOST_ROWS, batch.nbytes / MOST_BYTES))


def _buckets(keys: pa.Array) -> np.ndarray:
    """The bucket of each row; a null, or a subject that is not legal, is in the first one."""
    text = _HASH.run(keys).subjects.cast(pa.string())
    return np.asarray(pc.fill_null(text.cast(pa.int16()), 0))


def _cut(groups: pa.RecordBatch, keys: pa.Array) -> Iterator[pa.RecordBatch]:
    buckets = _buckets(keys)
    ordered = groups.take(pa.array(np.argsort(buckets, kind="stable")))
    start = 0
    for size in np.bincount(buckets, minlength=BUCKETS).tolist():
        yield ordered.slice(start, size)
        start += size


def _batch(table: pa.Table) -> pa.RecordBatch:
    """A table whose columns have one chunk each as a batch."""
    return table.to_batches()[0] if len(table) else table.schema.empty_table().to_batches()[0]
