"""Comparisons of two states of the table, with plain Python beside them."""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from jobs.compare import Change, CompareResult, Move, Outcome, compare
from jobs.errors import ArchiveError, NoBranch, WarehouseError
from jobs.settings.branches import CompareSettings
from jobs.settings.warehouse import Warehouse
from jobs.warehouse.branches import fork
from jobs.warehouse.specs import TRANSFORMED
from jobs.warehouse.tables import open_table, snapshot_id
from tests.jobs.warehouse.test_branches import COUNT, DAY, DAYS, NEW, made
from tests.support.archive import Row, archive, message
from tests.support.command import nats_transform, printed
from tests.support.jobs import on, transformed
from tests.support.refused import refused
from tests.support.rules import mappings

__all__ = ["made"]  # the fixture
# Bytes that are no text, and text that would act if it were part of a query.
SUBJECTS = ("a.b", "a.\udcff", "a.c", "'; DROP TABLE pairs; --", "\x1b[2J")
OUTCOMES = (
    Outcome("mapped", "a.*", "b.$1"),
    Outcome("mapped", "a.*", "\udcfe.$1"),
    Outcome("mapped", "'", "a.*"),
    Outcome("unmatched", None, None),
    Outcome("lost", "a.*", None),
)


def compared(warehouse: Warehouse, before: str, after: str, **more: Any) -> CompareResult:
    return compare(CompareSettings(before=before, after=after, warehouse=warehouse, **more))


