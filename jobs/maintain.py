"""The job `maintain` removes snapshots that are old enough, and files that nothing needs.

It may run at the same time as every other job. It keeps

- every state that a table or a branch had within the retention, for readers that opened it then;
- files younger than a day that no snapshot has, whatever the retention is, because a running job
  writes its files first and publishes them last.

It needs no Spark.
"""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta
from itertools import islice

from pydantic import BaseModel
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.snapshots import ancestors_of

from jobs.errors import ArchiveError
from jobs.progress import step
from jobs.settings.maintain import MaintenanceSettings
from jobs.settings.warehouse import Warehouse
from jobs.warehouse import branches
from jobs.warehouse.accounting import Archived
from jobs.warehouse.catalogs import Catalog
from jobs.warehouse.folder import YOUNG, delete, files_of, needed, unused
from jobs.warehouse.paths import NAMESPACE
from jobs.warehouse.specs import MESSAGES
from jobs.warehouse.staging import Staged, publish
from jobs.warehouse.tables import (
    Branch,
    attempts,
    branches_of,
    data_files,
    forget_digests,
    open_catalog,
    partitions_of,
    warehouse_errors,
)

_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)  # nothing is older


class Removed(BaseModel):
    """What `maintain` removed of a table, and what is left.

    Attributes:
        snapshots: how many snapshots were removed.
        files: how many files were deleted.
        bytes: the size of these files.
        snapshots_left: how many snapshots the table still has.
        young: how many more files no snapshot needs, but are too young to be deleted.
        young_until: the time when the last of them is old enough.
    """

    snapshots: int
    files: int
    bytes: int
    snapshots_left: int
    young: int = 0
    young_until: datetime | None = None


def maintain(settings: MaintenanceSettings) -> dict[str, Removed | int]:
    """What was removed of each table, by its name; or how many rows of a stream or a branch.

    Raises:
        NoTable: there is no warehouse yet.
        NoBranch: there is no such branch, or everybody reads it.
        WarehouseError: the tables cannot be opened, or files not deleted.
        ConcurrentWrite: other jobs kept getting in first.
    """
    warehouse = settings.warehouse
    if settings.remove_stream is not None:
        return dict(remove_stream(warehouse, settings.remove_stream))
    if settings.remove_branch is not None:
        return dict(branches.remove(branches.ending(warehouse, settings.remove_branch)))
    catalog = open_catalog(warehouse)
    now = settings.now or datetime.now(UTC)
    with warehouse_errors(warehouse):
        names = [name for _, name in sorted(catalog.list_tables(NAMESPACE))]
        retention = min(settings.retention, now - _BEGINNING)
        return {name: _maintain(catalog, name, now, retention) for name in names}


def remove_stream(warehouse: Warehouse, stream: str) -> dict[str, int]:
    """How many rows of a stream were removed of each table, by its name.

    The files stay until maintenance removes them, for readers that opened the table before.

    Raises:
        ArchiveError: no table has this stream.
        ConcurrentWrite: another job wrote messages of the stream meanwhile.
        WarehouseError: the tables cannot be opened or written.
    """
    catalog = open_catalog(warehouse)
    removed = {}
    with warehouse_errors(warehouse):
        names = sorted(name for _, name in catalog.list_tables(NAMESPACE))
    # The messages are removed last, because all other tables can be made from them again.
    for name in sorted(names, key=lambda name: name == MESSAGES.name):
        table = catalog.load_table((NAMESPACE, name))
        if not partitions_of(table):
            continue
        is_archive, rows = name == MESSAGES.name, dict[str, int]()
        archived = Archived.of(table, stream)
        buried, is_removed = archived.buried, False
        accounts = {Archived.key(stream): buried.model_dump_json() if buried.erased else ""}
        for branch in (Branch(table, name) for name in branches_of(table)):
            files = {file.file_path: file.record_count for file in data_files(branch, stream)}
            if not files and archived == buried:
                continue
            is_removed = True
            rows |= files  # branches share files
            with step(f"removing {stream} from {name}"):
                publish(
                    branch,
                    Staged("", ()),
                    stream,
                    replace=True,
                    properties={
                        "job": "remove",
                        "stream": stream,
                        "messages": str(sum(files.values())),
                    },
                    table_properties=accounts if is_archive else None,
                )
        if is_removed:
            removed[name] = sum(rows.values())
    if not removed:
        raise ArchiveError("no-rows-of-stream", warehouse=warehouse, stream=stream)
    return removed


def _maintain(catalog: Catalog, name: str, now: datetime, retention: timedelta) -> Removed:
    with step(f"removing old snapshots of {name}"):
        expired = _expire(catalog, name, now - retention)
    age = max(retention, YOUNG)
    # Files are listed before the table is read, so a file that is published in between is known.
    table = catalog.load_table((NAMESPACE, name))
    entries = list(files_of(table))
    live = needed(table.refresh())
    with contextlib.suppress(CommitFailedException):  # a job published meanwhile; next time then
        forget_digests(table, live)
    files = size = 0
    kept = []
    with step(f"looking at the files of {name}"):
        for entry in unused(entries, live):
            if entry.mtime > now - age:
                kept.append(entry.mtime)
            else:
                with contextlib.suppress(FileNotFoundError):  # another maintenance was faster
                    delete(entry.path, table)
                    files, size = files + 1, size + entry.size
    return Removed(
        snapshots=expired,
        files=files,
        bytes=size,
        snapshots_left=len(table.metadata.snapshots),
        young=len(kept),
        young_until=max(kept) + age if kept else None,
    )


def _expire(catalog: Catalog, name: str, limit: datetime) -> int:
    """How many snapshots were removed: those that were replaced before the limit."""
    for _ in attempts(name):
        table = catalog.load_table((NAMESPACE, name))
        moment = int(limit.timestamp() * 1000)
        older = [s for s in table.metadata.snapshots if s.timestamp_ms <= moment]
        ids = {s.snapshot_id for s in older}
        # The newest of a branch was the branch at that moment: readers may have opened it since.
        kept = {ref.snapshot_id for ref in table.metadata.refs.values()}
        for head in list(kept):
            past = ancestors_of(table.snapshot_by_id(head), table.metadata)
            kept.update(islice((s.snapshot_id for s in past if s.snapshot_id in ids), 1))
        gone = sorted(ids - kept)
        # Another job may have published, or removed them.
        with contextlib.suppress(CommitFailedException, ValueError):
            if gone:
                table.maintenance.expire_snapshots().by_ids(gone).commit()
            break
    return len(gone)
