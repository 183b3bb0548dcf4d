"""Branches: another mapping's rows beside those that everybody reads."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table

from jobs.errors import ConcurrentWrite, NoBranch, WarehouseError
from jobs.maintain import maintain, remove_stream
from jobs.promote import promote
from jobs.registry import JOBS
from jobs.settings.base import settings_of
from jobs.settings.branches import PromoteSettings
from jobs.settings.maintain import MaintenanceSettings
from jobs.settings.warehouse import Warehouse
from jobs.warehouse import versions
from jobs.warehouse.branches import fork
from jobs.warehouse.specs import QUARANTINED, TRANSFORMED
from jobs.warehouse.staging import Staged, commit, publish
from jobs.warehouse.tables import (
    branches_of,
    data_files,
    open_table,
    snapshot_id,
    snapshot_properties,
)
from tests.support import command
from tests.support.archive import archive, message, rows_of, sequences
from tests.support.command import printed
from tests.support.jobs import dumped, ingested, on, promoted, sifting, transformed, verified
from tests.support.meanwhile import just_before
from tests.support.programs import in_python
from tests.support.refused import refused
from tests.support.rules import mappings

DAY = date(2026, 3, 1)
COUNT, DAYS = 60, 3
OLD, NEW = (mappings({"a.*": f"{name}.$1"}) for name in ("old", "new"))
AFTER_RETENTION = datetime.now(UTC) + timedelta(days=8)
THIRDS = sifting("third", lambda seq: seq % 3 == 0)
EVENS = sifting("even", lambda seq: seq % 2 == 0)


def prefixes(warehouse: Warehouse, branch: str | None = None) -> dict[date, set[str]]:
    """The first token of the new subjects of each day."""
    found: dict[date, set[str]] = {}
    for row in rows_of(on(warehouse, branch), spec=TRANSFORMED):
        found.setdefault(row.day, set()).add(row.mapped_subject.partition(".")[0])
    return found


def days(*tokens: str) -> dict[date, set[str]]:
    return {DAY + timedelta(days=n): {token} for n, token in enumerate(tokens)}


def add(warehouse: Warehouse, first: int, days: int = DAYS) -> None:
    """Ingests messages, the same number each day."""
    dump = warehouse.folder.parent / "messages.jsonl"
    rows = [
        {"seq": n, "ts": str(DAY + timedelta(days=(n - first) * days // COUNT)), "subject": "a.b"}
        for n in range(first, first + COUNT)
    ]
    ingested(warehouse, dumped(dump, rows))


@pytest.fixture
def made(warehouse: Warehouse) -> Warehouse:
    """Three days, transformed."""
    add(warehouse, 1)
    transformed(warehouse, OLD)
    return warehouse


def test_a_branch_is_beside_what_everybody_reads(made: Warehouse) -> None:
    before = snapshot_id(open_table(made, TRANSFORMED))
    result = transformed(made, NEW, "next", first_day=DAY)
    assert prefixes(made) == days("old", "old", "old")
    assert snapshot_id(open_table(made, TRANSFORMED)) == before
    assert prefixes(made, "next") == days("new", "old", "old")
    assert snapshot_id(open_table(on(made, "next"), TRANSFORMED)) == result.snapshot_id
    transformed(made, NEW, "next", first_day=DAY + timedelta(days=1))
    assert prefixes(made, "next") == days("new", "new", "old")
    transformed(made, NEW, None, first_day=DAY + timedelta(days=2))
    assert prefixes(made) == days("old", "old", "new")
    assert prefixes(made, "next") == days("new", "new", "old")


def test_a_branch_of_a_table_that_has_no_rows(warehouse: Warehouse) -> None:
    archive(warehouse, [message(1, "a.1", datetime(2026, 3, 1, tzinfo=UTC))])
    transformed(warehouse, NEW, "next")
    assert prefixes(warehouse) == {}
    assert prefixes(warehouse, "next") == days("new")
    transformed(warehouse, OLD)
    assert prefixes(warehouse) == days("old")
    assert prefixes(warehouse, "next") == days("new")


def test_tags_are_no_branches(made: Warehouse) -> None:
    """`next.base` says what the branch began with."""
    transformed(made, NEW, "next")
    refs = open_table(made, TRANSFORMED).metadata.refs
    for act in (
        lambda: promote(PromoteSettings(branch="next.base", warehouse=made)),
        lambda: transformed(made, OLD, "next.base"),
        lambda: maintain(MaintenanceSettings(remove_branch="next.base", warehouse=made)),
        lambda: rows_of(on(made, "next.base"), spec=TRANSFORMED),
    ):
        with refused(WarehouseError, "tag-is-no-branch", tag="next.base", there=re.compile("next")):
            act()
    assert open_table(made, TRANSFORMED).metadata.refs == refs
    assert prefixes(made) == days("old", "old", "old")


def test_no_branch_takes_the_name_of_another_for_its_tag(made: Warehouse) -> None:
    transformed(made, NEW, "next.base")
    refs = open_table(made, TRANSFORMED).metadata.refs
    with refused(WarehouseError, "branch-needs-tag", branch="next", tag="next.base"):
        transformed(made, NEW, "next")
    assert open_table(made, TRANSFORMED).metadata.refs == refs


def test_readers_are_told_which_branches_there_are(made: Warehouse) -> None:
    transformed(made, NEW, "next")
    for name, end in (("nxt", "did you mean next?"), ("other", "it has next$")):
        with refused(NoBranch, "no-branch", branch=name, there=re.compile(end)):
            rows_of(on(made, name), spec=TRANSFORMED)
    assert on(made, "main") != made  # model_copy checks nothing
    assert Warehouse(dir=made.dir, branch="main") == made
    given = ("verify-table", "--stream", "S", "--warehouse", made.folder, "--branch")
    assert "did you mean next?" in command.refused(*given, "nxt")


def test_jobs_on_transformed_messages_take_a_branch() -> None:
    path = ("warehouse", "branch")
    taken = {job for job in JOBS if path in {one.path for one in settings_of(JOBS[job].model)}}
    assert taken == {"transform", "verify-table", "audit", "replay", "export"}


def test_what_reads_a_branch_reads_its_rows(made: Warehouse) -> None:
    new = transformed(made, NEW, "next").mapping_version
    assert versions.of_stream(on(made, "next"), "S", None).mapping_version == new
    assert versions.of_stream(made, "S", None).mapping_version != new
    result = verified(made, "next")
    assert result.holds
    assert result.tables[-1].mapping_version == new


def scans(warehouse: Warehouse, work: Callable[[], object]) -> list[set[str]]:
    """Which first tokens each of many scans of the main branch saw while some work was done."""
    seen: list[set[str]] = []
    begun, done = threading.Event(), threading.Event()

    def read() -> None:
        while not done.is_set():
            seen.append(set.union(*prefixes(warehouse).values()))
            begun.set()

    reader = threading.Thread(target=read)
    reader.start()
    begun.wait()
    try:
        work()
    finally:
        done.set()
        reader.join()
    return seen


def test_readers_see_the_old_version_until_it_is_promoted_and_then_the_new_one(
    made: Warehouse,
) -> None:
    def work() -> None:
        transformed(made, NEW, "next")
        promoted(made)

    seen = scans(made, work)
    assert {*map(frozenset, seen)} <= {frozenset({"old"}), frozenset({"new"})}
    assert sorted(seen, key=lambda tokens: tokens == {"new"}) == seen
    assert seen[0] == {"old"}
    assert prefixes(made) == days("new", "new", "new")


def test_only_the_days_of_the_branch_are_promoted(made: Warehouse) -> None:
    result = transformed(made, NEW, "next", first_day=DAY)
    transformed(made, NEW, None, first_day=DAY + timedelta(days=2))
    promote_next = ("promote", "next", "--warehouse", made.folder)
    text = printed(*promote_next)
    table = open_table(made, TRANSFORMED)
    assert text == (
        f"S: 1 day of branch next promoted\nmapping version {result.mapping_version}\n"
        f"{COUNT // DAYS} messages, snapshot {snapshot_id(table)}\n"
    )
    assert prefixes(made) == days("new", "old", "new")
    assert set(table.metadata.refs) == {"main"}
    wanted = {"job": "promote", "branch": "next", "mapping-version": result.mapping_version}
    assert snapshot_properties(table).items() >= wanted.items()
    assert verified(made).holds
    command.refused(*promote_next)
    # What only the table has now is there when the branch's snapshots are gone.
    maintain(MaintenanceSettings(warehouse=made, now=AFTER_RETENTION))
    assert prefixes(made) == days("new", "old", "new")


def test_days_are_promoted_for_everybody_whatever_branch_the_warehouse_names(
    made: Warehouse,
) -> None:
    transformed(made, NEW, "next", first_day=DAY)
    transformed(made, OLD, "other", first_day=DAY)
    promoted(on(made, "other"))
    assert prefixes(made) == days("new", "old", "old")
    assert prefixes(made, "other") == days("old", "old", "old")


def test_a_branch_that_lacks_messages_is_not_promoted(made: Warehouse) -> None:
    transformed(made, NEW, "next")
    add(made, COUNT + 1, days=1)
    result = promoted(made)
    told = "branch next has 20 messages of stream S on 2026-03-01, and the archive has 80"
    assert told in result.refused
    assert prefixes(made) == days("old", "old", "old")
    transformed(made, NEW, "next", first_day=DAY)
    assert promoted(made).refused is None
    assert verified(made).holds


def test_a_branch_without_days_of_its_own_ends(made: Warehouse) -> None:
    fork(on(made, "next"))
    transformed(made, NEW)
    assert promoted(made).days == {}
    assert prefixes(made) == days("new", "new", "new")
    assert set(open_table(made, TRANSFORMED).metadata.refs) == {"main"}


def test_a_promotion_that_ends_between_both_tables(
    made: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers of the table have its old rows until the last commit; the next run finishes it."""
    transformed(made, OLD, sift=THIRDS)
    transformed(made, NEW, "next", sift=EVENS)

    def ended(table: Table, *given: Any, **more: Any) -> int:
        if table.name()[-1] == TRANSFORMED.name:
            raise KeyboardInterrupt
        return commit(table, *given, **more)

    with monkeypatch.context() as patched:
        patched.setattr("jobs.promote.commit", ended)
        with pytest.raises(KeyboardInterrupt):
            promoted(made)
    assert prefixes(made) == days("old", "old", "old")
    assert sequences(open_table(made, QUARANTINED)) == list(range(2, COUNT + 1, 2))
    assert not verified(made).holds  # people are told
    assert promoted(made).messages == COUNT // 2
    assert prefixes(made) == days("new", "new", "new")
    assert verified(made).holds


