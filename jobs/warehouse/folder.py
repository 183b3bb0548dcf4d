"""A warehouse in a folder: its catalog, the only access to its files, and which files are needed.

Iceberg keeps absolute paths; `paths` finds the files in this folder, wherever it was before.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.io.pyarrow import PyArrowFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties

from jobs.errors import WarehouseError
from jobs.warehouse.catalog_file import FileCatalog
from jobs.warehouse.paths import FOLDER, NAMESPACE, path_in
from jobs.warehouse.store import StoreIO, damaged, file_of

CATALOG_FILE = "catalog.db"
YOUNG = timedelta(days=1)
"""A job that works may need a file that is younger; no job takes longer to publish it."""
_COUNT = "total-data-files"  # in the summary of a snapshot, by Iceberg's specification


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
        "catalog-lost", folder=folder, names=", ".join(names), catalog=CATALOG_FILE
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


def unused(entries: Iterable[pafs.FileInfo], needed: Container[str]) -> Iterator[pafs.FileInfo]:
    """Those files of a table whose paths are not needed.

    List them before you read what is needed: so one that was published in between is known.
    """
    for entry in entries:
        # Hadoop's local file system keeps a checksum beside each file.
        base = entry.base_name
        owner = base[1:-4] if base.startswith(".") and base.endswith(".crc") else base
        if entry.path[: -len(base)] + owner not in needed:
            yield entry


def needed(table: Table, metadata: TableMetadata | None = None) -> set[str]:
    """The path, as the file system names it, of every file that some snapshot needs.

    Args:
        metadata: another state of it.

    Raises:
        WarehouseError: a list of files has fewer than were counted when it was written.
    """
    metadata = metadata or table.metadata
    uris = {table.metadata_location}
    uris |= {entry.metadata_file for entry in metadata.metadata_log}
    for snapshot in metadata.snapshots:
        uris.add(snapshot.manifest_list)
        manifests = snapshot.manifests(table.io)
        summary = snapshot.summary.additional_properties if snapshot.summary else {}
        if not manifests and int(summary.get(_COUNT) or 0):
            raise damaged(snapshot.manifest_list)
        for manifest in manifests:
            uris.add(manifest.manifest_path)
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
            counted = (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)
            if len(entries) != counted:
                raise damaged(manifest.manifest_path)
            uris |= {entry.data_file.file_path for entry in entries}
    return {filesystem_of(uri, table)[1] for uri in uris}
