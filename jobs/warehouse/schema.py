"""The columns of an archived message.

Apart from `tables`, because every Python worker of Spark that reads a stream imports them, and the
libraries of the tables would take it longer than all the rest.
"""

from __future__ import annotations

from pyspark.sql import types as T

HEADERS = T.ArrayType(
    T.StructType([T.StructField("name", T.StringType()), T.StructField("value", T.StringType())])
)

MESSAGE_COLUMNS: dict[str, T.DataType] = {
    "stream": T.StringType(),
    "seq": T.LongType(),
    "ts": T.TimestampType(),
    "ts_ns": T.LongType(),
    "day": T.DateType(),
    "subject": T.StringType(),
    "cluster": T.StringType(),
    "headers": HEADERS,
    # The header block as it was stored, only where `headers` does not reproduce it byte for byte.
    "headers_raw": T.BinaryType(),
    "data": T.BinaryType(),
}
