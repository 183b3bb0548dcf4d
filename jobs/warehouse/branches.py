"""The life of a branch: another mapping's rows beside those that everybody reads.

A branch begins with the rows of the main branch, whose files it shares. A tag, `NAME.base`, keeps
the state that it began with: which days are the branch's own is seen by what differs from it.
Messages, their census, mapping versions and audits, whose rows name their version, have no
branches.
"""

from __future__ import annotations

import contextlib

from pyiceberg.exceptions import CommitFailedException

from jobs.errors import ConcurrentWrite, NoBranch, WarehouseError
from jobs.settings.warehouse import MAIN, Warehouse
from jobs.warehouse.specs import QUARANTINED, TRANSFORMED
from jobs.warehouse.tables import (
    Branch,
    attempts,
    branches_of,
    data_files,
    find_table,
    open_table,
    unless_overtaken,
    warehouse_errors,
)


def base_of(branch: str) -> str:
    """The tag of the state that a branch began with."""
    return f"{branch}.base"


def ending(warehouse: Warehouse, branch: str) -> Warehouse:
    """The warehouse on a branch that is to end.

    Raises:
        NoBranch: everybody reads it.
    """
    if branch == MAIN:
        raise NoBranch("branch-is-main", main=MAIN)
    return warehouse.model_copy(update={"branch": branch})


def fork(warehouse: Warehouse) -> None:
    """Makes the branch that the warehouse names, if it is not there.

    Raises:
        ConcurrentWrite: other jobs kept getting in first.
        WarehouseError: the tables cannot be opened or written, or a branch has the tag's name.
    """
    if warehouse.branch is None or find_table(warehouse, TRANSFORMED) is not None:
        return
    # Last the table whose branch says that all of it is there.
    for spec in (QUARANTINED, TRANSFORMED):
        table = find_table(warehouse.main, spec)
        for _ in attempts(spec.name):
            head = None if table is None else table.current_snapshot()
            if table is None or head is None:
                break  # the first rows of the branch make it
            if (base := base_of(warehouse.branch)) in branches_of(table):
                raise WarehouseError(
                    "branch-needs-tag",
                    branch=warehouse.branch,
                    table=".".join(table.name()),
                    tag=base,
                )
            if table.snapshot_by_name(warehouse.branch) != table.snapshot_by_name(base):
                break  # another job has begun it meanwhile, and published in it
            with warehouse_errors(warehouse), unless_overtaken(table):
                refs = table.manage_snapshots().create_branch(head.snapshot_id, warehouse.branch)
                refs.create_tag(head.snapshot_id, base).commit()
                break
            table.refresh()


def remove(warehouse: Warehouse) -> dict[str, int]:
    """Removes the branch that the warehouse names: how many rows it had, by the name of the table.

    Raises:
        NoBranch: there is none of this name.
        ConcurrentWrite: another job published in it meanwhile.
        WarehouseError: the tables cannot be opened or written.
    """
    removed = {}
    for spec in (TRANSFORMED, QUARANTINED):
        table = find_table(warehouse, spec)
        if isinstance(table, Branch):
            removed[spec.name] = sum(file.record_count for file in data_files(table))
            drop(table)
    if not removed:
        open_table(warehouse, TRANSFORMED)  # which says what there is instead
    return removed


def drop(branch: Branch) -> None:
    """Removes a branch of a table as it was loaded, and its base.

    Raises:
        ConcurrentWrite: another job published in it meanwhile.
    """
    head = branch.current_snapshot()
    for _ in attempts(branch.name()[-1]):
        refs = branch.manage_snapshots().remove_branch(branch.branch)
        if (base := base_of(branch.branch)) in branch.metadata.refs:
            refs = refs.remove_tag(base)
        with warehouse_errors(branch.location()), contextlib.suppress(CommitFailedException):
            refs.commit()
            return
        if branch.refresh().current_snapshot() != head:
            raise ConcurrentWrite(
                "branch-changed-meanwhile", branch=branch.branch, table=".".join(branch.name())
            )
