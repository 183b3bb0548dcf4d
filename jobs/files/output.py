"""The file that a command writes for people, looked at before the work."""

from __future__ import annotations

import os
from pathlib import Path

from jobs.errors import JobError


def refuse_unwritable(what: str, path: Path) -> None:
    """Refuses a file that could not be written once the work is done.

    Args:
        what: what the file will hold, for the error.
        path: the file; it may be there already.

    Raises:
        JobError: it is a folder, its folder is not there, or this user may not write it.
    """
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path):
        why = "it is a folder; name a file"
    elif not os.path.isdir(folder):
        why = f"there is no folder {folder}; make it first"
    elif not os.access(path if os.path.exists(path) else folder, os.W_OK):
        why = "you may not write there; name another file"
    else:
        return
    raise JobError(f"{what} {path} cannot be written: {why}")
