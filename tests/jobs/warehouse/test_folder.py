"""A warehouse folder can be moved and copied, and nothing outside of it is ever touched."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from jobs.census import CENSUS, census
from jobs.errors import NoTable, WarehouseError
from jobs.files.scan import Scan
from jobs.ingest import ingest
from jobs.maintain import maintain
from jobs.settings.census import CensusSettings
from jobs.settings.ingest import IngestSettings
from jobs.settings.maintain import MaintenanceSettings
from jobs.settings.transform import TransformSettings
from jobs.settings.warehouse import Warehouse
from jobs.transform import transform
from jobs.warehouse.folder import place
from jobs.warehouse.specs import MESSAGES, TRANSFORMED
from jobs.warehouse.staging import publish
from jobs.warehouse.tables import data_files, open_catalog, open_table
from tests.support.archive import message, staged
from tests.support.disks import contents
from tests.support.refused import refused

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = datetime.now(UTC) + timedelta(days=30)


def add(warehouse: Warehouse, *sequences: int, replace: bool = False) -> Table:
    """Publishes messages without Spark."""
    table = open_table(warehouse, MESSAGES, create=True)
    rows = [message(n, "a.b", NOON, data=b"x") for n in sequences]
    publish(table, staged(table, rows), "S", [NOON.date()], replace=replace, properties={})
    return table


def sequences(warehouse: Warehouse) -> list[int]:
    table = open_table(warehouse, MESSAGES)
    scan = Scan.of(table, MESSAGES, data_files(table, "S"), ["seq"])
    found = [n for batch in scan for n in batch["seq"].to_pylist()]
    assert sorted(table.scan().to_arrow()["seq"].to_pylist()) == sorted(found)
    return sorted(found)


@contextmanager
def untouched(folder: Path) -> Iterator[None]:
    """Fails if anything in a folder changes meanwhile."""
    before = contents(folder)
    assert before
    yield
    assert contents(folder) == before


def age(folder: Path) -> None:
    """Makes all files old enough for maintenance."""
    for path in folder.rglob("*"):
        os.utime(path, (0, 0), follow_symlinks=False)


def use(warehouse: Warehouse) -> None:
    """What jobs do to a warehouse: more messages, a day replaced, and all leftovers removed."""
    add(warehouse, 3)
    assert sequences(warehouse) == [1, 2, 3]
    add(warehouse, 1, 2, 3, 4, replace=True)
    age(warehouse.folder)
    removed = maintain(MaintenanceSettings(warehouse=warehouse, now=LATER))["messages"]
    assert removed.files > 0
    assert removed.snapshots > 0
    assert sequences(warehouse) == [1, 2, 3, 4]


def copied(original: Path, to: Path) -> Path:
    shutil.copytree(original, to, symlinks=True)
    return to


def copied_into_itself(original: Path, to: Path) -> Path:
    return moved(copied(original, to), original / "nats" / "messages" / "data" / to.name)


def moved(original: Path, to: Path) -> Path:
    original.rename(to)
    return to


def copied_and_original_deleted(original: Path, to: Path) -> Path:
    copied(original, to)
    shutil.rmtree(original)
    return to


def linked(original: Path, to: Path) -> Path:
    original.rename(to.with_name("real"))
    to.symlink_to(to.with_name("real"))
    return to


@pytest.mark.parametrize("place_it", [moved, copied_and_original_deleted, linked])
def test_a_warehouse_elsewhere(tmp_path: Path, place_it: Callable[[Path, Path], Path]) -> None:
    original = tmp_path / "warehouse"
    add(Warehouse(dir=original), 1)
    add(Warehouse(dir=original), 2)
    there = place_it(original, tmp_path / "new place")
    use(Warehouse(dir=there))
    assert not original.exists()


@pytest.mark.parametrize("copy", [copied, copied_into_itself])
def test_a_copy_never_touches_the_original(
    tmp_path: Path, copy: Callable[[Path, Path], Path]
) -> None:
    original = Warehouse(dir=tmp_path / "warehouse")
    add(original, 1)
    add(original, 2)
    there = copy(original.folder, tmp_path / "copy")
    before = {name: data for name, data in contents(original.folder).items() if "copy" not in name}
    use(Warehouse(dir=there))
    after = {name: data for name, data in contents(original.folder).items() if "copy" not in name}
    assert after == before
    assert sequences(original) == [1, 2]
    with untouched(there):
        use(original)


def test_a_copy_of_a_copy(tmp_path: Path) -> None:
    add(Warehouse(dir=tmp_path / "one"), 1)
    add(Warehouse(dir=copied(tmp_path / "one", tmp_path / "two")), 2)
    three = Warehouse(dir=copied(tmp_path / "two", tmp_path / "three"))
    with untouched(tmp_path / "one"), untouched(tmp_path / "two"):
        use(three)


@pytest.mark.parametrize("part", ["", "data", "metadata"])
def test_a_link_out_of_the_warehouse_is_refused(tmp_path: Path, part: str) -> None:
    warehouse = Warehouse(dir=tmp_path / "warehouse")
    add(warehouse, 1)
    folder = warehouse.folder / "nats" / "messages" / part
    outside = moved(folder, tmp_path / "outside")
    folder.symlink_to(outside)
    age(outside)
    with untouched(outside):
        with refused(WarehouseError, "leads-out-of-warehouse"):
            add(warehouse, 2)
        with refused(WarehouseError, "leads-out-of-warehouse"):
            sequences(warehouse)
        with refused(WarehouseError, "leads-out-of-warehouse"):
            maintain(MaintenanceSettings(warehouse=warehouse, now=LATER))


def test_maintenance_leaves_links_alone(tmp_path: Path) -> None:
    warehouse = Warehouse(dir=tmp_path / "warehouse")
    add(warehouse, 1)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("kept")
    data = warehouse.folder / "nats" / "messages" / "data"
    (data / "folder").symlink_to(outside)
    (data / "file").symlink_to(outside / "precious")
    age(warehouse.folder)
    age(outside)
    with untouched(outside):
        maintain(MaintenanceSettings(warehouse=warehouse, now=LATER))
    assert sequences(warehouse) == [1]


@pytest.mark.parametrize(
    "location",
    [
        "file:///etc/passwd",
        "/etc/passwd",
        "relative",
        "",
        "s3://bucket/x.parquet",
        "file:///w/nats/messages",
        "file:///w/nats/messages/other/x.parquet",
        "file:///w/nats/messages/data/../../../../x.parquet",
        "file:///w/nats/../data/x.parquet",
    ],
)
def test_files_that_are_not_of_the_warehouse_are_refused(tmp_path: Path, location: str) -> None:
    warehouse = Warehouse(dir=tmp_path / "warehouse")
    io = add(warehouse, 1).io
    with untouched(warehouse.folder):
        for use_it in (io.new_input, io.new_output, io.delete):
            with pytest.raises(WarehouseError) as caught:
                use_it(location)
            assert caught.value.code in ("not-in-warehouse", "leads-out-of-warehouse")


def test_a_table_cannot_choose_how_its_files_are_found(tmp_path: Path) -> None:
    """Its properties come with the folder, from whoever made it."""
    warehouse, other = Warehouse(dir=tmp_path / "warehouse"), Warehouse(dir=tmp_path / "other")
    add(other, 9)
    table = add(warehouse, 1)
    chosen = {
        "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO",
        "nats-transform.folder": str(other.folder),
        "write.data.path": f"file://{other.folder}/nats/messages/data",
        "write.metadata.path": f"file://{other.folder}/nats/messages/metadata",
    }
    table.transaction().set_properties(chosen).commit_transaction()
    add(warehouse, 2)
    with untouched(other.folder):
        use(warehouse)


@pytest.mark.parametrize("emptied", ["zero bytes", "missing", "new"])
def test_a_catalog_that_does_not_know_the_files_beside_it(tmp_path: Path, emptied: str) -> None:
    warehouse = Warehouse(dir=tmp_path / "warehouse")
    add(warehouse, 1)
    database = warehouse.folder / "catalog.db"
    kept = database.read_bytes()
    database.unlink()
    if emptied == "zero bytes":
        database.touch()
    if emptied == "new":
        open_catalog(Warehouse(dir=tmp_path / "other"), create=True)
        shutil.copy(tmp_path / "other" / "catalog.db", database)
    age(warehouse.folder)
    with untouched(warehouse.folder):
        for use_it, code in (
            (lambda: add(warehouse, 2), "catalog-lost"),
            (
                lambda: maintain(MaintenanceSettings(warehouse=warehouse, now=LATER)),
                "no-tables" if emptied == "missing" else "catalog-lost",
            ),
        ):
            with refused((WarehouseError, NoTable), code):
                use_it()
    database.write_bytes(kept)
    assert sequences(warehouse) == [1]


def test_a_first_job_that_was_killed_in_between(tmp_path: Path) -> None:
    """The metadata of a table may be there before the catalog knows it, but no file of its data."""
    warehouse = Warehouse(dir=tmp_path / "warehouse")
    open_table(warehouse, MESSAGES, create=True)
    (warehouse.folder / "catalog.db").unlink()
    add(warehouse, 1)
    assert sequences(warehouse) == [1]


NAMES = [
    "a#b", "a?b", "a[1]", "{a,b}", "a:b", "100%25", "a b", "é中", "a;b&c=d", "a@b", "*", "\\", "'",
    "a:[1]",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_any_name_of_a_folder(tmp_path: Path, name: str) -> None:
    warehouse = Warehouse(dir=tmp_path / "top" / name / "warehouse")
    add(warehouse, 1)
    add(warehouse, 2)
    use(warehouse)
    assert os.listdir(tmp_path / "top") == [name]
    assert sorted(os.listdir(tmp_path)) == ["top"]
    assert sorted(os.listdir(warehouse.folder)) == ["catalog.db", "nats"]


DUMP = '{"subject": "orders.new", "ts": "2026-01-01T10:00:00Z", "data": "x"}\n'


@pytest.mark.spark
def test_jobs_in_a_moved_folder_with_any_name(spark: SparkSession, tmp_path: Path) -> None:
    dump, mapping = tmp_path / "dump.jsonl", tmp_path / "mapping.conf"
    dump.write_text(DUMP)
    mapping.write_text('mappings { "orders.*": "o.$1" }')
    first = Warehouse(dir=tmp_path / "first")
    ingest(spark, IngestSettings(stream="S", jsonl=str(dump), warehouse=first))
    transform(spark, TransformSettings(stream="S", mapping=mapping, warehouse=first))
    there = tmp_path / "".join(NAMES)
    there.mkdir()
    second = Warehouse(dir=copied(first.folder, there / "second"))
    dump.write_text(2 * DUMP)
    with untouched(first.folder):
        added = ingest(spark, IngestSettings(stream="S", jsonl=str(dump), warehouse=second))
        done = transform(spark, TransformSettings(stream="S", mapping=mapping, warehouse=second))
        census(spark, CensusSettings(stream="S", warehouse=second))
        age(second.folder)
        maintain(MaintenanceSettings(warehouse=second, now=LATER))
    assert (added.added, added.messages, done.messages) == (1, 2, 2)
    shutil.rmtree(first.folder)
    for spec, count in ((MESSAGES, 2), (TRANSFORMED, 2), (CENSUS, 1)):
        table = open_table(second, spec)
        assert table.scan().count() == count
        for file in data_files(table):
            assert place(file.file_path, table).startswith(f"file://{second.folder}/nats/")
    assert sorted(os.listdir(tmp_path)) == sorted(["dump.jsonl", "mapping.conf", there.name])
