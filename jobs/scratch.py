"""Temporary folders: of what somebody else named, and of runs that may be killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jobs.ending import is_full
from jobs.errors import JobError

_NAME = "nats-transform-run-"
_LOCK = "lock"


@contextmanager
def temporary_folder(above: Path | None = None) -> Iterator[Path]:
    """A folder that is deleted afterwards; what killed processes left is deleted before.

    No other user of the host can read it. What is in it may be deeper than Python can recurse.

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
            (folder / "files").mkdir(0o700)
            yield folder / "files"
    except OSError as error:
        if not is_full(error):
            raise
        raise JobError("no-room-for-temporary-files", folder=above) from error
    finally:
        _delete(folder)


def _delete(folder: Path) -> None:
    with contextlib.suppress(OSError):
        for entry in reversed(list(everything_in(folder))):
            with contextlib.suppress(OSError):  # what is in use stays, the rest goes
                (os.rmdir if entry.is_dir(follow_symlinks=False) else os.unlink)(entry.path)
        folder.rmdir()


def _delete_if_left(folder: Path) -> None:
    """Delete a folder of this user whose process is no longer there."""
    with contextlib.suppress(OSError):
        if folder.is_symlink() or folder.lstat().st_uid != os.getuid():
            return
        with (folder / _LOCK).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _delete(folder)


def everything_in(folder: Path) -> Iterator[os.DirEntry[str]]:
    """All files and folders below a folder; each folder comes before what is in it."""
    folders = [str(folder)]
    for path in folders:  # which grows
        with contextlib.suppress(FileNotFoundError), os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                yield entry
