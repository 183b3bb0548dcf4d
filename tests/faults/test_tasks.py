"""Faults of ingest and transform while their tasks read and write files."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from jobs.errors import JobError, WarehouseError
from jobs.ingest import ingest
from jobs.session import Spark
from jobs.settings.ingest import IngestSettings
from jobs.settings.transform import TransformSettings
from jobs.settings.warehouse import Warehouse
from jobs.transform import transform
from jobs.warehouse.specs import MESSAGES, TRANSFORMED
from jobs.warehouse.tables import data_files, open_table
from tests.support.disks import fill, small_disk
from tests.support.jobs import HERE, dumped
from tests.support.refused import refused

START = datetime(2026, 3, 1, tzinfo=UTC)
DAYS, A_DAY = 4, 300
Job = Callable[[Spark, Path], Any]


@pytest.fixture(
    params=["process", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.slow])]
)
def engine(request: pytest.FixtureRequest) -> Spark:
    """What runs the tasks: threads of this process, or the session of the tests."""
    if request.param == "process":
        return HERE
    session: SparkSession = request.getfixturevalue("spark")
    return session


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", "4m") as folder:
        yield folder


def write_inputs(folder: Path, days: int) -> None:
    """A mapping, and a dump of so many days; its payloads cannot be made smaller."""
    chance = random.Random(7)  # a longer dump begins as a shorter one
    rows = [
        {
            "seq": n + 1,
            "ts": (START + timedelta(days=n // A_DAY, seconds=n)).isoformat(),
            "subject": f"a.{n % 3}",
            "data": chance.randbytes(400).hex(),
        }
        for n in range(days * A_DAY)
    ]
    dumped(folder / "dump.jsonl", rows)
    (folder / "mapping.conf").write_text('mappings { "a.*": "b.$1" }')


def ingests(spark: Spark, folder: Path) -> Any:
    warehouse = Warehouse(dir=folder / "disk" / "warehouse")
    dump = str(folder / "dump.jsonl")
    return ingest(spark, IngestSettings(stream="S", jsonl=dump, warehouse=warehouse))


def transforms(spark: Spark, folder: Path) -> Any:
    warehouse = Warehouse(dir=folder / "disk" / "warehouse")
    mapping = folder / "mapping.conf"
    return transform(spark, TransformSettings(stream="S", mapping=mapping, warehouse=warehouse))


def state(folder: Path) -> tuple[dict[str, int | None], set[Path]]:
    """The snapshots of both tables, and all data files that there are, of tables or not."""
    warehouse = Warehouse(dir=folder / "disk" / "warehouse")
    snapshots = {}
    for spec in (MESSAGES, TRANSFORMED):
        current = open_table(warehouse, spec).current_snapshot()
        snapshots[spec.name] = current.snapshot_id if current else None
    return snapshots, {*(warehouse.folder / "nats").glob("*/data/**/*.parquet")}


@pytest.mark.parametrize("job", [ingests, transforms])
def test_a_disk_that_is_full_while_tasks_write(
    tmp_path: Path, disk: Path, engine: Spark, job: Job
) -> None:
    """One line that names the folder; no file is left, and the tables are as they were."""
    write_inputs(tmp_path, 1)
    for one in (ingests, transforms):
        one(engine, tmp_path)
    write_inputs(tmp_path, DAYS)
    if job is transforms:
        ingests(engine, tmp_path)
    before = state(tmp_path)
    fill(disk / "fill")
    with (disk / "fill").open("r+b") as file:  # a catalog and the first task find room
        file.truncate((disk / "fill").stat().st_size - 250_000)
    with refused(WarehouseError, "write-failed", reason=re.compile("No space left")) as told:
        job(engine, tmp_path)
    assert str(disk) in str(told.value)
    assert state(tmp_path) == before
    (disk / "fill").unlink()
    assert job(engine, tmp_path).messages == DAYS * A_DAY


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1000])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def of_another_day(path: Path) -> None:
    (other,) = [one for one in path.parent.glob("*.parquet") if one.name[:10] == "2026-03-02"]
    path.write_bytes(other.read_bytes())


@pytest.mark.parametrize("harm", [cut, emptied, Path.unlink, of_another_day])
def test_a_data_file_that_is_cut_short_or_gone(
    tmp_path: Path, engine: Spark, harm: Callable[[Path], None]
) -> None:
    """One line that says so; the table is as it was."""
    write_inputs(tmp_path, DAYS)
    ingests(engine, tmp_path)
    transforms(engine, tmp_path)
    warehouse = Warehouse(dir=tmp_path / "disk" / "warehouse")
    first, *_ = sorted(one.file_path for one in data_files(open_table(warehouse, MESSAGES), "S"))
    path = Path(first.removeprefix("file://"))
    whole = path.read_bytes()
    before, _ = state(tmp_path)
    harm(path)
    with pytest.raises(JobError) as told:
        transforms(engine, tmp_path)
    by_count = ("table-has-broken-rows", "transform-differs")
    assert path.name in str(told.value) or told.value.code in by_count
    assert state(tmp_path)[0] == before
    path.write_bytes(whole)
    assert transforms(engine, tmp_path).messages == DAYS * A_DAY
