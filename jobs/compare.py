"""The job `compare`: what becomes of the same messages in two states of `transformed_messages`.

A state is a branch, a snapshot, or the rows that a mapping version made. Files that both states
have are counted and not read. The others are read day by day, a few columns of them, and DuckDB
joins them by sequence in bounded memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from jobs.errors import ArchiveError, NoBranch
from jobs.files.intact import check_files
from jobs.files.scan import Scan
from jobs.progress import advance, step
from jobs.scratch import temporary_folder
from jobs.settings.branches import CompareSettings
from jobs.settings.warehouse import MAIN
from jobs.warehouse.specs import TRANSFORMED
from jobs.warehouse.tables import (
    Day,
    by_day,
    data_files,
    mapping_version_of,
    open_table,
    properties_of,
)
from nats_transform.digest import Digest
from nats_transform.kernel.digest import digest_batch
from nats_transform.migration.connection import connect, in_one_line
from nats_transform.migration.database import text

EXAMPLES = 10
_WORDS = ("fate", "mapping_source", "mapping_destination")
_HEX = frozenset("0123456789abcdef")
_LEAST = 6  # digits of a mapping version
_TABLES = """
CREATE TABLE before (seq BIGINT, outcome INTEGER, result BLOB, subject BLOB);
CREATE TABLE after (seq BIGINT, outcome INTEGER, result BLOB);
CREATE TABLE changes (
  was INTEGER, now INTEGER, moves BOOLEAN, messages BIGINT, subject BLOB, old BLOB, new BLOB
);
CREATE TABLE moves (subject BLOB, old BLOB, new BLOB, messages BIGINT);
"""
# What the sides have of a day: the outcome of a message that a side lacks is null.
_PAIRS = """
CREATE OR REPLACE TABLE pairs AS
SELECT seq, before.outcome AS was, after.outcome AS now, before.subject, before.result AS old,
       after.result AS new
FROM before FULL JOIN after USING (seq);
"""
_COUNTS = """
INSERT INTO changes
SELECT was, now, old IS DISTINCT FROM new, count(*), arg_min(subject, seq), arg_min(old, seq),
       arg_min(new, seq)
