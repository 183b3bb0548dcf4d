"""Text that need not be UTF-8: its form in the rows of jobs, and its form in tables.

NATS allows any bytes in subjects and headers, and so in cluster names. But a text column of Parquet
must be valid UTF-8, and engines such as DuckDB refuse a whole file otherwise. So the rows of jobs
hold any bytes in their text columns. For each such column a table stores

- the column itself, always valid UTF-8, with the `readable` form of the bytes;
- `<column>_raw` (binary) with the bytes; it is null where the text has the same bytes.

For headers, `headers_raw` has the stored block wherever the pairs in `headers` do not reproduce it;
so it also has every block with bytes that are not UTF-8.

`stored` and `restored_rows` of `jobs.files.text` are the only two functions that convert between
the two forms; every write and every read of a table uses them. Digests are computed from the rows
of jobs.
"""

from __future__ import annotations

RAW = "_raw"
_ESCAPED = {ord("\\"): "\\\\"} | {byte: f"\\x{byte:02X}" for byte in range(0x80, 0x100)}


def readable(raw: bytes) -> str:
    r"""The text of some bytes. If they are not UTF-8, each byte from 0x80 on becomes `\xFF`.

    In that case a backslash is doubled, so that two such values never look alike.
    """
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1").translate(_ESCAPED)
