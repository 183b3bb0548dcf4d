"""A part of a census, held in Arrow columns."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nats_transform.migration.case import CensusRow
from nats_transform.migration.columns.column import Numbers, Words
from nats_transform.subject import decode

KEYS = ("cluster", "before", "after")
"""The columns in which the rows of one subject differ. `before` and `after` are optional; they hold
the two values of `CensusRow.chosen`."""


class Part:
    """Rows of a census, one for each subject and cluster, sorted by the bytes of the subject.

    Args:
        rows: the rows, as `added_up` makes them.
    """

    def __init__(self, rows: pa.RecordBatch) -> None:
        self.rows = rows
        self.subjects = rows.column("subject")
        self.messages: Numbers = rows.column("messages").to_numpy()
        self.bytes: Numbers = rows.column("bytes").to_numpy()
        self.keys = [Words(rows.column(name)) for name in KEYS if name in rows.schema.names]

    @cached_property
    def firsts(self) -> Numbers:
        """The first row of each subject."""
        return np.flatnonzero(_starts(self.subjects))

    def row(self, number: int) -> CensusRow:
        """The row with a number."""
        subject = self.subjects[number].as_py()
        cluster, *chosen = (keys.word(number) for keys in self.keys)
        return CensusRow(
            None if subject is None else decode(subject),
            cluster,
            int(self.messages[number]),
            int(self.bytes[number]),
            (chosen[0], chosen[1]) if chosen else None,
        )

    def of(self, firsts: Numbers, sizes: Numbers) -> Iterator[CensusRow]:
        """The rows of some subjects.

        Args:
            firsts: the number of the first row of each subject.
            sizes: how many rows each subject has.
        """
        for first, size in zip(firsts.tolist(), sizes.tolist(), strict=True):
            yield from map(self.row, range(first, first + size))


def added_up(rows: pa.Table) -> Part:
    """Adds up the rows of one census or of several that have the same subject and keys.

    Args:
        rows: rows with the columns `subject` (text or bytes), `messages`, `bytes` and `KEYS`.
    """
    subjects = rows["subject"].combine_chunks().cast(pa.binary())
    keys = {name: Words(rows[name].combine_chunks()) for name in KEYS if name in rows.schema.names}
    codes = [words.ranks() for words in keys.values()]
    # The sort by subject is stable, so the order of the keys stays within each subject.
    order = np.lexsort(codes[::-1])
    by_subject = pc.array_sort_indices(
        subjects.take(pa.array(order)), null_placement="at_start"
    ).to_numpy()
    order = order[by_subject]
    subjects = subjects.take(pa.array(order))
    is_new = _starts(subjects)
    for code in codes:
        is_new[1:] |= np.diff(code[order]) != 0
    firsts = np.flatnonzero(is_new)
    chosen = order[firsts]
    columns = {"subject": subjects.take(pa.array(firsts))}
    columns |= {name: words.taken(chosen) for name, words in keys.items()}
    for name in ("messages", "bytes"):
        numbers = rows[name].combine_chunks().cast(pa.int64()).to_numpy()[order]
        columns[name] = pa.array(np.add.reduceat(numbers, firsts) if len(firsts) else numbers)
    return Part(pa.RecordBatch.from_pydict(columns))


def _starts(subjects: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Where a subject differs from the one before."""
    before, after = subjects.slice(0, max(0, len(subjects) - 1)), subjects.slice(1)
    both = pc.and_(before.is_null(), after.is_null())
    same = pc.or_(pc.equal(before, after).fill_null(False), both)
    found = np.ones(len(subjects), dtype=bool)
    found[1:] = ~same.to_numpy(zero_copy_only=False)
    return found
