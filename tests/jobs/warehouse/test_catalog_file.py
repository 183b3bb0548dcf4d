"""The catalog in a file, beside PyIceberg's `SqlCatalog`, whose rows it keeps."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)

from jobs.warehouse.catalog_file import FileCatalog
from jobs.warehouse.catalogs import Catalog
from jobs.warehouse.specs import MESSAGES
from tests.support.meanwhile import just_before

TABLE = ("nats", "messages")


def ours(folder: Path) -> Catalog:
    return FileCatalog("nats-transform", folder / "catalog.db", warehouse=f"file://{folder}")


def theirs(folder: Path) -> Catalog:
    uri, warehouse = f"sqlite:///{folder}/catalog.db", f"file://{folder}"
    _THEIRS.append(catalog := SqlCatalog("nats-transform", uri=uri, warehouse=warehouse))
    return catalog


_THEIRS: list[SqlCatalog] = []


@pytest.fixture(autouse=True)
def close() -> Iterator[None]:
    """Closes each catalog: Python 3.13 warns of those that nobody closes, in whatever test runs."""
    yield
    while _THEIRS:
        _THEIRS.pop().close()


Open = Callable[[Path], Catalog]


def rows(folder: Path) -> list[list[dict[str, Any]]]:
    """All rows, without the random part of locations."""
    with closing(sqlite3.connect(folder / "catalog.db")) as connection:
        connection.row_factory = sqlite3.Row
        tables = ("iceberg_tables", "iceberg_namespace_properties")
        return [
            [
                {name: str(value).rpartition("/")[2][:6] for name, value in dict(row).items()}
                for row in connection.execute(f"SELECT * FROM {table}")  # noqa: S608
            ]
            for table in tables
        ]


def made(catalog: Catalog) -> None:
    """A table, changed twice."""
    catalog.create_namespace("nats")
    table = catalog.create_table(TABLE, MESSAGES.schema, properties={"a": "1"})
    for value in "23":
        table.transaction().set_properties({"a": value}).commit_transaction()


def test_both_write_the_same_rows(tmp_path: Path) -> None:
    for name, catalog in (("ours", ours), ("theirs", theirs)):
        (tmp_path / name).mkdir()
        made(catalog(tmp_path / name))
    written, wanted = rows(tmp_path / "ours"), rows(tmp_path / "theirs")
    # No type says the same, also to a catalog that has no column for it.
    types = [table[0].pop("iceberg_type") for table, _ in (written, wanted)]
    assert (types, written) == (["None", "TABLE"], wanted)
    assert written[0][0]["previous_metadata_location"] == "00001-"
    assert written[1][0]["property_value"] == "true"


@pytest.mark.parametrize(("make", "use"), [(ours, theirs), (theirs, ours)])
def test_either_goes_on_with_what_the_other_made(tmp_path: Path, make: Open, use: Open) -> None:
    made(make(tmp_path))
    catalog = use(tmp_path)
    assert catalog.list_tables("nats") == [TABLE]
    table = catalog.load_table("nats.messages")
    assert (table.properties["a"], table.location()) == ("3", f"file://{tmp_path}/nats/messages")
    table.transaction().set_properties({"a": "4"}).commit_transaction()
    assert make(tmp_path).load_table(TABLE).properties["a"] == "4"


def test_a_catalog_of_an_older_release(tmp_path: Path) -> None:
    """It has no column that tells tables from views, and gets none."""
    theirs(tmp_path)
    with closing(sqlite3.connect(tmp_path / "catalog.db")) as connection:
        connection.execute("ALTER TABLE iceberg_tables DROP COLUMN iceberg_type")
    made(ours(tmp_path))
    assert ours(tmp_path).load_table(TABLE).properties["a"] == "3"
    assert "iceberg_type" not in rows(tmp_path)[0][0]


def test_a_view_of_another_program_is_no_table(tmp_path: Path) -> None:
    made(ours(tmp_path))
    with closing(sqlite3.connect(tmp_path / "catalog.db")) as connection, connection:
        connection.execute("UPDATE iceberg_tables SET iceberg_type = 'VIEW'")
    assert ours(tmp_path).list_tables("nats") == []
    assert not ours(tmp_path).table_exists(TABLE)


def test_what_is_there_or_not(tmp_path: Path) -> None:
    catalog = ours(tmp_path)
    with pytest.raises(NoSuchNamespaceError):
        catalog.create_table(TABLE, MESSAGES.schema)
    made(catalog)
    with pytest.raises(NamespaceAlreadyExistsError):
        catalog.create_namespace("nats")
    with pytest.raises(TableAlreadyExistsError):
        catalog.create_table(TABLE, MESSAGES.schema)
    with pytest.raises(NoSuchTableError):
        catalog.load_table(("nats", "census"))


def test_of_two_changes_at_once_one_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = ours(tmp_path)
    made(catalog)
    table = catalog.load_table(TABLE)

    def change(*_: Any) -> None:
        other = ours(tmp_path).load_table(TABLE).transaction()
        other.set_properties({"a": "4"}).commit_transaction()

    just_before(monkeypatch, "jobs.warehouse.catalog_file.FileCatalog._write_metadata", change)
    with pytest.raises(CommitFailedException):
        table.transaction().set_properties({"b": "5"}).commit_transaction()
    now = catalog.load_table(TABLE).properties
    assert (now["a"], now.get("b")) == ("4", None)


def test_reading_takes_no_lock(tmp_path: Path) -> None:
    made(ours(tmp_path))
    with closing(sqlite3.connect(tmp_path / "catalog.db")) as other:
        other.execute("BEGIN IMMEDIATE")
        ours(tmp_path).create_namespace_if_not_exists("nats")
        assert ours(tmp_path).load_table(TABLE).properties["a"] == "3"
