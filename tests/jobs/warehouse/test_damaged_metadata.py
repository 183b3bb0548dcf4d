"""A warehouse that was not copied to the end: this is noticed before anything is lost."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.errors import WarehouseError
from jobs.maintain import maintain
from jobs.settings.maintain import MaintenanceSettings
from jobs.settings.warehouse import Warehouse
from jobs.warehouse.avro import is_whole
from tests.jobs.warehouse.test_folder import LATER, add, age, sequences
from tests.support.disks import contents
from tests.support.refused import refused

LIST, MANIFEST = "snap-*.avro", "*-m0.avro"


def latest(warehouse: Warehouse, kind: str) -> Path:
    """The manifest list of the latest snapshot, or a manifest in it."""
    found = (warehouse.folder / "nats" / "messages" / "metadata").glob(kind)
    return max(found, key=lambda path: path.stat().st_mtime_ns)


def header_of(data: bytes) -> int:
    """Where the header ends: with the marker that also ends the file."""
    return data.index(data[-16:]) + 16


@pytest.fixture
def warehouse(warehouse: Warehouse) -> Warehouse:
    add(warehouse, 1)
    add(warehouse, 2)
    return warehouse


def maintained(warehouse: Warehouse) -> None:
    """What a warehouse still has after maintenance, which must refuse to run."""
    age(warehouse.folder)
    before = {name: data for name, data in contents(warehouse.folder).items() if "data/" in name}
    with refused(WarehouseError, "catalog-damaged", path=re.compile("metadata/.*avro$")):
        maintain(MaintenanceSettings(warehouse=warehouse, now=LATER))
    assert before.items() <= contents(warehouse.folder).items()


@pytest.mark.parametrize("kind", [LIST, MANIFEST])
@pytest.mark.parametrize("part", [0.0, 0.3, 0.9, 0.99])
def test_a_file_that_was_cut(warehouse: Warehouse, kind: str, part: float) -> None:
    """PyIceberg's decoder would read on behind the end of what there is."""
    file = latest(warehouse, kind)
    data = file.read_bytes()
    file.write_bytes(data[: int(len(data) * part)])
    with refused(WarehouseError, "catalog-damaged", how="was cut or damaged") as told:
        sequences(warehouse)
    assert file.name in str(told.value)
    maintained(warehouse)


@pytest.mark.parametrize("kind", [LIST, MANIFEST])
def test_maintenance_counts_what_is_listed(
    warehouse: Warehouse, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in an object store, whose files are not looked at: the list then counts as empty."""
    file = latest(warehouse, kind)
    data = file.read_bytes()
    file.write_bytes(data[: header_of(data)])
    monkeypatch.setattr("jobs.warehouse.store.is_whole", lambda _: True)
    assert sequences(warehouse) != [1, 2]
    maintained(warehouse)


@pytest.mark.parametrize("kind", [LIST, MANIFEST])
def test_every_cut_is_noticed(warehouse: Warehouse, kind: str) -> None:
    data = latest(warehouse, kind).read_bytes()
    assert is_whole(data)
    assert not any(is_whole(data[:end]) for end in range(len(data)))
    assert not is_whole(data + b"\0")


def header(*counts: int) -> bytes:
    """The start of a file with such counts of its metadata, each followed by nothing."""
    return b"Obj\x01" + b"".join(bytes([abs(2 * n) - (n < 0)]) for n in counts)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        header(0),
        header(63),
        header(-63),
        b"Obj\x01" + b"\xff" * 100,
        b"Obj\x01" + b"\xfe" + b"\xff" * 8 + b"\x01",  # 2 ** 63 - 1 entries
        header(1, 1) + b"a" + header(-1)[4:],  # a value of less than nothing
        header(0) + bytes(16) + b"\x00" + header(-16)[4:] + bytes(32),  # a block that goes back
    ],
)
def test_bytes_of_somebody_else(data: bytes) -> None:
    assert not is_whole(data)


def test_a_list_of_nothing_is_whole() -> None:
    assert is_whole(header(0) + bytes(16) + bytes(2) + bytes(16))


METADATA = "*.metadata.json"
WRONG: list[tuple[str, Callable[[bytes], bytes]]] = [
    (METADATA, lambda data: data[: len(data) // 2]),
    (METADATA, lambda data: b""),
    (METADATA, lambda data: b"[]"),
    (METADATA, lambda data: data.replace(b'"format-version":2', b'"format-version":9')),
    (METADATA, lambda data: data.replace(b'"schemas"', b'"shemata"')),
    (METADATA, lambda data: data.replace(b'"table-uuid":"', b'"table-uuid":"x')),
    (METADATA, lambda data: data.replace(b"messages", b"mess\xffges")),
    (LIST, lambda data: data.replace(b'"record"', b'"rekord"')),
    (MANIFEST, lambda data: data.replace(b'"record"', b'[record"')),
    (MANIFEST, lambda data: data.replace(b"avro.schema", b"avro.schama", 1)),
    (MANIFEST, lambda data: data.replace(b"deflate", b"deflbte").replace(b"null\x14", b"nul0\x14")),
]


@pytest.mark.parametrize(("kind", "spoil"), WRONG, ids=range(len(WRONG)))
def test_content_that_is_wrong(
    warehouse: Warehouse, kind: str, spoil: Callable[[bytes], bytes]
) -> None:
    """PyIceberg's errors say neither which file it is nor what to do."""
    file = latest(warehouse, kind)
    data = file.read_bytes()
    assert spoil(data) != data
    file.write_bytes(spoil(data))
    with refused(WarehouseError, "catalog-damaged", path=re.compile(file.name)):
        sequences(warehouse)


@pytest.mark.parametrize("kind", [LIST, MANIFEST, METADATA])
def test_a_list_that_is_missing(warehouse: Warehouse, kind: str) -> None:
    file = latest(warehouse, kind)
    file.unlink()
    with refused(WarehouseError, "catalog-damaged", path=re.compile(file.name), how="is missing"):
        sequences(warehouse)
