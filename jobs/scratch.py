"""Temporary folders: of what somebody else named, and of runs that may be killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jobs.ending import is_full
from jobs.errors import JobError

_NAME = "nats-transform-run-"
_LOCK = "lock"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A new folder that no other user of the host can read, removed with all that is in it.

    What is in it may be deeper than Python can recurse.
    """
    folder = Path(tempfile.mkdtemp(prefix="nats-transform-"))
    try:
        yield folder
    finally:
        with contextlib.suppress(OSError):
            for entry in reversed(list(everything_in(folder))):
                (os.rmdir if entry.is_dir(follow_symlinks=False) else os.unlink)(entry.path)
            folder.rmdir()


@contextmanager
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
        raise JobError("no-room-for-temporary-files", folder=above) from error
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


def everything_in(folder: Path) -> Iterator[os.DirEntry[str]]:
    """All files and folders below a folder; each folder comes before what is in it."""
    folders = [str(folder)]
    for path in folders:  # which grows
        with contextlib.suppress(FileNotFoundError), os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                yield entry
