"""The division of files into tasks.

A task reads files of one day. Several small files make one task; a large file is cut at its row
groups. The table's metadata says all that is needed, so no file is opened here. The same files
always make the same tasks, however many machines there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import date, timedelta
from itertools import groupby
from operator import attrgetter

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from jobs.files.read import Piece, Task
from jobs.warehouse.tables import partitions_of, sequence_ends

GOAL = 128 * 2**20
"""How many bytes of Parquet a task reads at most; a larger row group is a task of its own."""
_EPOCH = date(1970, 1, 1)


_Sized = tuple[Piece, int]
"""Row groups that stay in one task, and their size in bytes."""


def plan(table: Table, files: Iterable[DataFile], goal: int = GOAL) -> list[Task]:
    """The tasks that read these files of a table that is partitioned by day.

    Args:
        files: files of one stream.
        goal: the size of a task, in bytes.
    """
    position = partitions_of(table).index("day")
    by_day: dict[int, list[DataFile]] = {}
    for file in files:
        by_day.setdefault(file.partition[position], []).append(file)
    tasks: list[Task] = []

    def order(file: DataFile) -> tuple[int, str]:
        # So the sequences of tasks ascend, and nothing has to be read again to compare them.
        first, _ = sequence_ends(table, file) or (0, 0)
        return first, file.file_path

    for day in sorted(by_day):
        of_day = sorted(by_day[day], key=order)
        for sized in _gathered([sized for file in of_day for sized in _cut(file, goal)], goal):
            by_file = groupby((piece for piece, _ in sized), attrgetter("path"))
            files_of_task = [list(of_file) for _, of_file in by_file]
            # Neighboring row groups of a file are one piece.
            pieces = tuple(replace(of[0], end=of[-1].end) for of in files_of_task)
            size = sum(size for _, size in sized)
            tasks.append(Task(len(tasks), _EPOCH + timedelta(days=day), pieces, size))
    return tasks


def _cut(file: DataFile, goal: int) -> list[_Sized]:
    """The row groups of a file that is too large for one task; any other file is one piece."""
    starts = list(file.split_offsets or ())
    size = file.file_size_in_bytes
    ends = [*starts[1:], size]
    is_cut = len(starts) > 1 and all(a < b for a, b in zip(starts, ends, strict=True))
    if size <= goal or not is_cut:
        return [(Piece(file.file_path), size)]
    return [
        (Piece(file.file_path, number, number + 1, len(starts)), end - start)
        for number, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]


def _gathered(pieces: Sequence[_Sized], goal: int) -> Iterable[list[_Sized]]:
    """The pieces of a day in as few groups as the goal allows, all of about the same size."""
    total = sum(size for _, size in pieces)
    share = total / max(1, -(-total // goal))
    groups: dict[int, list[_Sized]] = {}
    before = 0
    for piece, size in pieces:
        # The middle of a piece decides, so one across an edge goes where most of it is.
        number = int((before + size / 2) // share) if share else 0
        groups.setdefault(number, []).append((piece, size))
        before += size
    return groups.values()
