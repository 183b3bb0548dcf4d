"""Rows on disk, divided into parts by the hash of a column, so that equal values are in one part.

So all rows of a subject can be in memory together, however many subjects there are.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa
from xxhash import xxh3_64_intdigest

from jobs.ending import is_full
from jobs.errors import JobError

PART_ROWS = 2**18
"""About how many rows a part has. Fewer than this are in memory at once, which takes 150 MB."""

_MOST_FILES = 256
"""How many files are open at once. If more parts are needed, each has more rows instead."""

_NAME = "nats-transform-run-"
_LOCK = "lock"


@contextlib.contextmanager
def temporary_folder(above: Path | None = None) -> Iterator[Path]:
    """A folder that is deleted afterwards; what killed processes left is deleted before.

    Args:
        above: where to make it; None for the system's temporary folder.

    Raises:
        JobError: there is no room for what is written into it.
    """
    above = above or Path(tempfile.gettempdir())
    for left in above.glob(f"{_NAME}*"):
        _delete_if_left(left)
    folder = Path(tempfile.mkdtemp(prefix=_NAME, dir=above))
    try:
        with (folder / "new").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # Whoever finds the lock finds it taken.
            (folder / "new").rename(folder / _LOCK)
            (folder / "files").mkdir()
            yield folder / "files"
    except OSError as error:
        if not is_full(error):
            raise
        raise JobError(
            f"no room for temporary files in {above}; make room, or choose another folder "
            "(TMPDIR, or --out of a plan)"
        ) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _delete_if_left(folder: Path) -> None:
    """Delete a folder of this user whose process is no longer there."""
    with contextlib.suppress(OSError):
        if folder.is_symlink() or folder.lstat().st_uid != os.getuid():
            return
        with (folder / _LOCK).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)


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
