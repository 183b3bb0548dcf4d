"""The job `promote`: the days that a branch has of its own become those that everybody reads.

One commit replaces them, so a reader of the table sees the old version or the new one. A run that
died is finished by the next one: the branch goes last.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
from datetime import date
from functools import partial

from pydantic import BaseModel, ConfigDict
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from jobs.progress import step
from jobs.settings.branches import PromoteSettings
from jobs.settings.warehouse import MAIN, Warehouse
from jobs.warehouse.accounting import Archived
from jobs.warehouse.branches import base_of, drop, ending
from jobs.warehouse.specs import MESSAGES, QUARANTINED, TRANSFORMED
from jobs.warehouse.staging import Staged, commit
from jobs.warehouse.tables import (
    Branch,
    Day,
    by_day,
    data_files,
    find_table,
    mapping_version_of,
    open_table,
    snapshot_id,
    snapshot_properties,
    stream_and_day,
)


class PromoteResult(BaseModel):
    """What became of a branch.

    Attributes:
        branch: its name.
        days: the days that it had of its own, by stream.
        messages: how many messages of the table these days have now.
        mapping_versions: the versions that their rows name.
        snapshot_id: the snapshot of the table with them.
        refused: why the table is as it was; None if it has the days.
    """

    model_config = ConfigDict(frozen=True)

    branch: str
    days: dict[str, list[date]]
    messages: int = 0
    mapping_versions: list[str] = []
    snapshot_id: int | None = None
    refused: str | None = None


def promote(settings: PromoteSettings) -> PromoteResult:
    """Replaces the days of the table by those of the branch, and removes the branch.

    Raises:
        NoBranch: there is no such branch.
        ConcurrentWrite: another job changed these days or the branch meanwhile; run again.
        WarehouseError: the tables cannot be opened or written.
    """
    warehouse, name = settings.warehouse.main, settings.branch
    open_table(ending(warehouse, name), TRANSFORMED)
    opened = [find_table(warehouse, spec) for spec in (TRANSFORMED, QUARANTINED)]
    branches = [Branch(table, name) for table in opened if table is not None]
    days = sorted({day for branch in branches for day in _own_days(branch)})
    by_stream: dict[str, list[date]] = defaultdict(list)
    for stream, day in days:
        by_stream[stream].append(day)
    result = PromoteResult(branch=name, days=by_stream)
    if refused := _incomplete(warehouse, branches, days):
        return result.model_copy(update={"refused": refused})
    own = partial(_files_of, days=frozenset(days))
    # Last the rows that people read, as when they are transformed; first the mark of the branch.
    for table, branch in reversed(list(zip(filter(None, opened), branches, strict=True))):
        new = tuple(own(branch))
        if {file.file_path for file in new} == {file.file_path for file in own(table)}:
            continue  # a run that died has done it
        properties = snapshot_properties(branch) | {"job": "promote", "branch": name}
        with step(f"promoting {name} in {table.name()[-1]}"):
            commit(table, Staged("", new), own, f"branch {name}", properties=properties)
    for branch in branches:
        if branch.is_there:
            drop(branch)
    promoted = Branch(branches[0].refresh(), MAIN)
    files = own(promoted)
    return result.model_copy(
        update={
            "messages": sum(file.record_count for file in files),
            "mapping_versions": sorted({mapping_version_of(promoted, file) for file in files}),
            "snapshot_id": snapshot_id(promoted),
        }
    )


def _files_of(table: Table, days: Collection[Day]) -> list[DataFile]:
    key = stream_and_day(table)
    return [file for file in data_files(table) if key(file) in days]


def _own_days(branch: Branch) -> list[Day]:
    """The days that differ from those that the branch began with."""
    here, base = (
        {
            day: {file.file_path for file in files}
            for day, files in by_day(state, data_files(state)).items()
        }
        for state in (branch, Branch(branch, base_of(branch.branch)))
    )
    return [day for day in here.keys() | base.keys() if here.get(day) != base.get(day)]


def _incomplete(warehouse: Warehouse, branches: list[Branch], days: Collection[Day]) -> str | None:
    """Why the days of the branch are not whole: messages of them were ingested since."""
    messages, rows = find_table(warehouse, MESSAGES), Counter[Day]()
    for branch in branches:
        key = stream_and_day(branch)
        for file in data_files(branch):
            rows[key(file)] += file.record_count
    for stream, day in days:
        archived = Archived.of(messages, stream).days
        count, _ = archived.get(day, (rows[stream, day], ""))
        if count != rows[stream, day]:
            name = branches[0].branch
            return (
                f"branch {name} has {rows[stream, day]:,} messages of stream {stream} on {day}, "
                f"and the archive has {count:,} by now; nothing was promoted: transform that day "
                f"with --branch {name} again"
            )
    return None
