"""The files of a configuration: the text of each, or an error of one line."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from nats_transform.config.tree import quoted
from nats_transform.errors import Place
from nats_transform.mappings.subject import decode

MAX_BYTES = 8 * 1024 * 1024
"""Size up to which a file is read, includes counted; the largest real ones are around 2 MB."""

_BYTE_ORDER_MARK = "\ufeff"


class Files:
    """Reads the files of one configuration, all together within `MAX_BYTES`."""

    def __init__(self) -> None:
        self._left = MAX_BYTES

    def text(self, path: str | os.PathLike[str], asked_at: Place | None = None) -> str:
        """The text of a file; bytes that are not UTF-8 are surrogate escapes.

        Args:
            path: the file.
            asked_at: the place that names the file, for the error; the file itself if None.

        Raises:
            InvalidConfig: it cannot be read, is too large, or is not text.
        """
        name = os.fspath(path)
        place = asked_at or Place(name)
        subject = f"the included file {quoted(name)}" if asked_at else "the file"
        try:
            data = self.head(name, self._left + 1)
        except OSError as error:
            raise place.error("file-unreadable", subject=subject, reason=error.strerror) from None
        except ValueError:
            raise place.error("path-has-nul", subject=subject) from None
        if data is None:
            raise place.error("not-a-regular-file", subject=subject)
        if len(data) > self._left:
            raise place.error("file-too-large", subject=subject, most=MAX_BYTES >> 20)
        self._left -= len(data)
        if b"\0" in data:
            raise place.error("file-has-nul", subject=subject)
        text = decode(data)
        if text.startswith(_BYTE_ORDER_MARK):
            raise place.error("file-has-byte-order-mark", subject=subject)
        return text

    def head(self, path: str, size: int) -> bytes | None:
        """The first bytes of a file; None if it is no regular file."""
        # Opening a pipe could block, and a device never end.
        if not stat.S_ISREG(Path(path).stat().st_mode):
            return None
        with Path(path).open("rb") as file:
            return file.read(size)