def test_a_day_that_a_branch_has_emptied_is_promoted(warehouse: Warehouse) -> None:
    moments = [datetime(2026, 3, day, tzinfo=UTC) for day in (1, 2, 3)]
    archive(warehouse, [message(n, "a.1", moment) for n, moment in enumerate(moments)])
    transformed(warehouse, OLD)
    transformed(warehouse, NEW, "next", first_day=DAY)
    second = DAY + timedelta(days=1)
    branch = open_table(on(warehouse, "next"), TRANSFORMED)
    publish(branch, Staged("", ()), "S", [second], replace=True, properties={})
    assert promoted(warehouse).days == {"S": [DAY, second]}
    assert prefixes(warehouse) == {DAY: {"new"}, second + timedelta(days=1): {"old"}}


def test_main_is_no_branch_that_can_end(made: Warehouse) -> None:
    for act in (
        lambda: promote(PromoteSettings(branch="main", warehouse=made)),
        lambda: maintain(MaintenanceSettings(remove_branch="main", warehouse=made)),
    ):
        with refused(NoBranch, "branch-is-main"):
            act()
    assert prefixes(made) == days("old", "old", "old")


# What a killed job has done by then: it is ended at its Nth write of a file or of the catalog.
_KILLED = """
import os, sys
from pathlib import Path
from jobs.warehouse.catalog_file import FileCatalog
from jobs.warehouse.folder import FolderIO
from tests.jobs.warehouse import test_branches as tests
from jobs.settings.warehouse import Warehouse

left = int(sys.argv[2])

def counting(function):
    def wrapped(*args, **kwargs):
        global left
        left -= 1
        if left < 0:
            os._exit(9)
        return function(*args, **kwargs)
    return wrapped

FolderIO.new_output = counting(FolderIO.new_output)
FileCatalog._write = counting(FileCatalog._write)
tests.WORK[sys.argv[3]](Warehouse(dir=Path(sys.argv[1])))
"""
WORK: dict[str, Callable[[Warehouse], object]] = {
    "transform": lambda warehouse: transformed(warehouse, NEW, "next"),
    "promote": promoted,
}


