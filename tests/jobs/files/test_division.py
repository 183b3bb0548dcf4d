"""Tasks from what a table says of its files."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.typedef import Record
from pyiceberg.types import LongType

from jobs.files.division import plan
from jobs.files.read import Piece, Task
from jobs.settings.warehouse import Warehouse
from jobs.warehouse.specs import MESSAGES
from jobs.warehouse.tables import open_table

DAY = 20_513
SEQ = MESSAGES.schema.find_field("seq").field_id


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    return open_table(Warehouse(dir=tmp_path_factory.mktemp("w")), MESSAGES, create=True)


def file(
    path: str,
    *groups: int,
    day: int = DAY,
    first: int | None = None,
    offsets: list[int] | str | None = "right",
) -> DataFile:
    """A file with row groups of so many bytes, and 4 bytes in front."""
    starts = [4 + sum(groups[:n]) for n in range(len(groups))]
    bounds = {} if first is None else {SEQ: to_bytes(LongType(), first)}
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record("S", day),
        record_count=1,
        file_size_in_bytes=4 + sum(groups),
        split_offsets=starts if offsets == "right" else offsets,
        lower_bounds=bounds,
        upper_bounds=bounds,
    )


def read(tasks: list[Task]) -> list[list[tuple[Any, ...]]]:
    return [[(p.path, p.first, p.end) for p in task.pieces] for task in tasks]


TASKS = {
    "none": ([], []),
    "small": ([file("a", 10), file("b", 20)], [[("a", 0, 0), ("b", 0, 0)]]),
    "by sequence": (
        [file("z", 10, first=1), file("a", 10, first=300), file("b", 10, first=12)],
        [[("z", 0, 0), ("b", 0, 0), ("a", 0, 0)]],
    ),
    "two": ([file("a", 60), file("b", 60)], [[("a", 0, 0)], [("b", 0, 0)]]),
    "cut": ([file("a", 60, 60, 60, 60)], [[("a", 0, 1)], [("a", 1, 3)], [("a", 3, 4)]]),
    "not cut below the goal": ([file("a", 30, 30)], [[("a", 0, 0)]]),
    "one row group": ([file("a", 500)], [[("a", 0, 0)]]),
    "never two days in a file": (
        [file("a", 10), file("b", 10, day=DAY + 1)],
        [[("a", 0, 0)], [("b", 0, 0)]],
    ),
}


@pytest.mark.parametrize(("files", "wanted"), TASKS.values(), ids=TASKS)
def test_tasks(table: Table, files: list[DataFile], wanted: list[Any]) -> None:
    assert read(plan(table, files, goal=100)) == wanted


def test_days_and_numbers(table: Table) -> None:
    tasks = plan(table, [file("b", 10, day=DAY + 1), file("a", 10)], goal=100)
    assert [(task.number, task.day) for task in tasks] == [
        (0, date(2026, 3, 1)),
        (1, date(2026, 3, 2)),
    ]


def test_row_groups_that_the_table_does_not_know(table: Table) -> None:
    for offsets in (None, [], [4], [204, 4]):
        unknown = file("a", 200, 200, offsets=offsets)
        assert read(plan(table, [unknown], goal=100)) == [[("a", 0, 0)]]


@given(st.lists(st.lists(st.integers(1, 300), min_size=1, max_size=6), max_size=12))
def test_everything_is_read_once_and_in_order(table: Table, sizes: list[list[int]]) -> None:
    files = [file(f"{n:02}", *groups, first=n) for n, groups in enumerate(sizes)]
    tasks = plan(table, files, goal=100)
    pieces = [piece for task in tasks for piece in task.pieces]
    found = [
        (piece.path, group)
        for piece in pieces
        for group in (
            range(piece.first, piece.end) if piece.groups else range(len(sizes[int(piece.path)]))
        )
    ]
    assert found == [(f"{n:02}", g) for n, groups in enumerate(sizes) for g in range(len(groups))]
    assert all(isinstance(piece, Piece) for piece in pieces)
    largest = max((size for groups in sizes for size in groups), default=0)
    # No task is far above the goal but for a row group or a file that cannot be cut.
    assert all(task.size <= 100 + largest + 4 + 100 for task in tasks)
    again = plan(table, list(reversed(files)), goal=100)
    assert again == tasks
