"""The files in the folders of a table that no state of the table needs."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from datetime import timedelta

import pyarrow.fs as pafs
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from jobs.warehouse.folder import filesystem_of
from jobs.warehouse.store import damaged

YOUNG = timedelta(days=1)
"""A job that works may need a file that is younger; no job takes longer to publish it."""
_COUNT = "total-data-files"  # in the summary of a snapshot, by Iceberg's specification


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
