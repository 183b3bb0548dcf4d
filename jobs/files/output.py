"""The file that a command writes for people: looked at before the work, and written whole."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jobs.errors import JobError


def refuse_unwritable(what: str, path: Path) -> None:
    """Refuses a file that could not be written once the work is done.

    Raises:
        JobError: it is a folder, its folder is not there, or this user may not write it.
    """
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path):
        why = "it is a folder; name a file"
    elif not os.path.isdir(folder):
        why = f"there is no folder {folder}; make it first"
    elif not os.access(path if _is_no_file(path) else folder, os.W_OK):
        why = "you may not write there; name another file"
    else:
        return
    raise JobError("output-unwritable", what=what, path=path, why=why)


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A file to write, which takes the place of another one once it is whole.

    If it cannot be written, the other one stays as it was.
    """
    if _is_no_file(path):
        yield path
        return
    target = Path(os.path.realpath(path))  # a link stays one
    part = target.with_name(f".{uuid.uuid4().hex}.part")
    try:
        yield part
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)


def _is_no_file(path: Path) -> bool:
    """Whether it is something else, such as /dev/stdout."""
    return os.path.exists(path) and not os.path.isfile(path)