def a_row(random: random.Random, stream: str, seq: int, subject: str, version: str) -> Row:
    outcome = random.choice(OUTCOMES)
    day = datetime(2026, 3, 1 + seq // 10, tzinfo=UTC)
    return message(seq, subject, day, stream=stream) | {
        "mapped_subject": None if outcome.fate == "lost" else random.choice(SUBJECTS),
        "fate": outcome.fate,
        "reason": None,
        "mapping_source": outcome.source,
        "mapping_destination": outcome.destination,
        "draw": None,
        "mapping_version": version,
    }


def outcome_of(row: Row | None) -> Outcome | None:
    names = ("fate", "mapping_source", "mapping_destination")
    return None if row is None else Outcome(*(row[name] for name in names))


@pytest.mark.parametrize("seed", range(8))
def test_every_count_is_that_of_plain_python(warehouse: Warehouse, seed: int) -> None:
    chance = random.Random(seed)
    keys = [(stream, seq) for stream in ("S", "T") for seq in range(30)]
    subject = {key: chance.choice(SUBJECTS) for key in keys}

    def some(keys: list[tuple[str, int]], version: str) -> list[Row]:
        share = chance.choice((0.5, 0.9, 1))
        rows = [a_row(chance, *key, subject[key], version) for key in keys]
        return [row for row in rows if chance.random() < share]

    shared = some([key for key in keys if key[1] < 10], "shared") if seed % 2 else []
    only = [key for key in keys if not shared or key[1] >= 10]
    sides = {"main": some(only, "old"), "next": some(only, "new")}
    if shared:
        archive(warehouse, shared, TRANSFORMED)
        fork(on(warehouse, "next"))
    for branch, rows in sides.items():
        archive(on(warehouse, None if branch == "main" else branch), rows, TRANSFORMED)
    result = compared(warehouse, "main", "next")

    old, new = ({(row["stream"], row["seq"]): row for row in rows} for rows in sides.values())
    changes, moves, equal = Counter[Any](), Counter[Any](), 0
    for key in old.keys() | new.keys():
        was, now = old.get(key), new.get(key)
        results = [None if row is None else row["mapped_subject"] for row in (was, now)]
        is_moved = results[0] != results[1]
        changes[outcome_of(was), outcome_of(now), is_moved] += 1
        equal += outcome_of(was) == outcome_of(now) and not is_moved
        if is_moved:
            moves[was and subject[key], *results] += 1
    assert Counter({(c.before, c.after, c.moves): c.messages for c in result.changes}) == changes
    assert (result.shared, result.equal) == (len(shared), equal)
    assert result.changed == changes.total() - equal
    assert result.moved == moves.total()
    assert result.moved_subjects == len({move[0] for move in moves} - {None})
    assert [move.messages for move in result.examples] == sorted(moves.values())[:-11:-1]
    assert all(moves[m.subject, m.before, m.after] == m.messages for m in result.examples)
    for fate in {outcome.fate for outcome in OUTCOMES}:
        counts = [sum(row["fate"] == fate for row in rows) for rows in sides.values()]
        assert [*result.fates.get(str(fate), (0, 0))] == counts
    assert result.before.messages == len(shared) + len(old)
    assert result.after.mapping_versions == tuple(
        sorted({row["mapping_version"] for row in shared + sides["next"]})
    )
    # The digest depends on what is equal, and on nothing else.
    again = compared(warehouse, "next", "main")
    assert (again.digest, again.equal, again.moved) == (result.digest, equal, result.moved)
    for change in result.changes:
        assert change.example.messages == 1
        assert (change.example.before != change.example.after) == change.moves
    command = ("compare", "main", "next", "--warehouse", warehouse.folder)
    assert "\x1b" not in printed(*command)
    page = warehouse.folder.parent / "page.html"
    text = printed(*command, "--json", "--fail-on", "changed", "--report", page, code=1)
    assert "another new subject, or none</h1>" in page.read_text()
    assert json.loads(text)["moved"] == result.moved


def test_branches_snapshots_and_versions(made: Warehouse) -> None:
    first = str(snapshot_id(open_table(made, TRANSFORMED)))
    new = transformed(made, NEW, "next", first_day=DAY).mapping_version
    day = COUNT // DAYS
    result = compared(made, "main", "next")
    old = result.before.mapping_versions[0]
    was, now = (Outcome("mapped", "a.*", f"{name}.$1") for name in ("old", "new"))
    assert result.changes == (Change(was, now, True, day, Move("a.b", "old.b", "new.b", 1)),)
    assert result.examples == (Move("a.b", "old.b", "new.b", day),)
    assert (result.shared, result.equal) == (COUNT - day, 0)
    assert result.after.mapping_versions == tuple(sorted((old, new)))
    for before in (first, "next.base", old, old[:8]):
        assert compared(made, before, "next").changes == result.changes
    # A version has only the days that it made.
    assert compared(made, old, new).moved == COUNT
    assert compared(made, old, new, first_day=DAY).changes == result.changes
    # The branch's days go to main, and the old ones are in an old snapshot only.
    transformed(made, NEW, None, first_day=DAY)
    assert compared(made, old, "main").changes == result.changes
    same = compared(made, "main", "next")
    assert (same.moved, same.changed, same.equal) == (0, 0, day)
    assert same.digest != result.digest
    assert not same.fails("changed")


def test_what_only_the_rule_changes(made: Warehouse) -> None:
    transformed(made, mappings({"a.>": "old.>"}), "next")
    result = compared(made, "main", "next", stream="S")
    assert (result.moved, result.changed) == (0, COUNT)
    assert (result.fails("moved"), result.fails("changed")) == (False, True)
    for level, code in (("moved", 0), ("changed", 1), ("never", 0)):
        given = ("compare", "main", "next", "--fail-on", level)
        assert nats_transform(*given, "--warehouse", str(made.folder))[0] == code


@pytest.mark.parametrize("name", ["nxt", "1", "123456789", "abcdefabcdef", "'; --", ""])
def test_a_state_that_is_not_there(made: Warehouse, name: str) -> None:
    transformed(made, NEW, "next")
    with refused(NoBranch, "nothing-of-this-name", names="main, next, next.base"):
        compared(made, "main", name)


@pytest.mark.parametrize("which", [{"stream": "TYPO"}, {"first_day": DAY.replace(year=2020)}])
def test_nothing_to_compare(made: Warehouse, which: dict[str, Any]) -> None:
    transformed(made, NEW, "next")
    with refused(ArchiveError, "nothing-to-compare", before="main", after="next"):
        compared(made, "main", "next", **which)


def test_the_beginning_of_two_versions(warehouse: Warehouse) -> None:
    rows = [a_row(random.Random(0), "S", seq, "a", f"abcdef{seq}") for seq in (1, 21)]
    archive(warehouse, rows, TRANSFORMED)
    with refused(NoBranch, "version-ambiguous", count=2, version="abcdef"):
        compared(warehouse, "abcdef", "main")
    assert compared(warehouse, "abcdef1", "main").shared == 1


def test_a_damaged_file_is_named_in_one_line(made: Warehouse) -> None:
    transformed(made, NEW, "next")
    for path in made.folder.rglob("transformed_messages/data/**/*.parquet"):
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with refused(WarehouseError, "files-changed"):
        compared(made, "main", "next")