def killed(warehouse: Warehouse, work: str, points: range) -> int:
    """Does the work again and again, each time killed one write later, until it is done.

    Returns:
        At how many writes it was killed.
    """
    for point in points:
        done = in_python(_KILLED, warehouse.folder, point, work, cwd=Path(__file__).parents[3])
        code = done.returncode
        if code == 0:
            return point
        assert code == 9
        assert set.union(*prefixes(warehouse).values()) in ({"old"}, {"new"})
    return len(points)


@pytest.mark.slow
def test_killed_at_every_write_while_it_writes_a_branch(made: Warehouse) -> None:
    assert killed(made, "transform", range(100)) > 5
    assert prefixes(made) == days("old", "old", "old")
    assert prefixes(made, "next") == days("new", "new", "new")


@pytest.mark.slow
def test_killed_at_every_write_of_a_promotion(made: Warehouse) -> None:
    """Whoever runs it again finishes it, also if only the branch is left to remove."""
    transformed(made, OLD, sift=THIRDS)
    transformed(made, NEW, "next", sift=EVENS)
    assert killed(made, "promote", range(100)) > 5
    assert prefixes(made) == days("new", "new", "new")
    assert sequences(open_table(made, QUARANTINED)) == list(range(2, COUNT + 1, 2))
    assert verified(made).holds
    assert set(open_table(made, TRANSFORMED).metadata.refs) == {"main"}


