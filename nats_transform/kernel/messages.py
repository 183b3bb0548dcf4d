"""The columns of archived messages, and those of transformed ones. Text may be any bytes."""

from __future__ import annotations

import pyarrow as pa

PAIR = pa.struct([("name", pa.string()), ("value", pa.string())])
HEADERS = pa.list_(PAIR)
MESSAGES: dict[str, pa.DataType] = {
    "stream": pa.string(),
    "seq": pa.int64(),
    "ts": pa.timestamp("us", "UTC"),
    "ts_ns": pa.int64(),
    "day": pa.date32(),
    "subject": pa.string(),
    "cluster": pa.string(),
    "headers": HEADERS,
    # The header block as it was stored, only where `headers` does not reproduce it byte for byte.
    "headers_raw": pa.binary(),
    "data": pa.binary(),
}
WIDE = ("ts", "ts_ns", "headers", "headers_raw", "data")
"""The columns of messages that no mapping reads; a narrow table leaves them to `messages`."""
TRANSFORMED: dict[str, pa.DataType] = MESSAGES | {
    "mapped_subject": pa.string(),
    "fate": pa.string(),
    "reason": pa.string(),
    "mapping_source": pa.string(),
    "mapping_destination": pa.string(),
    "draw": pa.int32(),
    "mapping_version": pa.string(),
}
