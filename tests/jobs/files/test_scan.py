"""A function of rows gets those of all files, whatever does the work."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.errors import WarehouseError
from jobs.files.read import Piece, Reader, Task
from jobs.files.scan import Scan
from jobs.files.storage import Storage
from jobs.session import Spark
from jobs.settings.days import DayRange
from jobs.settings.warehouse import Warehouse
from jobs.warehouse.specs import MESSAGES
from jobs.warehouse.tables import data_files, open_table, slice_of
from tests.support.archive import archive, message
from tests.support.jobs import HERE
from tests.support.refused import refused

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def by_day(batches: Iterable[pa.RecordBatch]) -> Counter[tuple[int, str]]:
    """How often each subject was there on each day, where all columns are as jobs have them."""
    found = Counter[tuple[int, str]]()
    for rows in batches:
        assert rows.schema.names == MESSAGES.rows.names
        subjects = rows.column("subject").view(pa.binary()).to_pylist()
        days = [day.day for day in rows.column("day").to_pylist()]
        found.update((day, repr(subject)) for day, subject in zip(days, subjects, strict=True))
    return found


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    made = Warehouse(dir=tmp_path)
    rows = [message(n, ("a", "\udcff")[n % 2], NOON + timedelta(days=n // 10)) for n in range(30)]
    archive(made, rows)
    archive(made, [message(1, "of another stream", NOON, stream="T")])
    return made


def test_row_groups_without_a_value_in_a_column_are_left_out(tmp_path: Path) -> None:
    kind = pa.list_(pa.struct([("name", pa.string()), ("value", pa.string())]))
    for name, columns, expected in (
        ("headers", pa.array([None, [], [{"name": "A", "value": None}], None], kind), [2, 3]),
        ("headers_raw", pa.array([None, b"?", None, None], pa.binary()), [0, 1]),
    ):
        file = tmp_path / f"{name}.parquet"
        rows = pa.table({"seq": pa.array(range(4)), name: columns})
        pq.write_table(rows, file, row_group_size=2)
        reader = Reader(Storage(), pa.schema([rows.field("seq")]), ())
        task = Task(0, NOON.date(), (Piece(str(file)),), 0)
        for filled, found in (((), [0, 1, 2, 3]), (["headers"], expected)):
            parts = reader.only(["seq"], filled)(task)
            assert [seq for part in parts for seq in part.column("seq").to_pylist()] == found


@pytest.mark.parametrize("engine", ["process", pytest.param("spark", marks=pytest.mark.spark)])
def test_all_rows_of_some_files(
    request: pytest.FixtureRequest, engine: str, warehouse: Warehouse
) -> None:
    spark: Spark = HERE if engine == "process" else request.getfixturevalue("spark")
    table = open_table(warehouse, MESSAGES)
    days = [(NOON + timedelta(days=n)).date() for n in (0, 2)]
    every = DayRange(date.min, date.max)
    assert len(repr(slice_of("S", every))) < 500  # as a list of days it would have megabytes
    for wanted, expected in (
        (days, (1, 3)),
        ([], ()),
        (DayRange(days[0], days[0]), (1,)),
        (DayRange(days[0], days[1]), (1, 2, 3)),
        (every, (1, 2, 3)),
    ):
        files = data_files(table, "S", wanted)
        scan = Scan.of(table, MESSAGES, files)
        assert scan.count == sum(batch.num_rows for batch in scan) == 10 * len(expected)
        assert scan.sum(spark, by_day, "counting") == {
            (day, subject): 5 for day in expected for subject in ("b'a'", r"b'\xff'")
        }


def test_a_damaged_file_is_named(warehouse: Warehouse) -> None:
    table = open_table(warehouse, MESSAGES)
    (file,) = data_files(table, "T")
    place = Path(file.file_path.removeprefix("file://"))
    place.write_bytes(place.read_bytes()[:-20])
    with refused(WarehouseError, "file-unreadable-in-warehouse"):
        Scan.of(table, MESSAGES, [file]).sum(HERE, by_day, "counting")
    with refused(WarehouseError, "file-unreadable-in-warehouse", path=re.compile("parquet$")):
        list(Scan.of(table, MESSAGES, [file], ["seq"]))
