"""Maintenance: what is old and unused goes, and nobody who reads or writes then notices."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from pyiceberg.table import Table

from jobs.errors import NoTable
from jobs.maintain import Removed, maintain
from jobs.settings.maintain import MaintenanceSettings
from jobs.settings.warehouse import Warehouse
from jobs.warehouse.specs import MESSAGES
from jobs.warehouse.staging import Staged, publish
from jobs.warehouse.tables import open_table
from tests.support.archive import Row, message, sequences, staged
from tests.support.command import printed
from tests.support.refused import refused

STREAM = "S"
DAY = date(2026, 1, 1)
RETENTION = timedelta(days=7)
LATER = datetime.now(UTC) + timedelta(days=8)


def messages(*sequences: int) -> list[Row]:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    return [message(n, "a.b", noon, stream=STREAM, data=b"x") for n in sequences]


def replace(table: Table, new: Staged) -> None:
    publish(table, new, STREAM, [DAY], replace=True, properties={})


def run(warehouse: Warehouse, now: datetime, retention: timedelta = RETENTION) -> Removed:
    settings = MaintenanceSettings(warehouse=warehouse, now=now, retention=retention)
    return maintain(settings)["messages"]


def test_what_is_old_and_unused_is_removed(table: Table, warehouse: Warehouse) -> None:
    replace(table, staged(table, messages(1, 2)))
    replace(table, staged(table, messages(5, 6)))
    late = staged(table, messages(8))  # as a killed job leaves it
    before = {path for path in warehouse.folder.rglob("*") if path.is_file()}

    young = run(warehouse, datetime.now(UTC))
    assert (young.snapshots, young.files, young.snapshots_left) == (0, 0, 2)
    assert before <= {path for path in warehouse.folder.rglob("*") if path.is_file()}

    old = run(warehouse, LATER)
    assert (old.snapshots, old.snapshots_left) == (1, 1)
    assert old.files > 0
    assert old.bytes > 0
    assert not Path(late.data_files[0].file_path.removeprefix("file://")).exists()
    assert sequences(open_table(warehouse, MESSAGES)) == [5, 6]
    again = run(warehouse, LATER)
    assert (again.snapshots, again.files) == (0, 0)


def test_a_state_that_was_replaced_a_moment_ago_can_still_be_read(
    table: Table, warehouse: Warehouse
) -> None:
    """However old it is: a reader opened it when it was the newest."""
    replace(table, staged(table, messages(1, 2)))
    reader = open_table(warehouse, MESSAGES)
    replace(table, staged(table, messages(5, 6)))
    newest = table.current_snapshot()
    just_before = datetime.fromtimestamp(newest.timestamp_ms / 1000, UTC) - timedelta(seconds=0.002)
    assert run(warehouse, just_before + RETENTION).snapshots == 0
    assert sequences(reader) == [1, 2]
    assert run(warehouse, LATER).snapshots == 1


def test_a_job_that_has_not_published_yet_keeps_its_files(
    table: Table, warehouse: Warehouse
) -> None:
    replace(table, staged(table, messages(1)))
    late = staged(table, messages(5, 6))
    now = datetime.now(UTC)
    nothing_kept = run(warehouse, now, retention=timedelta(0))
    assert (nothing_kept.files, nothing_kept.young) == (0, len(late.data_files))
    assert timedelta(hours=23) < nothing_kept.young_until - now < timedelta(days=1)
    replace(table, late)
    assert sequences(table) == [5, 6]


def test_beside_a_job_that_publishes(table: Table, warehouse: Warehouse) -> None:
    """Neither gets in the other's way, and the table is what was published last."""
    every = [staged(table, messages(n)) for n in range(12)]
    replace(table, every[0])
    done = threading.Event()

    def tidy() -> int:
        runs = 0
        while not done.is_set():
            run(warehouse, datetime.now(UTC), retention=timedelta(0))
            runs += 1
        return runs

    with ThreadPoolExecutor() as pool:
        tidying = [pool.submit(tidy) for _ in range(2)]
        try:
            for one in every[1:]:
                replace(table, one)
        finally:
            done.set()
    assert all(future.result() > 0 for future in tidying)
    run(warehouse, LATER)
    assert sequences(open_table(warehouse, MESSAGES)) == [11]
    assert len(open_table(warehouse, MESSAGES).metadata.snapshots) == 1


def test_what_is_too_young_says_when_it_goes(table: Table, warehouse: Warehouse) -> None:
    """With no retention snapshots go at once, and their files a day later."""
    for n in range(3):
        replace(table, staged(table, messages(n + 1)))
    text = printed("maintain", "--warehouse", warehouse.folder, "--retention", "0")
    first, second = text.splitlines()
    assert first.startswith("messages: 2 snapshots and 0 files (0 bytes) removed, 1 snapshot left")
    told = re.search(r"more files are in no snapshot.* after (\S+ \S+) UTC$", second)
    assert told
    then = datetime.fromisoformat(f"{told[1]}+00:00") + timedelta(minutes=1)
    left = run(warehouse, then, retention=timedelta(0))
    assert left.files >= 2
    assert (left.young, left.young_until) == (0, None)


def test_a_retention_longer_than_time(table: Table, warehouse: Warehouse) -> None:
    replace(table, staged(table, messages(1)))
    replace(table, staged(table, messages(2)))
    for retention in (timedelta(days=1_000_000), timedelta.max):
        kept = run(warehouse, LATER, retention)
        assert (kept.snapshots, kept.files, kept.snapshots_left) == (0, 0, 2)


def test_nothing_to_maintain(tmp_path: Path) -> None:
    with refused(NoTable, "no-tables"):
        maintain(MaintenanceSettings(warehouse=Warehouse(dir=tmp_path / "none")))
    assert list(tmp_path.iterdir()) == []


def test_as_a_program(table: Table, warehouse: Warehouse) -> None:
    settings = json.dumps({"warehouse": {"dir": str(warehouse.folder)}, "retention": "P30D"})
    command = [sys.executable, "-m", "jobs", "maintain"]
    done = subprocess.run(command, input=settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "messages": {"snapshots": 0, "files": 0, "bytes": 0, "snapshots_left": 0}
        | {"young": 0, "young_until": None}
    }
