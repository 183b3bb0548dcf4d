"""Rows added up by keys, in bounded memory, even if every row has a key of its own.

First, each task groups the rows that it reads, part by part, and writes the groups into files
beside the table. A large file is cut into buckets by a hash of the keys. Then the buckets are
divided into shares, and one task for each share adds up its groups. So neither a task nor the
driver holds all groups. If there are few groups, there is only one share.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from zlib import crc32

import numpy as np
import pyarrow as pa

from jobs.errors import WarehouseError, text_of
from jobs.files.engine import run
from jobs.files.storage import Storage
from nats_transform.kernel import Program
from nats_transform.kernel.rules import End, State
from nats_transform.mappings.functions import Partition
from nats_transform.mappings.mapping import Fate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")

BUCKETS = 256
MOST_ROWS = 2**18
MOST_BYTES = 24 * 2**20
"""About how many rows, and bytes of rows, a task holds at once. More are not faster."""
FEW_ROWS = 2**16
"""A file with up to this many rows is not cut into buckets, which would make it slower to read."""
_HASH = Program([], End(State(Fate.UNMATCHED), (Partition(BUCKETS, ()),)))


@dataclass(frozen=True)
class Grouping:
    """How rows are added up.

    Attributes:
        keys: the columns whose values make a group, text or numbers. Their hash decides the bucket
            of a group; that of the first, which is text, is quick for very many values.
        sums: columns of whole numbers that are added up.
        lows, highs: columns of which the lowest or the highest value is kept.
    """

    keys: tuple[str, ...]
    sums: tuple[str, ...] = ()
    lows: tuple[str, ...] = ()
    highs: tuple[str, ...] = ()

    def buckets(self, groups: pa.RecordBatch) -> np.ndarray:
        """The bucket of each group."""
        first, *others = (groups.column(name) for name in self.keys)
        numbers = _HASH.run(first).subjects.cast(pa.string()).cast(pa.int64())
        buckets = numbers.fill_null(0).to_numpy().copy()
        # The kernel gives no number to what is no legal subject.
        unknown = np.flatnonzero(numbers.is_null().to_numpy(zero_copy_only=False))
        buckets[unknown] = _hashes(first.take(pa.array(unknown)))
        for column in others:
            coded = column if isinstance(column, pa.DictionaryArray) else column.dictionary_encode()
            hashes = np.append(_hashes(coded.dictionary), 0)
            buckets += hashes[coded.indices.fill_null(len(hashes) - 1).to_numpy()]
        return np.asarray(buckets % BUCKETS)

    def of(self, batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """The groups of some rows, one row each, with the columns of the rows."""
        by_kind = {"sum": self.sums, "min": self.lows, "max": self.highs}
        sums = [(name, kind) for kind, names in by_kind.items() for name in names]
        grouped = pa.Table.from_batches(batches).group_by(list(self.keys), use_threads=False)
        groups = grouped.aggregate(sums)
        sources = {name: name for name in self.keys} | {n: f"{n}_{kind}" for n, kind in sums}
        return pa.RecordBatch.from_pydict(
            {n: groups.column(sources[n]).combine_chunks() for n in batches[0].schema.names}
        )


@dataclass(frozen=True)
class Kept:
    """A file with groups.

    Attributes:
        path: the path of the file, which is in Arrow's own format.
        is_cut: whether the file has a batch for each bucket, and not one batch for all.
    """

    path: str
    rows: int
    is_cut: bool


@dataclass(frozen=True)
class _Share:
    """Share `number` of `shares`: the groups of some buckets, in all files that may have some."""

    of: object
    files: tuple[Kept, ...]
    number: int
    shares: int


@dataclass(frozen=True)
class _First(Generic[T]):
    """Groups the rows of a task and writes the groups into files."""

    storage: Storage
    folder: str
    grouping: Grouping
    read: Callable[[T], Iterable[pa.RecordBatch]]

    def __call__(self, task: T) -> list[Kept]:
        waiting: list[pa.RecordBatch] = []
        kept: list[Kept] = []
        share = 0.0  # the part of the allowed rows or bytes that is held
        for batch in self.read(task):
            waiting.append(batch)
            share += _share_of(batch)
            if share >= 1:
                waiting = [self.grouping.of(waiting)]
                share = _share_of(waiting[0])
                if share > 0.5:
                    kept.append(self._keep(waiting[0]))
                    waiting, share = [], 0.0
        if waiting:
            kept.append(self._keep(self.grouping.of(waiting)))
        return kept

    def _keep(self, groups: pa.RecordBatch) -> Kept:
        path = f"{self.folder}/{uuid.uuid4().hex}.arrow"
        filesystem, place = self.storage.find(path)
        is_cut = len(groups) > FEW_ROWS
        parts = _cut(groups, self.grouping.buckets(groups)) if is_cut else [groups]
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
            raise WarehouseError("write-failed", path=path, reason=text_of(error)) from error
        return Kept(path, len(groups), is_cut)


@dataclass(frozen=True)
class _Second(Generic[R]):
    """Adds up the groups of a share."""

    storage: Storage
    grouping: Grouping
    finish: Callable[[Any, pa.RecordBatch], R]

    def __call__(self, share: _Share) -> R | None:
        groups = [batch for kept in share.files for batch in self._read(kept, share)]
        return self.finish(share.of, self.grouping.of(groups)) if groups else None

    def _read(self, kept: Kept, share: _Share) -> Iterator[pa.RecordBatch]:
        filesystem, place = self.storage.find(kept.path)
        chosen = [n for n in range(BUCKETS) if n * share.shares // BUCKETS == share.number]
        try:
            with filesystem.open_input_file(place) as source, pa.ipc.open_file(source) as reader:
                for number in chosen if kept.is_cut else [0]:
                    batch = reader.get_batch(number)
                    if not kept.is_cut and share.shares > 1:
                        bucket = self.grouping.buckets(batch)
                        batch = batch.filter(pa.array(np.isin(bucket, chosen)))
                    if len(batch):
                        yield batch
        except (OSError, pa.ArrowException) as error:
            raise WarehouseError(
                "file-unreadable-in-warehouse", path=kept.path, reason=text_of(error)
            ) from error


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
    """Adds up the rows of all tasks and gives the groups to a function.

    Args:
        read: a function that gives the rows of a task. It can be pickled.
        finish: a function that takes the result of `apart` and groups that are complete. It may be
            called more than once, each time with other groups. It can be pickled.
        folder: a folder for files that are needed until this returns; it is then deleted.
        apart: a function of a task. Tasks with different results have no group in common.

    Returns:
        The results of `finish`.
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
        results = run(_Second(storage, grouping, finish), shares, spark)
    finally:
        filesystem, place = storage.find(folder)
        with contextlib.suppress(OSError):
            filesystem.delete_dir(place)
    return [result for result in results if result is not None]


def _share_of(batch: pa.RecordBatch) -> float:
    """How large some rows are, as a part of what a task may hold at once."""
    return float(max(len(batch) / MOST_ROWS, batch.nbytes / MOST_BYTES))


def _hashes(words: pa.Array) -> np.ndarray:
    """A number for each text, which may have any bytes, or number."""
    texts = words if pa.types.is_binary(words.type) else words.cast(pa.string())
    raw = texts.view(pa.binary()).to_pylist()
    return np.array([0 if word is None else crc32(word) for word in raw], np.int64)


def _cut(groups: pa.RecordBatch, buckets: np.ndarray) -> Iterator[pa.RecordBatch]:
    ordered = groups.take(pa.array(np.argsort(buckets, kind="stable")))
    start = 0
    for size in np.bincount(buckets, minlength=BUCKETS).tolist():
        yield ordered.slice(start, size)
        start += size
