"""Narrow files: rows of `transformed_messages` without times, headers and payloads.

They have what the mapping made, and the columns that it is made of, in the order of the files of
`messages`. What they lack is read from `messages`, by sequence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from jobs.errors import ArchiveError


def is_narrow(table: Table, files: Iterable[DataFile]) -> bool:
    """Whether any of some files of `transformed_messages` is narrow; the metadata says it."""
    ts = table.schema().find_field("ts").field_id
    return any(file.column_sizes and ts not in file.column_sizes for file in files)


def joined(
    rows: Iterable[pa.RecordBatch], messages: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Rows with further columns of the messages that have their sequences.

    Args:
        rows: by ascending sequence. They are small: those of a batch of messages are kept at once.
        messages: by ascending sequence, among them those of all rows.

    Raises:
        ArchiveError: there is no message of some row.
    """
    left = iter(rows)
    waiting: pa.RecordBatch | None = next(left, None)
    for batch in messages:
        sequences = batch.column("seq").to_numpy()
        while waiting is not None and len(sequences):
            own = waiting.column("seq").to_numpy()
            count = int(np.searchsorted(own, sequences[-1], side="right"))
            places = np.searchsorted(sequences, own[:count])
            if not np.array_equal(sequences[places], own[:count]):
                missing = own[:count][sequences[places] != own[:count]][0]
                raise ArchiveError("outcome-without-message", sequence=missing)
            if count:
                chosen = batch.take(pa.array(places)) if count < len(batch) else batch
                columns = dict(zip(chosen.schema.names, chosen.columns, strict=True))
                ready = waiting.slice(0, count)
                columns |= dict(zip(ready.schema.names, ready.columns, strict=True))
                yield pa.RecordBatch.from_pydict(columns)
            if count < len(waiting):
                waiting = waiting.slice(count)
                break
            waiting = next(left, None)
    if waiting is not None:
        missing = waiting.column("seq")[0]
        raise ArchiveError("outcome-without-message", sequence=missing)
