"""Repeated sequences, wherever they are."""

from __future__ import annotations

from collections import Counter
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from jobs.files import sequences
from jobs.files.read import Piece, Reader, Task
from jobs.files.sequences import Run, Runs, find_repeated
from jobs.files.storage import Storage

Parts = list[list[list[int]]]  # of each task the files, of each file the sequences


def write(folder: Path, parts: Parts) -> list[tuple[Task, tuple[Run, ...], int]]:
    """The files of some tasks, and what the tasks would say of them."""
    told = []
    for number, files in enumerate(parts):
        runs, pieces = Runs(), []
        for place, values in enumerate(files):
            path = str(folder / f"{number}-{place}.parquet")
            column = pa.array(values, pa.int64())
            pq.write_table(pa.table({"seq": column}), path)
            pieces.append(Piece(path))
            for start in range(0, len(column), 3):
                runs.add(column.slice(start, 3))
        task = Task(number, date(2026, 3, 1), tuple(pieces), 0)
        told.append((task, runs.runs, sum(map(len, files))))
    return told


READER = Reader(Storage(), pa.schema([("seq", pa.int64())]), ("seq",))
SEQUENCE = st.integers(-3, 40) | st.integers(2**62, 2**62 + 5)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(
    st.lists(st.lists(st.lists(SEQUENCE, max_size=12), max_size=3), max_size=4),
    st.sampled_from([1, 3, 64]),
)
@example([[[1, 2, 3], [4]], [[5, 6]]], 64)
@example([[[1, 5, 9]], [[2, 3]], [[9]]], 64)
@example([[[3, 2, 1, 0, -1, 2]]], 3)
def test_finds_what_is_there_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: Parts, most: int
) -> None:
    monkeypatch.setattr(sequences, "MOST_RUNS", most)
    monkeypatch.setattr(sequences, "SHARE_ROWS", 4)
    counts = Counter(value for files in parts for values in files for value in values)
    wanted = min((value for value, count in counts.items() if count > 1), default=None)
    assert find_repeated(READER, write(tmp_path, parts), None) == wanted


def test_an_archive_in_order_is_not_read_again(tmp_path: Path) -> None:
    told = write(tmp_path, [[[1, 2], [5, 9]], [[10, 11, 400]]])
    for path in tmp_path.iterdir():
        path.unlink()
    assert [runs for _, runs, _ in told] == [(Run(1, 9),), (Run(10, 400),)]
    assert find_repeated(READER, told, None) is None


def test_missing_sequences_are_counted() -> None:
    runs = Runs()
    runs.add(pa.array([1, None, 2, None]))
    runs.add(pa.array([None], pa.int64()))
    runs.add(pa.array([], pa.int64()))
    assert (runs.runs, runs.missing) == ((Run(1, 2),), 3)
