"""A dump as a source of an ingest: its new messages, their faults, and the tasks that read it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

from jobs.errors import ArchiveError
from jobs.files.engine import end_if_told, run
from jobs.files.scan import Scan
from jobs.files.sequences import Run, Runs, find_repeated
from jobs.progress import advance, step
from jobs.sources.blocks import Block, ReadBlock
from jobs.sources.files import DumpFiles
from jobs.sources.source import Span
from jobs.warehouse.rows import Total
from jobs.warehouse.specs import MESSAGES
from jobs.warehouse.tables import data_files
from nats_transform.kernel.coverage import NONE, Coverage, Sequences

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COMPARED = ("seq", "ts_ns", "subject", "headers", "headers_raw", "data")
MOST_RANGES = 250
"""How many ranges of sequences a dump may leave archived: a stream fills each hole by a commit."""
_MOST_NOTED = 4_000_000  # ranges that the blocks of a dump note, together: 64 MB
_Fault = tuple[str, int, int | None]


@dataclass(frozen=True, slots=True)
class Seen:
    """The result of a look at a block.

    Attributes:
        rows: the number of new messages.
        runs: the ascending runs of their sequences.
        found: the sequences of all messages; if they are in too many ranges, one that spans them.
        faults: what is wrong with new messages, with their number and the lowest sequence.
        shared: the sum over the other messages, whose sequences the table already has; without
            those that were erased.
    """

    rows: int
    runs: tuple[Run, ...]
    found: list[Sequences]
    faults: list[_Fault]
    shared: Total


def _new_rows(read: ReadBlock, have: Coverage, block: Block) -> Iterator[pa.RecordBatch]:
    """The messages of a block that the table does not have."""
    for rows in read(block):
        end_if_told()
        yield rows.filter(pa.array(~have.has(rows.column("seq"))))


def _look(read: ReadBlock, have: Coverage, erased: Coverage, most: int, block: Block) -> Seen:
    sequences, shared, faults = Runs(), Total(), list[_Fault]()
    found, count, there = list[Sequences](), 0, have - erased
    for rows in read(block):
        end_if_told()
        numbers = rows.column("seq").drop_null().to_numpy()
        if len(numbers):
            found.append(Sequences.of(numbers))
            if sum(len(part.firsts) for part in found) > 2 * most:
                found = _in_ranges(found, most)
        is_old = have.has(rows.column("seq"))
        if is_old.any():
            old, rows = rows.filter(pa.array(is_old)), rows.filter(pa.array(~is_old))
            is_there = pa.array(there.has(old.column("seq")))
            shared += Total.of(old.filter(is_there), _COMPARED)
        count += len(rows)
        sequences.add(rows.column("seq"))
        faults += _faults(rows)
        advance(len(rows))
    return Seen(count, sequences.runs, _in_ranges(found, most), faults, shared)


def _in_ranges(found: list[Sequences], most: int) -> list[Sequences]:
    """The sequences together; in more ranges than that, the one range that spans them all."""
    if not found:
        return []
    whole = Sequences.together(found)
    if len(whole.firsts) > most:
        whole = Sequences(whole.firsts[:1], whole.lasts[-1:], whole.rows)
    return [whole]


def _faults(rows: pa.RecordBatch) -> Iterator[_Fault]:
    """What no row of the table may be, and how many of these are that."""
    seq, headers = rows.column("seq"), rows.column("headers")
    pairs = headers.flatten()
    names, values = (column.view(pa.binary()) for column in pairs.flatten())
    parents = pc.list_parent_indices(headers)
    broken = [pc.match_substring_regex(text, "[\r\n]").fill_null(False) for text in (names, values)]
    unlike = pc.match_substring(names, ":"), pc.starts_with(values, " ")
    for what, wrong in (
        ("no sequence", seq.is_null()),
        ("no subject", rows.column("subject").is_null()),
        (
            "no time, or one that is not between the years 1678 and 2262",
            rows.column("ts_ns").is_null(),
        ),
        ("data that is not base64", rows.column("data").is_null()),
        (
            "a header without a name or a value",
            _rows_with(pc.or_(names.is_null(), values.is_null()), parents, len(rows)),
        ),
        (
            "a header with a line break, which no NATS header can have",
            _rows_with(pc.or_(*broken), parents, len(rows)),
        ),
        (
            "a header with a colon in its name or a blank before its value, which NATS reads "
            "differently",
            _rows_with(pc.or_(*unlike).fill_null(False), parents, len(rows)),
        ),
    ):
        if count := wrong.true_count:
            yield what, count, pc.min(seq.filter(wrong)).as_py()


def _rows_with(wrong: pa.Array, parents: pa.Array, count: int) -> pa.Array:
    is_wrong = np.zeros(count, bool)
    is_wrong[parents.filter(wrong).to_numpy()] = True
    return pa.array(is_wrong)


def _total_shared(own: Sequences, have: Coverage, batches: Iterable[pa.RecordBatch]) -> Total:
    """The sum over messages of the table whose sequences are a dump's own."""
    total = Total()
    for rows in batches:
        end_if_told()
        seq = rows.column("seq")
        total += Total.of(rows.filter(pa.array(own.has(seq) & have.has(seq))), _COMPARED)
    return total


