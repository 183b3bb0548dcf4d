"""A part of a census, held in Arrow columns."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nats_transform.migration.tables.texts import Numbers, Words, flags

KEYS = ("cluster", "carries", "before", "after")
"""The columns in which the rows of one subject differ. `carries` is null where nobody looked at
headers. `before` and `after` are optional: they hold the destinations that the messages drew under
the current mapping and under the candidate."""


class CensusPart:
    """Rows of a census, one for each subject and `KEYS`, sorted by the subject.

    Args:
        rows: the rows, as `added_up` makes them.
    """

    def __init__(self, rows: pa.RecordBatch) -> None:
        self.rows = rows

    @cached_property
    def subjects(self) -> tuple[Numbers, Numbers]:
        """The number of each row's subject within the part, and how many rows that subject has."""
        starts = _starts(self.rows.column("subject"))
        numbers = np.cumsum(starts) - 1
        sizes = np.diff(np.flatnonzero(starts), append=len(starts))
        return numbers, sizes[numbers]


def added_up(rows: pa.Table) -> CensusPart:
    """Adds up the rows of one census or of several that have the same subject and keys.

    Args:
        rows: rows with the columns `subject` (text or bytes), `messages`, `bytes` and `KEYS`.
    """
    if "carries" not in rows.schema.names:
        rows = rows.append_column("carries", pa.nulls(len(rows), pa.string()))
    subjects = rows["subject"].combine_chunks().cast(pa.binary())
    keys = {name: Words(rows[name].combine_chunks()) for name in KEYS if name in rows.schema.names}
    codes = [words.ranks() for words in keys.values()]
    order = np.arange(len(subjects))
    # The sort by subject is stable, so the order of the keys stays within each subject.
    if any((code[1:] != code[:1]).any() for code in codes):
        order = np.lexsort(codes[::-1])
        subjects = subjects.take(pa.array(order))
    by_subject = pc.array_sort_indices(subjects, null_placement="at_start")
    order = order[by_subject.to_numpy()]
    subjects = subjects.take(by_subject)
    is_new = _starts(subjects)
    for code in codes:
        is_new[1:] |= np.diff(code[order]) != 0
    firsts = np.flatnonzero(is_new)
    chosen = order[firsts]
    columns = {"subject": subjects if is_new.all() else subjects.take(pa.array(firsts))}
    columns |= {name: words.taken(chosen) for name, words in keys.items()}
    for name in ("messages", "bytes"):
        numbers = rows[name].combine_chunks().cast(pa.int64()).to_numpy()[order]
        columns[name] = pa.array(np.add.reduceat(numbers, firsts) if len(firsts) else numbers)
    return CensusPart(pa.RecordBatch.from_pydict(columns))


def _starts(subjects: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Where a subject differs from the one before."""
    before, after = subjects.slice(0, max(0, len(subjects) - 1)), subjects.slice(1)
    both = pc.and_(before.is_null(), after.is_null())
    starts = np.ones(len(subjects), dtype=bool)
    starts[1:] = ~(flags(pc.equal(before, after)) | flags(both))
    return starts
