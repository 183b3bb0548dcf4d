"""Rows come in the order of their sequences, whatever the files are like."""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.files import ordered, read
from jobs.files.ordered import Ordered
from jobs.files.read import Piece, Reader, Task
from jobs.files.scan import Scan
from jobs.files.storage import Storage

SCHEMA = pa.schema([("seq", pa.int64()), ("data", pa.binary())])


def written(folder: Path, files: Sequence[Sequence[int]]) -> Ordered:
    """The rows of files with these sequences, a task for each, after a look at them."""
    tasks = []
    for number, sequences in enumerate(files):
        path = folder / f"{number}.parquet"
        rows = pa.table({"seq": sequences, "data": [b"%d" % n for n in sequences]}, SCHEMA)
        pq.write_table(rows, path, row_group_size=5)
        tasks.append(Task(number, date(2026, 3, 1), (Piece(str(path)),), 0))
    reader = Reader(Storage(), SCHEMA, tuple(SCHEMA.names))
    ordered = Ordered(Scan(reader, tuple(tasks), sum(map(len, files))))
    assert sum(map(len, ordered.look(["seq"]))) == ordered.scan.count
    return ordered


@pytest.mark.parametrize(
    ("files", "ascend"),
    [
        pytest.param([], [], id="none"),
        pytest.param([[]], [True], id="empty"),
        pytest.param([range(1, 13), range(13, 20)], [True, True], id="in-order"),
        pytest.param([range(13, 20), range(1, 13)], [True, True], id="files-out-of-order"),
        pytest.param([range(1, 20, 2), range(2, 20, 2)], [True, True], id="overlapping"),
        pytest.param([range(19, 0, -1)], [False], id="backwards"),
        pytest.param([[1, 2, 3, 4, 5, 3, 6]], [False], id="back-between-batches"),
        pytest.param([[1, 3, 2], [4, 5]], [False, True], id="back-in-a-batch"),
        pytest.param([[1, 1], [1]], [False, True], id="repeated"),
    ],
)
def test_order(tmp_path: Path, files: list[Sequence[int]], ascend: list[bool]) -> None:
    rows = written(tmp_path, [list(file) for file in files])
    assert [len(runs) < 2 and all(run.ascends for run in runs) for runs in rows.runs] == ascend
    check(rows, files)


def check(ordered: Ordered, files: Sequence[Sequence[int]]) -> None:
    rows = [row for batch in ordered.in_order(SCHEMA.names) for row in batch.to_pylist()]
    wanted = sorted(n for file in files for n in file)
    assert rows == [{"seq": n, "data": b"%d" % n} for n in wanted]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    files=st.lists(st.lists(st.integers(1, 60), max_size=25), max_size=5), is_sorted=st.booleans()
)
def test_any_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: list[list[int]], is_sorted: bool
) -> None:
    monkeypatch.setattr(ordered, "KEPT_BYTES", 40)
    monkeypatch.setattr(read, "BATCH_ROWS", 3)
    files = [sorted(set(file)) for file in files] if is_sorted else files
    check(written(tmp_path, files), files)


def test_more_batches_than_files_may_be_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "BATCH_ROWS", 3)
    scattered = [n * 251 % 601 for n in range(1, 601)]  # so that each batch goes on to the end
    rows = written(tmp_path, [scattered])
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 50, hard))
    try:
        check(rows, [scattered])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
