"""How rows get into a table: files are staged beside it, and one commit makes them part of it.

A reader sees the table as it was before the commit or as it is after it, never between. Every file
holds rows of exactly one (stream, day), which lets a day be replaced by swapping files.
"""

from __future__ import annotations

import contextlib
import copy
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

import pyarrow.fs as pafs
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from jobs.errors import ConcurrentWrite
from jobs.settings.warehouse import MAIN
from jobs.warehouse.folder import filesystem_of, needed, place
from jobs.warehouse.tables import (
    PROPERTY,
    attempts,
    branch_of,
    data_files,
    digest_properties,
    unless_overtaken,
    warehouse_errors,
)
from jobs.warehouse.transaction import FrugalTransaction


@dataclass(frozen=True)
class Staged:
    """Files beside a table that are not part of it yet.

    Attributes:
        data_files: the files, as the table will list them.
        digests: the hash of the bytes of each file, by its name in the folder.
    """

    folder: str
    data_files: tuple[DataFile, ...]
    digests: Mapping[str, str] = field(default_factory=dict)


@contextlib.contextmanager
def new_files(table: Table) -> Iterator[str]:
    """A folder for files that are to become part of a table; an error meanwhile deletes it."""
    folder = new_folder(table)
    try:
        yield folder
    except BaseException:
        drop(folder, table)
        raise


def new_folder(table: Table, prefix: str = "") -> str:
    """A folder for files that are to become part of a table."""
    return place(f"{table.location()}/data/{prefix}{uuid.uuid4()}", table)


def drop(staged: Staged | str, table: Table) -> None:
    """Deletes files that were staged for a table."""
    folder = staged.folder if isinstance(staged, Staged) else staged
    filesystem, path = filesystem_of(folder, table)
    with contextlib.suppress(OSError):
        if isinstance(filesystem, pafs.LocalFileSystem):
            shutil.rmtree(path)
        else:
            filesystem.delete_dir(path)


def publish(
    table: Table,
    staged: Staged,
    stream: str,
    days: Sequence[date] | None = None,
    *,
    replace: bool,
    properties: Mapping[str, str],
    table_properties: Mapping[str, str] | None = None,
    is_outdated: Callable[[], bool] | None = None,
) -> int:
    """The id of the snapshot in which the staged files are part of the table: one commit.

    Args:
        table: the table, or its branch, in the state that the job has read.
        staged: the new files; they are deleted if they cannot be published.
        days: the days of the rows; None for the whole stream.
        replace: whether they take the place of the files of these days, or join them.
        properties: the properties of the snapshot, without the prefix.
        table_properties: properties of the table to set in the same commit, without the prefix.
        is_outdated: whether the rows must not be published any more; asked again if another job
            changed the table meanwhile.

    Raises:
        ConcurrentWrite: someone changed files of this stream and these days since, or one of these
            properties of the table; or removed what the rows were made of.
        WarehouseError: the catalog cannot be reached or written.
    """
    return commit(
        table,
        staged,
        lambda state: data_files(state, stream, days),
        f"stream {stream}",
        replace=replace,
        properties=properties,
        table_properties=table_properties,
        is_outdated=is_outdated,
    )


def commit(
    table: Table,
    staged: Staged,
    files_in: Callable[[Table], Sequence[DataFile]],
    what: str,
    *,
    replace: bool = True,
    properties: Mapping[str, str],
    table_properties: Mapping[str, str] | None = None,
    is_outdated: Callable[[], bool] | None = None,
) -> int:
    """As `publish`, for any files of a table.

    Args:
        table, staged, replace, properties, table_properties, is_outdated: as `publish` takes them.
        files_in: gives the files that are replaced, or joined, in a state of the table.
        what: what they are of, for an error.
    """
    snapshot_properties = {PROPERTY + name: value for name, value in properties.items()}
    kept = digest_properties(staged.folder, staged.digests) | {
        PROPERTY + name: value for name, value in (table_properties or {}).items()
    }
    try:
        with warehouse_errors(table.location()):
            for _ in attempts(table.name()[-1]):
                current = copy.copy(table).refresh()
                if (there := _files(files_in, current)) is None:
                    continue
                is_base = current.metadata_location == table.metadata_location
                if not is_base and (
                    _paths(there) != _paths(_files(files_in, table) or ())
                    or branch_of(table) in table.metadata.refs.keys() - current.metadata.refs
                    or any(
                        current.properties.get(name) not in (value, table.properties.get(name))
                        for name, value in kept.items()
                    )
                    or (is_outdated is not None and is_outdated())
                    or ((reused := _reused(staged, table)) and not reused <= needed(current))
                ):
                    raise ConcurrentWrite(
                        "table-changed-meanwhile", table=".".join(table.name()), what=what
                    )
                transaction = FrugalTransaction(current)
                if branch_of(table) != MAIN and not current.metadata.snapshots:
                    # PyIceberg writes the first snapshot of a table in the main branch only.
                    transaction.update_snapshot().fast_append().commit()
                    with contextlib.suppress(CommitFailedException):
                        transaction.commit_transaction()
                    continue
                update = transaction.update_snapshot(snapshot_properties, branch_of(table))
                old_files = there if replace else []
                with unless_overtaken(current):
                    with update.overwrite() if old_files else update.fast_append() as snapshot:
                        for old in old_files:
                            snapshot.delete_data_file(old)
                        for new in staged.data_files:
                            snapshot.append_data_file(new)
                    if kept:
                        transaction.set_properties(kept)
                    published = transaction.commit_transaction().current_snapshot()
                    table.refresh()
                    break
    except ConcurrentWrite:
        if staged.folder:
            drop(staged, table)
        raise
    assert published is not None  # noqa: S101 - we made it
    return published.snapshot_id


def _files(
    files_in: Callable[[Table], Sequence[DataFile]], table: Table
) -> Sequence[DataFile] | None:
    """The files in a state of a table; None if an erasure has deleted that state."""
    with unless_overtaken(table):
        return files_in(table)
    return None


def _reused(staged: Staged, table: Table) -> set[str]:
    """The paths of files that are not new: an erasure may have deleted them."""
    paths = [file.file_path for file in staged.data_files]
    if staged.folder:
        paths = [path for path in paths if not path.startswith(staged.folder.rstrip("/") + "/")]
    return {filesystem_of(path, table)[1] for path in paths}


def _paths(files: Iterable[DataFile]) -> frozenset[str]:
    return frozenset(f.file_path for f in files)
