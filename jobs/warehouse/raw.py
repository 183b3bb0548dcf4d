"""Text that need not be UTF-8: rows as jobs have them, and as the tables store them.

NATS lets subjects, headers and so cluster names be any bytes, but Parquet calls a column text only
if it is valid UTF-8, and engines such as DuckDB refuse a whole file otherwise. So a job has rows
whose text columns hold the bytes as they are, and a table stores, for each text column that can
hold such bytes,

- the column itself, always valid UTF-8: `readable` of the bytes;
- `<column>_raw` (binary): the bytes; null where the text is the bytes.

Headers have no such column: `headers_raw` has the block as it came wherever the pairs of `headers`
do not reproduce it, which is so where some of their bytes are not UTF-8.

`stored` and `restored` of `jobs.files.text` are the only two ways between both; every write and
every read of a table takes them. Digests are of rows as jobs have them.
"""

from __future__ import annotations

import re

RAW = "_raw"
_UNREADABLE = re.compile(rb"[\\\x80-\xff]")


def readable(raw: bytes) -> str:
    r"""The text of some bytes; of bytes that are not UTF-8, with those from 0x80 on as `\xFF`.

    A backslash in the latter is doubled, so that two values that are not UTF-8 never look alike.
    """
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return _UNREADABLE.sub(_escape, raw).decode("ascii")


def _escape(found: re.Match[bytes]) -> bytes:
    return rb"\\" if found[0] == b"\\" else b"\\x%02X" % found[0][0]