@dataclass
class DumpSource:
    """Files with messages.

    Attributes:
        stream: the name of the stream in the table.
        kind: `parquet` or `jsonl`.
        may_be_empty: whether no message in the range is no mistake.
        presumed_lost: how many sequences it lacks that count as archived, once it is planned.
    """

    read: ReadBlock
    blocks: Sequence[Block]
    files: DumpFiles
    stream: str
    kind: str
    session: SparkSession | None
    may_be_empty: bool = False

    def __post_init__(self) -> None:
        self._shared, self._parts = Total(), list[Sequences]()
        self.presumed_lost = 0

    def plan(self, have: Coverage, erased: Coverage = NONE) -> list[Span]:
        """One span with all that is new."""
        path = self.files.path
        with step(f"looking through {path}"):
            most = _MOST_NOTED // max(1, len(self.blocks))
            seen = run(partial(_look, self.read, have, erased, most), self.blocks, self.session)
        self._shared = sum((block.shared for block in seen), Total())
        rows = sum(block.rows for block in seen)
        faults = [fault for block in seen for fault in block.faults]
        if faults:
            what = faults[0][0]
            alike = [fault for fault in faults if fault[0] == what]
            first = min((seq for _, _, seq in alike if seq is not None), default=None)
            raise ArchiveError(
                "dump-messages-refused" if first is None else "dump-messages-refused-first",
                path=path,
                count=sum(count for _, count, _ in alike),
                rows=rows,
                what=what,
                first=first,
            )
        repeated = find_repeated(
            partial(_new_rows, self.read, have),
            [(block, new.runs, new.rows) for block, new in zip(self.blocks, seen, strict=True)],
            self.session,
        )
        if repeated is not None:
            raise ArchiveError("dump-sequence-twice", path=path, sequence=repeated)
        runs = [run for block in seen for run in block.runs]
        first = min((run.first for run in runs), default=1)
        if first < 1:
            raise ArchiveError("dump-sequence-zero", path=path, sequence=first)
        if not (rows or have or self.may_be_empty):
            raise ArchiveError("dump-range-empty", path=path)
        last = max((run.last for run in runs), default=0)
        self._parts = [part for block in seen for part in block.found]
        found = _in_ranges(self._parts, MOST_RANGES - len(have.ranges))
        covered = Coverage.of(pair for part in found for pair in part.ranges)
        new = Coverage.of([(first, last)]) & covered - have
        self.presumed_lost = new.count - rows
        lost = new if self.presumed_lost else NONE
        return [Span(first, last, rows, self.files.size, new, lost)] if rows else []

    def check(self, table: Table, have: Coverage) -> None:
        """Compares all messages that both have."""
        first, last = self._shared.first, self._shared.last
        if first is None or last is None:
            return
        scan = Scan.of(table, MESSAGES, data_files(table, self.stream), _COMPARED)
        what = f"comparing with {self.stream}"
        shared = partial(_total_shared, Sequences.together(self._parts), have)
        archived = scan.fold(self.session, shared, what)
        if self._shared != sum(archived, Total()):
            raise ArchiveError(
                "dump-differs-from-table",
                path=self.files.path,
                first=first,
                last=last,
                stream=self.stream,
            )

    def tasks(self, span: Span, have: Coverage) -> tuple[Any, Sequence[Any]]:
        """What reads the messages that the table does not have, and the tasks to give it."""
        return partial(_new_rows, self.read, have), self.blocks

    def count(self, span: Span) -> int:
        """The planned number, because files do not change."""
        return span.messages
