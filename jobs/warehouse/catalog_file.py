"""Iceberg's catalog in a file of SQLite.

PyIceberg's `SqlCatalog` goes through SQLAlchemy, whose import takes longer than a small job. This
one keeps the same rows, so either opens what the other made.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties

from jobs.warehouse.catalogs import MetastoreCatalog, NoopCatalog

_BUSY_SECONDS = 60  # how long to wait for another writer's lock
_MAKE = """
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS iceberg_tables (
    catalog_name VARCHAR(255) NOT NULL,
    table_namespace VARCHAR(255) NOT NULL,
    table_name VARCHAR(255) NOT NULL,
    metadata_location VARCHAR(1000),
    previous_metadata_location VARCHAR(1000),
    iceberg_type VARCHAR(5),
    PRIMARY KEY (catalog_name, table_namespace, table_name)
);
CREATE TABLE IF NOT EXISTS iceberg_namespace_properties (
    catalog_name VARCHAR(255) NOT NULL,
    namespace VARCHAR(255) NOT NULL,
    property_key VARCHAR(255) NOT NULL,
    property_value VARCHAR(1000) NOT NULL,
    PRIMARY KEY (catalog_name, namespace, property_key)
);
COMMIT;
"""
# A row without a type is a table. In catalogs of older releases there is no column for it.
_ADD = """
INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location)
VALUES (?, ?, ?, ?)
"""
_CHANGE = """
UPDATE iceberg_tables SET metadata_location = ?, previous_metadata_location = ?
WHERE catalog_name = ? AND table_namespace = ? AND table_name = ? AND metadata_location = ?
"""


class FileCatalog(MetastoreCatalog, NoopCatalog):
    """Makes, opens and changes tables; what else a catalog can do is not implemented."""

    def __init__(self, name: str, file: Path, **properties: str) -> None:
        """Makes the file and what is in it, if it is not there."""
        super().__init__(name, **properties)
        self._file = file
        with self._connection() as connection:
            names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
            if not names.issuperset({"iceberg_tables", "iceberg_namespace_properties"}):
                connection.executescript(_MAKE)

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """A connection for one transaction. It is closed afterward, with whatever lock it has."""
        with closing(sqlite3.connect(self._file, timeout=_BUSY_SECONDS)) as connection, connection:
            connection.row_factory = sqlite3.Row
            yield connection

    def _read(self, query: str, *values: str) -> list[dict[str, Any]]:
        with self._connection() as connection:
            return [dict(row) for row in connection.execute(query, values)]

    def _write(self, statement: str, *values: str) -> int:
        """How many rows were changed."""
        with self._connection() as connection:
            return connection.execute(statement, values).rowcount

    def load_table(self, identifier: str | Identifier) -> Table:
        """The table as it is now.

        Raises:
            NoSuchTableError: there is none.
        """
        namespace, name = self.identifier_to_database_and_table(identifier)
        location = self._tables(namespace).get(name)
        if location is None:
            raise NoSuchTableError(f"Table does not exist: {namespace}.{name}")
        io = self._load_file_io(location=location)
        metadata = FromInputFile.table_metadata(io.new_input(location))
        return Table((namespace, name), metadata, location, io, self)

    def list_tables(self, namespace: str | Identifier) -> list[Identifier]:
        """The tables of a namespace."""
        name = self.identifier_to_database(namespace)
        return [(name, table) for table in self._tables(name)]

    def _tables(self, namespace: str) -> dict[str, str | None]:
        """The locations of the metadata of tables, by the names of the tables."""
        rows = self._read(
            "SELECT * FROM iceberg_tables WHERE catalog_name = ? AND table_namespace = ?",
            *(self.name, namespace),
        )
        return {
            row["table_name"]: row["metadata_location"]
            for row in rows
            if row.get("iceberg_type") in (None, "TABLE")  # else another program's view
        }

    def create_table(self, identifier: str | Identifier, *args: Any, **kwargs: Any) -> Table:
        """A new table, made of what `Catalog.create_table` takes.

        Raises:
            NoSuchNamespaceError: there is no such namespace.
            TableAlreadyExistsError: another job made it.
        """
        staged = self._create_staged_table(identifier, *args, **kwargs)
        self._write_metadata(staged.metadata, staged.io, staged.metadata_location)
        try:
            self._write(_ADD, self.name, *staged.name(), staged.metadata_location)
        except sqlite3.IntegrityError as error:
            raise TableAlreadyExistsError(f"{'.'.join(staged.name())} already exists") from error
        return self.load_table(identifier)

    def commit_table(
        self,
        table: Table,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> CommitTableResponse:
        """Changes a table.

        Raises:
            NoSuchTableError: it is not there.
            CommitFailedException: another job changed it meanwhile, or it is not as required.
        """
        name = table.name()
        current = self.load_table(name)
        staged = self._update_and_stage_table(current, name, requirements, updates)
        if staged.metadata == current.metadata:
            return _response(current)
        new, old = staged.metadata_location, current.metadata_location
        self._write_metadata(staged.metadata, staged.io, new)
        if not self._write(_CHANGE, new, old, self.name, *name, old):
            raise CommitFailedException(f"another job changed {'.'.join(name)} meanwhile")
        return _response(staged)

    def create_namespace(
        self, namespace: str | Identifier, properties: Properties = EMPTY_DICT
    ) -> None:
        """Makes a namespace.

        Raises:
            NamespaceAlreadyExistsError: it is there.
        """
        name = self.identifier_to_database(namespace)
        if self.namespace_exists(name):
            raise NamespaceAlreadyExistsError(f"Namespace already exists: {name}")
        for key, value in (properties or {"exists": "true"}).items():
            self._write(
                "INSERT OR IGNORE INTO iceberg_namespace_properties "
                "(catalog_name, namespace, property_key, property_value) VALUES (?, ?, ?, ?)",
                *(self.name, name, key, value),
            )

    def load_namespace_properties(self, namespace: str | Identifier) -> Properties:
        """The properties of a namespace.

        Raises:
            NoSuchNamespaceError: there is none.
        """
        name = self.identifier_to_database(namespace)
        rows = self._read(
            "SELECT * FROM iceberg_namespace_properties WHERE catalog_name = ? AND namespace = ?",
            *(self.name, name),
        )
        if not rows:
            raise NoSuchNamespaceError(f"Namespace does not exist: {name}")
        return {row["property_key"]: row["property_value"] for row in rows}


def _response(table: Table) -> CommitTableResponse:
    # Type checkers know its fields by their names in JSON.
    fields: dict[str, Any] = {"metadata-location": table.metadata_location}
    return CommitTableResponse(metadata=table.metadata, **fields)
