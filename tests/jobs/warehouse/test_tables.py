"""The tables: one commit for each publish, nothing half-written, readable by others."""

from __future__ import annotations

import os
import re
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from jobs.errors import ConcurrentWrite, JobError, NoTable, WarehouseError
from jobs.settings.warehouse import Warehouse
from jobs.warehouse.specs import MESSAGES, TRANSFORMED
from jobs.warehouse.staging import new_files, publish
from jobs.warehouse.tables import (
    days_of,
    digest_properties,
    forget_digests,
    open_catalog,
    open_table,
    snapshot_properties,
    times_of,
)
from tests.support.archive import Row, columns, message, new_file, sequences, staged
from tests.support.disks import small_disk
from tests.support.refused import refused

STREAM = "A_STREAM_WITH_A_LONG_NAME"
DAYS = [date(2026, 1, 1), date(2026, 1, 2)]


def messages(sequences: range, day: date = DAYS[0]) -> list[Row]:
    noon = datetime(day.year, day.month, day.day, 12, tzinfo=UTC)
    row = message(0, "a.b", noon, stream=STREAM, headers=[("A", "1")], data=b"\xff")
    return [row | {"seq": n} for n in sequences]


def add(table: Table, rows: list[Row], days: list[date] | None = None, **options: Any) -> int:
    settings = {"replace": False, "properties": {}} | options
    return publish(table, staged(table, rows), STREAM, days, **settings)


def files_in(table: Table) -> list[Path]:
    data = Path(table.location().removeprefix("file://")) / "data"
    return [p for p in data.rglob("*") if p.is_file()]


def test_publish_is_one_snapshot_with_its_properties(table: Table) -> None:
    id1 = add(table, messages(range(1, 4)), properties={"digest": "abc"})
    assert [s.snapshot_id for s in table.metadata.snapshots] == [id1]
    assert snapshot_properties(table) == {"digest": "abc"}
    id2 = add(table, messages(range(9, 11)), replace=True, table_properties={"x": "1"})
    assert [s.snapshot_id for s in table.metadata.snapshots] == [id1, id2]
    assert sequences(table) == [9, 10]
    assert table.properties["nats-transform.x"] == "1"


def test_days_are_replaced_alone(table: Table) -> None:
    both = messages(range(1, 3)) + messages(range(3, 5), DAYS[1])
    add(table, both)
    add(table, messages(range(7, 8), DAYS[1]), [DAYS[1]], replace=True)
    assert sequences(table, stream=STREAM) == [1, 2, 7]
    assert sequences(table, stream=STREAM, days=[DAYS[0]]) == [1, 2]
    assert sequences(table, days=[DAYS[1]]) == [7]
    assert days_of(table, STREAM) == DAYS
    assert times_of(table, STREAM, 7) == [1767355200 * 10**9]
    assert times_of(table, STREAM, 3) == []


def test_the_second_writer_of_a_day_gets_a_conflict(table: Table, warehouse: Warehouse) -> None:
    other = open_table(warehouse, MESSAGES)
    add(other, messages(range(1, 3)), [DAYS[0]], replace=True)
    before = len(files_in(table))
    with refused(ConcurrentWrite, "table-changed-meanwhile", what=f"stream {STREAM}"):
        add(table, messages(range(5, 9)), [DAYS[0]], replace=True)
    assert len(files_in(table)) == before
    assert sequences(open_table(warehouse, MESSAGES)) == [1, 2]


def test_writers_of_different_days_do_not_disturb_each_other(
    table: Table, warehouse: Warehouse
) -> None:
    other = open_table(warehouse, MESSAGES)
    add(other, messages(range(1, 3)), [DAYS[0]], replace=True)
    add(table, messages(range(5, 7), DAYS[1]), [DAYS[1]], replace=True)
    assert sequences(table) == [1, 2, 5, 6]


def test_two_jobs_forget_the_same_digests(table: Table, warehouse: Warehouse) -> None:
    with table.transaction() as transaction:
        transaction.set_properties(digest_properties("gone", {"a": "1"}))
    first, second = open_table(warehouse, MESSAGES), open_table(warehouse, MESSAGES)
    forget_digests(first, [])
    with pytest.raises(CommitFailedException):
        forget_digests(second, [])
    assert "gone" not in "".join(open_table(warehouse, MESSAGES).properties)


def test_a_failed_write_leaves_nothing(table: Table) -> None:
    def write() -> None:
        with new_files(table) as folder:
            new_file(table, folder, DAYS[0], columns(messages(range(1, 3))))
            assert len(files_in(table)) == 1
            raise JobError("refused", reason="on purpose")

    with refused(JobError, "refused", reason="on purpose"):
        write()
    assert files_in(table) == []


def test_a_table_that_is_not_there(tmp_path: Path) -> None:
    with refused(NoTable, "no-table", table="messages", hint=re.compile("transform ingest")):
        open_table(Warehouse(dir=tmp_path / "none"), MESSAGES)
    assert list(tmp_path.iterdir()) == []
    open_table(Warehouse(dir=tmp_path), MESSAGES, create=True)
    with refused(NoTable, "no-table", hint=re.compile("transform transform")):
        open_table(Warehouse(dir=tmp_path), TRANSFORMED)


def test_a_warehouse_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with refused(WarehouseError, "warehouse-unusable"):
        open_table(Warehouse(dir=tmp_path / "file"), MESSAGES, create=True)


def test_a_catalog_that_is_not_configured() -> None:
    with refused(WarehouseError, "catalog-unknown", catalog="nowhere"):
        open_catalog(Warehouse(catalog="nowhere"))


def test_a_catalog_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "catalog.db").write_text("this is not SQLite, " * 100)
    with refused(WarehouseError, "warehouse-unusable", reason=re.compile("not a database")):
        open_table(Warehouse(dir=tmp_path), MESSAGES)


def test_a_full_disk_is_named_and_left_clean(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "1m") as disk:
        table = open_table(Warehouse(dir=disk / "warehouse"), MESSAGES, create=True)
        noise = [row | {"data": os.urandom(2**20)} for row in messages(range(2))]
        full = refused(WarehouseError, "write-failed", reason=re.compile("No space left"))
        with full, new_files(table) as folder:
            new_file(table, folder, DAYS[0], columns(noise))
        assert not list(disk.rglob("*.parquet"))
