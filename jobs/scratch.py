"""Temporary folders with what somebody else named: they may be deeper than Python can recurse."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A new folder that no other user of the host can read, removed with all that is in it."""
    folder = Path(tempfile.mkdtemp(prefix="nats-transform-"))
    try:
        yield folder
    finally:
        with contextlib.suppress(OSError):
            for entry in reversed(list(everything_in(folder))):
                (os.rmdir if entry.is_dir(follow_symlinks=False) else os.unlink)(entry.path)
            folder.rmdir()


def everything_in(folder: Path) -> Iterator[os.DirEntry[str]]:
    """All files and folders below a folder; each folder comes before what is in it."""
    folders = [str(folder)]
    for path in folders:  # which grows
        with contextlib.suppress(FileNotFoundError), os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                yield entry
