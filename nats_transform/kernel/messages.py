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
NARROW = tuple(name for name in MESSAGES if name not in WIDE)
"""The columns of messages that a narrow table has."""
TRANSFORMED: dict[str, pa.DataType] = MESSAGES | {
    "mapped_subject": pa.string(),
    "fate": pa.string(),
    "reason": pa.string(),
    "mapping_source": pa.string(),
    "mapping_destination": pa.string(),
    "draw": pa.int32(),
    "mapping_version": pa.string(),
}


def columns_of_messages(rows: pa.RecordBatch) -> tuple[str, ...]:
    """Of transformed messages, the columns of messages that they have: `NARROW` without times."""
    is_narrow = "ts" not in rows.schema.names or rows.column("ts").null_count == len(rows)
    return NARROW if is_narrow else tuple(MESSAGES)