def test_maintenance_keeps_branches(made: Warehouse) -> None:
    transformed(made, OLD, "next", first_day=DAY)
    transformed(made, NEW, "next", first_day=DAY)
    transformed(made, NEW, None, first_day=DAY)
    transformed(made, NEW)
    removed = maintain(MaintenanceSettings(warehouse=made, now=AFTER_RETENTION))
    assert removed["transformed_messages"].snapshots == 2  # type: ignore[union-attr]
    assert prefixes(made) == days("new", "new", "new")
    assert prefixes(made, "next") == days("new", "old", "old")
    there = {path.name for path in made.folder.rglob("transformed_messages/data/**/*.parquet")}

    remove = ("maintain", "--remove-branch", "next", "--warehouse", made.folder)
    assert printed(*remove) == f"transformed_messages: {COUNT} rows of branch next removed\n"
    command.refused(*remove)
    assert set(open_table(made, TRANSFORMED).metadata.refs) == {"main"}
    maintain(MaintenanceSettings(warehouse=made, now=AFTER_RETENTION))
    left = {path.name for path in made.folder.rglob("transformed_messages/data/**/*.parquet")}
    assert left < there
    assert prefixes(made) == days("new", "new", "new")


def test_a_state_of_a_branch_that_was_replaced_a_moment_ago_can_still_be_read(
    made: Warehouse,
) -> None:
    transformed(made, NEW, "next", first_day=DAY)
    reader = open_table(on(made, "next"), TRANSFORMED)
    transformed(made, OLD, "next", first_day=DAY)
    transformed(made, NEW, None)  # a newer snapshot, which is no state of the branch
    newest = reader.refresh().current_snapshot()
    moment = datetime.fromtimestamp(newest.timestamp_ms / 1000, UTC) - timedelta(seconds=0.002)
    retention = MaintenanceSettings(warehouse=made).retention
    removed = maintain(MaintenanceSettings(warehouse=made, now=moment + retention))
    assert removed["transformed_messages"].snapshots == 0  # type: ignore[union-attr]