FROM pairs GROUP BY 1, 2, 3;
INSERT INTO moves
SELECT subject, old, new, count(*) FROM pairs WHERE old IS DISTINCT FROM new GROUP BY ALL;
"""
_EQUAL = "SELECT seq, subject, new, now FROM pairs WHERE was = now AND old IS NOT DISTINCT FROM new"
_CHANGES = """
SELECT was, now, moves, sum(messages)::BIGINT AS messages, min((subject, old, new))
FROM changes GROUP BY was, now, moves ORDER BY messages DESC, was, now, moves
"""
_MOVES = """
SELECT subject, old, new, sum(messages)::BIGINT AS messages FROM moves GROUP BY ALL
ORDER BY messages DESC, subject, old, new LIMIT ?
"""


class Outcome(NamedTuple):
    """What a mapping made of a message, but for the subject."""

    fate: str | None
    source: str | None
    destination: str | None


@dataclass(frozen=True)
class Move:
    """A subject whose messages have another new subject, or none.

    Attributes:
        subject: the subject as published; None for messages that only the state after has.
        before, after: the new subjects; None where there is none.
        messages: how many messages.
    """

    subject: str | None
    before: str | None
    after: str | None
    messages: int


@dataclass(frozen=True)
class Change:
    """Messages with the same outcome before, and the same after.

    Attributes:
        before, after: the outcomes; None if the state lacks the messages.
        moves: whether their new subjects differ.
        messages: how many messages.
        example: one of them.
    """

    before: Outcome | None
    after: Outcome | None
    moves: bool
    messages: int
    example: Move


@dataclass(frozen=True)
class State:
    """One of the two states.

    Attributes:
        name: what was asked for.
        messages: how many messages it has.
        mapping_versions: the versions that its rows name.
    """

    name: str
    messages: int
    mapping_versions: tuple[str, ...]


@dataclass(frozen=True)
class CompareResult:
    """How two states differ.

    Attributes:
        before, after: the states.
        shared: messages in files that both have, which were not read.
        equal: other messages with the same outcome and new subject.
        digest: the digest of these, see `nats_transform.digest`: of stream, sequence, subject, new
            subject, fate, mapping and destination.
        moved: messages with another new subject, or none.
        moved_subjects: how many subjects they have.
        examples: such subjects, those with most messages first.
        fates: of the messages that were read, how many had each fate before and after.
        changes: the messages that were read by their outcomes, most messages first.
    """

    before: State
    after: State
    shared: int
    equal: int
    digest: str
    moved: int
    moved_subjects: int
    examples: tuple[Move, ...]
    fates: dict[str, tuple[int, int]]
    changes: tuple[Change, ...]

    @property
    def changed(self) -> int:
        """How many messages differ in anything."""
        return sum(change.messages for change in self.differences)

    @property
    def differences(self) -> list[Change]:
        """The changes but for equal messages."""
        return [change for change in self.changes if change.moves or change.before != change.after]

    def fails(self, level: str) -> bool:
        """Whether any message differs; at level `moved`, whether any subject does."""
        return self.moved > 0 if level == "moved" else self.changed > 0


def compare(settings: CompareSettings) -> CompareResult:
    """Compares two states of the table.

    Raises:
        NoBranch: there is no such branch, snapshot or mapping version.
        ArchiveError: neither state has a message of the stream on these days.
        WarehouseError: the table cannot be read, or a file was changed after being published.
    """
    table = open_table(settings.warehouse.main, TRANSFORMED)
    names = (settings.before, settings.after)
    files = [_files_of(table, name, settings.stream or None, settings.days) for name in names]
    if not any(files):
        raise _nothing(table, settings)
    check_files(None, table, _unshared(*files))
    before, after = (_state(table, *named) for named in zip(names, files, strict=True))
    with (
        temporary_folder() as folder,
        in_one_line("the rows cannot be compared"),
        connect(folder) as database,
        step("comparing", before.messages + after.messages),
    ):
        comparison = _Comparison(table, database)
        for day in sorted(files[0].keys() | files[1].keys()):
            comparison.add(day, *(of_day.get(day, []) for of_day in files))
        return comparison.result(before, after)


def _state(table: Table, name: str, of_day: Mapping[Day, Sequence[DataFile]]) -> State:
    files = [file for files in of_day.values() for file in files]
    versions = {mapping_version_of(table, file) for file in files}
    return State(name, _count(files), tuple(sorted(versions)))


def _unshared(*states: Mapping[Day, Sequence[DataFile]]) -> list[DataFile]:
    """The files that only one of two states has."""
    before, after = ({f.file_path: f for files in s.values() for f in files} for s in states)
    return [(before | after)[path] for path in before.keys() ^ after.keys()]


def _count(files: Iterable[DataFile]) -> int:
    return sum(file.record_count for file in files)


def _files_of(
    table: Table, name: str, stream: str | None, days: Sequence[date] | None
) -> dict[Day, list[DataFile]]:
    """The files of a state, by stream and day."""
    refs = table.metadata.refs
    if name in refs:
        return by_day(table, data_files(table, stream, days, refs[name].snapshot_id))
    if name.isdecimal() and table.snapshot_by_id(int(name)):
        return by_day(table, data_files(table, stream, days, int(name)))
    if len(name) < _LEAST or not _HEX.issuperset(name):
        raise _missing(table, name)
    return _files_of_version(table, name, stream, days)


def _files_of_version(
    table: Table, version: str, stream: str | None, days: Sequence[date] | None
) -> dict[Day, list[DataFile]]:
    """The newest files of each day that name a mapping version, in any state that is kept."""
    heads = {ref.snapshot_id for ref in table.metadata.refs.values()}
    newest: dict[Day, list[DataFile]] = {}
    versions = set()
    for snapshot in sorted(table.metadata.snapshots, key=lambda s: -(s.sequence_number or 0)):
        writes = properties_of(snapshot).get("mapping-version", "").startswith(version)
        if not writes and snapshot.snapshot_id not in heads:
            continue
        files = data_files(table, stream, days, snapshot.snapshot_id)
        of_version = [file for file in files if mapping_version_of(table, file).startswith(version)]
        versions |= {mapping_version_of(table, file) for file in of_version}
        newest = by_day(table, of_version) | newest
    if len(versions) > 1:
        raise NoBranch("version-ambiguous", count=len(versions), version=version)
    if not versions:
        raise _missing(table, version)
    return newest


def _missing(table: Table, name: str) -> NoBranch:
    names = sorted(table.metadata.refs, key=lambda ref: (ref != MAIN, ref))
    return NoBranch(
        "nothing-of-this-name",
        name=".".join(table.name()),
        version=name,
        names=", ".join(names) or "none",
    )


def _nothing(table: Table, settings: CompareSettings) -> ArchiveError:
    of = f" of stream {settings.stream!r}" if settings.stream else ""
    days = " on these days" if settings.first_day is not None else ""
    what = f"{'.'.join(table.name())} has no messages{of}{days}"
    return ArchiveError(
        "nothing-to-compare", what=what, before=settings.before, after=settings.after
    )


class _Comparison:
    """Counts what differs, day by day."""

    def __init__(self, table: Table, database: Any) -> None:
        self._table, self._database = table, database
        self._outcomes: dict[tuple[bytes | None, ...], int] = {}
        self._shared, self._digest = 0, Digest()
        database.execute(_TABLES)

    def add(self, day: Day, before: Sequence[DataFile], after: Sequence[DataFile]) -> None:
        """Compares a day, of which two states have these files."""
        both = {file.file_path for file in before} & {file.file_path for file in after}
        shared = _count(file for file in before if file.file_path in both)
        self._shared += shared
        advance(2 * shared)
        sides = [[f for f in files if f.file_path not in both] for files in (before, after)]
        if not any(sides):
            return
        for side, files, columns in zip(
            ("before", "after"), sides, (("subject",), ()), strict=True
        ):
            self._database.execute(f"TRUNCATE {side}")
            for batch in self._read(files, columns):
                self._database.from_arrow(batch).insert_into(side)
        self._database.execute(_PAIRS)
        self._database.execute(_COUNTS)
        words = [pa.array(column, pa.binary()) for column in zip(*self._outcomes, strict=True)]
        for batch in self._database.sql(_EQUAL).to_arrow_reader():
            named = {"stream": pa.repeat(day[0], len(batch))}
            named |= {name: batch[name] for name in ("seq", "subject", "new")}
            for name, column in zip(_WORDS, words, strict=True):
                named[name] = pa.DictionaryArray.from_arrays(batch["now"], column)
            self._digest += digest_batch(pa.RecordBatch.from_pydict(named))

    def _read(self, files: Sequence[DataFile], columns: Sequence[str]) -> Iterator[pa.Table]:
        """The sequence, the number of the outcome, the new subject and other columns of rows."""
        texts = ("mapped_subject", *columns)
        for batch in Scan.of(self._table, TRANSFORMED, files, ("seq", *_WORDS, *texts)):
            yield pa.table(
                [batch["seq"], self._numbers(batch), *(batch[n].view("binary") for n in texts)],
                names=["seq", "outcome", "result", *columns],
            )

    def _numbers(self, batch: pa.RecordBatch) -> pa.Array:
        """The number of each row's outcome."""
        words = {name: batch[name].view("binary") for name in _WORDS}
        rows = pa.table(words | {"row": pa.array(np.arange(len(batch)))})
        groups = rows.group_by(_WORDS, use_threads=False).aggregate([("row", "list")])
        outcomes = zip(*(groups[name].to_pylist() for name in _WORDS), strict=True)
        numbers = np.empty(len(batch), np.int32)
        for outcome, of_outcome in zip(outcomes, groups["row_list"], strict=True):
            numbers[of_outcome.values] = self._outcomes.setdefault(outcome, len(self._outcomes))
        return pa.array(numbers)

    def result(self, before: State, after: State) -> CompareResult:
        """What was counted."""
        outcomes = {n: Outcome(*map(text, words)) for words, n in self._outcomes.items()}
        changes = tuple(
            Change(outcomes.get(was), outcomes.get(now), moves, messages, _move(example, 1))
            for was, now, moves, messages, example in self._rows(_CHANGES)
        )
        fates: dict[str, Counter[int]] = {}
        for change in changes:
            for side, outcome in enumerate((change.before, change.after)):
                if outcome is not None:
                    fates.setdefault(outcome.fate or "", Counter())[side] += change.messages
        return CompareResult(
            before,
            after,
            shared=self._shared,
            equal=self._digest.rows,
            digest=str(self._digest),
            moved=sum(change.messages for change in changes if change.moves),
            moved_subjects=self._rows("SELECT count(DISTINCT subject) FROM moves")[0][0],
            examples=tuple(_move(row[:3], row[3]) for row in self._rows(_MOVES, [EXAMPLES])),
            fates={fate: (counts[0], counts[1]) for fate, counts in sorted(fates.items())},
            changes=changes,
        )

    def _rows(self, query: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = self._database.execute(query, parameters).fetchall()
        return rows


def _move(subjects: Sequence[bytes | None], messages: int) -> Move:
    subject, before, after = map(text, subjects)
    return Move(subject, before, after, messages)
