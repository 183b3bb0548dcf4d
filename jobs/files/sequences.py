"""Whether a sequence is there twice.

An archive is nearly always in order: each piece of a file ascends, and no two overlap. A task notes
the ascending runs it meets, which costs next to nothing, and the driver compares their ends. Only
tasks whose runs overlap are read again, and of them the sequences alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from jobs.files.read import concatenated
from jobs.files.run import run as run_tasks
from jobs.files.storage import Storage
from jobs.files.task import Task
from jobs.progress import step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_RUNS = 64
"""A task with more runs says only where they start and end, all together."""
SHARE_ROWS = 4_000_000
"""How many sequences one search holds in memory, about."""
_SHARE_BITS = 10  # neighbouring sequences of a share: long stretches are fast to pick


@dataclass(frozen=True, slots=True)
class Run:
    """Sequences that ascend, and so are there once each.

    Attributes:
        first, last: both are there.
        ascends: whether they do; else the run is what many runs span together.
    """

    first: int
    last: int
    ascends: bool = True


class Runs:
    """The runs of the rows of a task.

    Attributes:
        missing: how many rows have no sequence.
    """

    def __init__(self) -> None:
        self._runs: list[Run] = []
        self.missing = 0

    def add(self, sequences: pa.Array) -> None:
        """Takes the next rows."""
        if sequences.null_count:
            self.missing += sequences.null_count
            sequences = sequences.drop_null()
        values = sequences.to_numpy(zero_copy_only=False)
        if not len(values):
            return
        falls = np.flatnonzero(values[1:] <= values[:-1]) + 1
        starts, ends = [0, *falls.tolist()], [*(falls - 1).tolist(), len(values) - 1]
        for start, end in zip(starts, ends, strict=True):
            self._add(Run(int(values[start]), int(values[end])))

    def _add(self, run: Run) -> None:
        last = self._runs[-1] if self._runs else None
        if last is not None and last.ascends and last.last < run.first:
            self._runs[-1] = Run(last.first, run.last)
        elif len(self._runs) < MOST_RUNS and (last is None or last.ascends):
            self._runs.append(run)
        else:
            every = [*self._runs, run]
            low, high = min(r.first for r in every), max(r.last for r in every)
            self._runs = [Run(low, high, ascends=False)]

    @property
    def found(self) -> tuple[Run, ...]:
        """The runs, in the order of the rows."""
        return tuple(self._runs)


@dataclass(frozen=True)
class Search:
    """Looks for a repeated sequence among one share of those of some tasks.

    Attributes:
        read: gives the sequences of a task, a batch at a time.
        tasks: whose sequences are compared.
        shares: into how many shares the sequences are divided.
    """

    read: Callable[[Any], Iterator[pa.Array]]
    tasks: tuple[Any, ...]
    shares: int

    def __call__(self, share: int) -> int | None:
        """The lowest sequence of the share that is there twice, or None."""
        kept: list[np.ndarray] = []
        for task in self.tasks:
            for batch in self.read(task):
                values = batch.drop_null().to_numpy(zero_copy_only=False)
                kept.append(values[(values >> _SHARE_BITS) % self.shares == share])
        found = np.sort(np.concatenate(kept)) if kept else np.array([], np.int64)
        repeated = found[1:][found[1:] == found[:-1]]
        return int(repeated[0]) if len(repeated) else None


@dataclass(frozen=True)
class SequencesOfFiles:
    """Gives the sequences of a task on the files of a table."""

    storage: Storage

    def __call__(self, task: Task) -> Iterator[pa.Array]:
        """The sequences, a batch at a time."""
        for batch in concatenated(self.storage, task.pieces, _SCHEMA):
            yield batch.column(0)


_SCHEMA = pa.schema([("seq", pa.int64())])


def find_repeated(
    read: Callable[[Any], Iterator[pa.Array]],
    tasks: Sequence[tuple[Any, Sequence[Run], int]],
    spark: SparkSession | None,
) -> int | None:
    """The lowest sequence that is there twice, or None.

    Args:
        read: gives the sequences of a task again; can be pickled.
        tasks: each with the runs of its messages and how many these are.
        spark: runs the searches; None is this process.
    """
    overlapping = _overlapping(
        [(run, number) for number, (_, runs, _) in enumerate(tasks) for run in runs]
    )
    chosen = [tasks[number] for number in sorted(overlapping)]
    if not chosen:
        return None
    shares = -(-sum(rows for _, _, rows in chosen) // SHARE_ROWS)
    search = Search(read, tuple(task for task, _, _ in chosen), shares)
    with step("looking for sequences that are there twice"):
        found = [one for one in run_tasks(search, range(shares), spark) if one is not None]
    return min(found, default=None)


def _overlapping(runs: Sequence[tuple[Run, int]]) -> set[int]:
    """The tasks, by number, among which a sequence may be there twice."""
    found: set[int] = set()
    highest, owner = -(2**63) - 1, -1
    for run, task in sorted(runs, key=lambda pair: pair[0].first):
        if not run.ascends:
            found.add(task)
        if run.first <= highest:
            found |= {owner, task}
        if run.last > highest:
            highest, owner = run.last, task
    return found