def test_a_removed_stream_is_removed_from_branches(made: Warehouse) -> None:
    transformed(made, NEW, "next", first_day=DAY)
    assert remove_stream(made, "S")["transformed_messages"] == COUNT + COUNT // DAYS
    for branch in (None, "next"):
        assert data_files(open_table(on(made, branch), TRANSFORMED), "S") == []


def test_a_branch_that_begins_twice_begins_once(made: Warehouse) -> None:
    """As after a run that was killed, or refused by a check."""
    fork(on(made, "next"))
    transformed(made, NEW)
    fork(on(made, "next"))
    assert prefixes(made, "next") == days("old", "old", "old")


@pytest.mark.parametrize(
    ("place", "when"),
    [
        ("branches.find_table", lambda where, spec: (where.branch, spec) == (None, TRANSFORMED)),
        ("catalog_file.FileCatalog._write_metadata", lambda *_: True),
    ],
    ids=["before it looks at the table", "before its commit"],
)
def test_a_branch_that_another_job_begins_meanwhile_keeps_its_rows(
    made: Warehouse, monkeypatch: pytest.MonkeyPatch, place: str, when: Callable[..., bool]
) -> None:
    """Days of a backfill that start at once on a new branch are jobs of their own."""

    def other(*_: Any) -> None:
        transformed(made, NEW, "next", first_day=DAY)

    just_before(monkeypatch, f"jobs.warehouse.{place}", other, when)
    fork(on(made, "next"))
    assert prefixes(made, "next") == days("new", "old", "old")
    transformed(made, NEW, "next", first_day=DAY + timedelta(days=1))
    assert prefixes(made, "next") == days("new", "new", "old")


def test_a_branch_that_ended_meanwhile_does_not_come_back(
    made: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would have one day, and none of what it began with."""
    transformed(made, NEW, "next", first_day=DAY)
    late = DAY + timedelta(days=DAYS)
    row = {"seq": COUNT + 1, "ts": str(late), "subject": "a.b"}
    ingested(made, dumped(made.folder.parent / "late.jsonl", [row]))

    def end(*_: Any) -> None:
        maintain(MaintenanceSettings(remove_branch="next", warehouse=made))

    just_before(monkeypatch, "jobs.warehouse.staging.publish", end)
    with refused(ConcurrentWrite, "table-changed-meanwhile"):
        transformed(made, NEW, "next", first_day=late)
    assert branches_of(open_table(made, TRANSFORMED)) == ["main"]


def test_a_branch_begins_with_the_newest_state(
    made: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state that it was to begin with is removed meanwhile."""

    def renew(*_: Any) -> None:
        transformed(made, NEW)
        maintain(MaintenanceSettings(retention=timedelta(0), warehouse=made))

    just_before(monkeypatch, "jobs.warehouse.catalog_file.FileCatalog.commit_table", renew)
    fork(on(made, "next"))
    assert prefixes(made, "next") == days("new", "new", "new")
