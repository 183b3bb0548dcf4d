"""Rows added up by keys: as in a dictionary, however many files and shares it takes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from jobs.errors import WarehouseError
from jobs.files import grouped as module
from jobs.files.grouped import Grouping, Kept, grouped
from jobs.files.storage import Storage
from tests.support.refused import refused

GROUPING = Grouping(("key", "of"), sums=("count",), lows=("first",), highs=("last",))
shares_of = partial(grouped, grouping=GROUPING, storage=Storage(), spark=None)


def rows_of(task: int) -> Iterator[pa.RecordBatch]:
    """Five batches of some keys, illegal subjects and nulls among them."""
    rng = np.random.default_rng(task)
    for _ in range(5):
        keys = [f"k.{n}" if n else [None, "a..b", "*"][task % 3] for n in rng.integers(0, 90, 400)]
        of = pa.array(["x", None, "y", "x"] * 100, pa.string())
        at = pa.array(rng.integers(0, 1000, 400))
        yield pa.record_batch(
            [pa.array(keys, pa.string()), of, at, at, pa.array(np.ones(400, np.int64))],
            names=["key", "of", "first", "last", "count"],
        )


def wanted(tasks: range) -> dict[tuple[str | None, str | None], tuple[int, int, int]]:
    found: dict = {}
    for row in (row for t in tasks for batch in rows_of(t) for row in batch.to_pylist()):
        low, high, count = found.get((row["key"], row["of"]), (row["first"], row["last"], 0))
        group = min(low, row["first"]), max(high, row["last"]), count + 1
        found[row["key"], row["of"]] = group
    return found


@pytest.mark.parametrize(
    ("most", "few", "shares"),
    [(2**20, 2**16, 1), (600, 2**16, 3), (600, 10, 3), (2, 1, 167)],
    ids=["all at once", "several files", "cut into buckets", "a share for each bucket with groups"],
)
def test_groups_are_those_of_the_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, few: int, shares: int
) -> None:
    monkeypatch.setattr(module, "MOST_ROWS", most)
    monkeypatch.setattr(module, "FEW_ROWS", few)
    folder, tasks = tmp_path / "kept", range(4)
    found = shares_of(
        tasks, rows_of, finish=lambda _, groups: groups.to_pylist(), folder=str(folder)
    )
    assert len(found) == pytest.approx(shares, abs=1)
    groups = [
        ((row["key"], row["of"]), (row["first"], row["last"], row["count"]))
        for share in found
        for row in share
    ]
    assert len(groups) == len(dict(groups))
    assert dict(groups) == wanted(tasks)
    assert not folder.exists()


@pytest.mark.parametrize("key", [b"one", b"no subject..\xff", None])
@pytest.mark.parametrize("is_cut", [False, True])
def test_many_groups_of_one_first_key_are_divided_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: bytes | None, is_cut: bool
) -> None:
    """Publishers choose the other keys as well, such as the cluster of a message."""
    monkeypatch.setattr(module, "MOST_ROWS", 1_000)
    monkeypatch.setattr(module, "FEW_ROWS", 10 if is_cut else 2**16)
    ones = pa.array(np.ones(8_000, np.int64))
    others = pa.array([None, *(b"\xff %d" % n for n in range(1, 8_000))])
    rows = pa.record_batch(
        [pa.array([key] * 8_000, pa.binary()), others, ones, ones, ones],
        names=["key", "of", "first", "last", "count"],
    )
    sizes = shares_of(
        [0], lambda _: [rows], finish=lambda _, groups: len(groups), folder=str(tmp_path / "kept")
    )
    assert sum(sizes) == 8_000
    assert max(sizes) < 1_500


def test_tasks_apart_have_shares_of_their_own(tmp_path: Path) -> None:
    found = shares_of(
        range(4),
        rows_of,
        finish=lambda of, groups: (of, len(groups)),
        folder=str(tmp_path / "kept"),
        apart=lambda task: task % 2,
    )
    assert found == [(n, len(wanted(range(n, 4, 2)))) for n in (0, 1)]


def test_no_rows(tmp_path: Path) -> None:
    assert shares_of(range(2), lambda _: [], finish=max, folder=str(tmp_path)) == []


def test_a_file_that_is_gone_is_one_line(tmp_path: Path) -> None:
    share = module._Share(None, (Kept(str(tmp_path / "gone.arrow"), 1, False),), 0, 1)
    with refused(WarehouseError, "file-unreadable-in-warehouse", path=re.compile("gone.arrow")):
        module._Second(Storage(), GROUPING, max)(share)
