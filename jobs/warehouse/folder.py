"""A warehouse in a folder: its catalog, and the only access to its files.

Iceberg keeps absolute paths; `paths` finds the files in this folder, wherever it was before.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.io.pyarrow import PyArrowFile
from pyiceberg.table import Table
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties

from jobs.errors import WarehouseError
from jobs.warehouse.catalog_file import FileCatalog
from jobs.warehouse.paths import FOLDER, NAMESPACE, path_in
from jobs.warehouse.store import StoreIO, file_of

CATALOG_FILE = "catalog.db"


class FolderCatalog(FileCatalog):
    """The catalog of a folder. Its tables are in this folder, even if they were made elsewhere."""

    def __init__(self, folder: Path) -> None:
        settings = {"warehouse": f"file://{folder}", FOLDER: str(folder)}
        super().__init__("nats-transform", folder / CATALOG_FILE, **settings)
        self.folder = folder

    def load_table(self, identifier: str | Identifier) -> Table:
        """The table, with its location in this folder."""
        table = super().load_table(identifier)
        location = f"file://{self.folder}/{'/'.join(table.name())}"
        table.metadata = table.metadata.model_copy(update={"location": location})
        return table

    def _load_file_io(
        self, properties: Properties = EMPTY_DICT, location: str | None = None
    ) -> FileIO:
        # PyIceberg lets the properties of a table choose another: whoever made the table did.
        return FolderIO(self.properties)


class FolderIO(StoreIO):
    """Opens, makes and deletes the files of one folder, and no others."""

    def path_of(self, location: str) -> str:
        """The path of a file, as `path_in` finds it."""
        return path_in(self.properties[FOLDER], location)

    def new_input(self, location: str) -> PyArrowFile:
        """A file to read."""
        return file_of(location, self.path_of(location), self.fs_by_scheme("file", ""))

    def new_output(self, location: str) -> PyArrowFile:
        """A file to write."""
        return self.new_input(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Deletes a file."""
        os.remove(self.path_of(location if isinstance(location, str) else location.location))


def folder_catalog(folder: Path) -> FolderCatalog:
    """The catalog of a folder, which is made if it is not there.

    Raises:
        WarehouseError: the folder has files of tables that its catalog does not know. With a new
            catalog, `maintain` would delete them.
    """
    # Looked for first: a job puts a table into the catalog before it writes a file of it.
    with_data = sorted(data.parent.name for data in folder.glob(f"{NAMESPACE}/*/data"))
    database = folder / CATALOG_FILE
    if with_data and not (database.exists() and database.stat().st_size):
        raise _unknown(folder, with_data)
    folder.mkdir(parents=True, exist_ok=True)
    catalog = FolderCatalog(folder)
    catalog.create_namespace_if_not_exists(NAMESPACE)
    known = {name for _, name in catalog.list_tables(NAMESPACE)}
    if missing := [name for name in with_data if name not in known]:
        raise _unknown(folder, missing)
    return catalog


def _unknown(folder: Path, names: list[str]) -> WarehouseError:
    return WarehouseError(
        f"{folder} has files of {', '.join(names)} that its {CATALOG_FILE} does not know: the "
        "catalog is missing, empty or from another warehouse; restore it from a copy"
    )


def place(location: str, table: Table) -> str:
    """The location of a file of a table as Spark takes it: where the file really is."""
    if isinstance(table.io, FolderIO):
        return f"file://{table.io.path_of(location)}"
    return location


def filesystem_of(location: str, table: Table) -> tuple[Any, str]:
    """The pyarrow file system of a file of a table, set up by its catalog, and the path in it."""
    if isinstance(table.io, FolderIO):
        return pafs.LocalFileSystem(), table.io.path_of(location)
    settings = table.io.properties
    scheme, netloc, path = StoreIO.parse_location(location, settings)
    return StoreIO(settings).fs_by_scheme(scheme, netloc), path


def files_of(table: Table) -> Iterator[pafs.FileInfo]:
    """Every file in the folders of a table, whether the table needs it or not.

    Symbolic links are not followed, and a whole warehouse that was copied into the folder is left
    alone.
    """
    for part in ("data", "metadata"):
        filesystem, top = filesystem_of(f"{table.location()}/{part}", table)
        if not isinstance(table.io, FolderIO):
            selector = pafs.FileSelector(top, recursive=True, allow_not_found=True)
            yield from (e for e in filesystem.get_file_info(selector) if e.is_file)
            continue
        for folder, folders, names in os.walk(top):
            if CATALOG_FILE in names:
                folders.clear()
                continue
            paths = [os.path.join(folder, name) for name in names]
            own = [p for p in paths if not os.path.islink(p) and table.io.path_of(p) == p]
            yield from (e for e in filesystem.get_file_info(own) if e.is_file)


def delete(path: str, table: Table) -> None:
    """Deletes a file of a table, by a path that `files_of` gave."""
    if isinstance(table.io, FolderIO):
        table.io.delete(path)
    else:
        filesystem_of(table.location(), table)[0].delete_file(path)
