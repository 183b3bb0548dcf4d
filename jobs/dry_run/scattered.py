"""Rows on disk, divided into parts by the hash of a column, so that equal values are in one part.

So all rows of a subject can be in memory together, however many subjects there are.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa
from xxhash import xxh3_64_intdigest

PART_ROWS = 2**18
"""About how many rows a part has. Fewer than this are in memory at once, which takes 150 MB."""

_MOST_FILES = 256
"""How many files are open at once. If more parts are needed, each has more rows instead."""


def parts_for(rows: int) -> int:
    """Into how many parts so many rows are cut."""
    return min(_MOST_FILES, 1 + rows // PART_ROWS)


def scattered(
    batches: Iterable[pa.RecordBatch], column: str, count: int, folder: Path
) -> list[Path]:
    """Files, each with the rows of some values of a text column in their order.

    Args:
        column: the column whose hashes decide the part of a row.
        folder: an empty folder for the files, which are streams of Arrow.
    """
    paths = [folder / str(number) for number in range(count)]
    with ExitStack() as files:
        writers: list[pa.RecordBatchWriter] = []
        for batch in batches:
            for path in paths if not writers else ():
                writers.append(files.enter_context(pa.ipc.new_stream(str(path), batch.schema)))
            values = batch[column].cast(pa.binary()).fill_null(b"").to_numpy(zero_copy_only=False)
            hashes = np.fromiter(map(xxh3_64_intdigest, values), np.uint64, len(values))
            of = (hashes % np.uint64(count)).astype(np.uint16)
            order = np.argsort(of, kind="stable")
            ends = np.searchsorted(of[order], np.arange(1, count + 1))
            ordered, start = batch.take(pa.array(order)), 0
            for writer, end in zip(writers, ends.tolist(), strict=True):
                if end > start:
                    writer.write_batch(ordered.slice(start, end - start))
                start = end
    return paths if writers else []
