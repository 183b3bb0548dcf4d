"""A search for sequences that an archive has twice.

An archive is nearly always in order: the sequences of each piece of a file ascend, and no two
pieces overlap. A task notes the ascending runs of sequences that it meets, which costs almost no
time, and the driver compares the ends of the runs. Only tasks whose runs overlap are read again,
and only their sequences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from jobs.files.engine import run as run_tasks
from jobs.progress import step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_RUNS = 64
"""A task with more runs than this gives one run that spans all of them."""
SHARE_ROWS = 4_000_000
"""About how many sequences one search holds in memory."""
_SHARE_BITS = 10  # 1,024 sequences in a row are in the same share: they are fast to pick out


@dataclass(frozen=True, slots=True)
class Run:
    """A run of rows whose sequences ascend, so that none of them is there twice.

    Attributes:
        first, last: the lowest and the highest sequence.
        ascends: whether the sequences ascend. If not, this stands for many runs together.
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
    def runs(self) -> tuple[Run, ...]:
        """The runs, in the order of the rows."""
        return tuple(self._runs)


def _repeated_in(
    read: Callable[[Any], Iterator[pa.RecordBatch]],
    tasks: Sequence[Any],
    shares: int,
    share: int,
) -> int | None:
    """The lowest sequence of a share of the sequences that is there twice, or None."""
    kept = [np.array([], np.int64)]
    for task in tasks:
        for rows in read(task):
            values = rows.column("seq").drop_null().to_numpy(zero_copy_only=False)
            kept.append(values[(values >> _SHARE_BITS) % shares == share])
    sequences = np.sort(np.concatenate(kept))
    repeated = sequences[1:][sequences[1:] == sequences[:-1]]
    return int(repeated[0]) if len(repeated) else None


def find_repeated(
    read: Callable[[Any], Iterator[pa.RecordBatch]],
    tasks: Sequence[tuple[Any, Sequence[Run], int]],
    spark: SparkSession | None,
) -> int | None:
    """The lowest sequence that is there twice, or None.

    Args:
        read: a function that gives the rows of a task again. It can be pickled.
        tasks: the tasks, each with the runs and the number of its messages.
    """
    overlapping = _overlapping(
        [(run, number) for number, (_, runs, _) in enumerate(tasks) for run in runs]
    )
    chosen = [tasks[number] for number in sorted(overlapping)]
    if not chosen:
        return None
    shares = -(-sum(rows for _, _, rows in chosen) // SHARE_ROWS)
    search = partial(_repeated_in, read, [task for task, _, _ in chosen], shares)
    with step("looking for sequences that are there twice"):
        repeated = run_tasks(search, range(shares), spark)
    return min((sequence for sequence in repeated if sequence is not None), default=None)


def _overlapping(runs: Sequence[tuple[Run, int]]) -> set[int]:
    """The numbers of the tasks whose messages may have a sequence twice."""
    overlapping: set[int] = set()
    highest, owner = -(2**63) - 1, -1
    for run, task in sorted(runs, key=lambda pair: pair[0].first):
        if not run.ascends:
            overlapping.add(task)
        if run.first <= highest:
            overlapping |= {owner, task}
        if run.last > highest:
            highest, owner = run.last, task
    return overlapping
