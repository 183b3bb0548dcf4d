"""The digest of plain Python rows, by the definition in `nats_transform.digest`."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import xxhash
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from nats_transform.digest import Digest

_SEED = 42


def digest_of(
    rows: Iterable[Mapping[str, Any]],
    schema: T.StructType | pa.Schema,
    columns: Sequence[str] | None = None,
) -> Digest:
    """The digest of rows.

    Values are as Spark collects them, but strings may be bytes (subjects need not be UTF-8),
    and dates and timestamps may be days or microseconds since 1970.
    """
    if isinstance(schema, pa.Schema):
        schema = from_arrow_schema(schema)
    fields = [schema[name] for name in columns or schema.names]
    total = count = 0
    for row in rows:
        mask = sum(
            1 << bit
            for bit, field in enumerate(fields)
            if field.nullable and row[field.name] is None
        )
        value = _fold(mask, T.LongType(), _SEED)
        for field in fields:
            cell = row[field.name]
            if isinstance(field.dataType, T.ArrayType):
                size = -1 if cell is None else len(cell)
                value = _fold(size, T.IntegerType(), value)
            value = _fold(cell, field.dataType, value)
        total += value
        count += 1
    return Digest(count, total % 2**64)


def _fold(value: Any, kind: T.DataType, seed: int) -> int:
    """Spark's xxhash64 of one value after what has been hashed to `seed`."""
    if value is None:
        return seed
    match kind:
        case T.ArrayType():
            for element in value:
                seed = _fold(element, kind.elementType, seed)
            return seed
        case T.StructType():
            for position, field in enumerate(kind.fields):
                cell = value[field.name] if isinstance(value, Mapping) else value[position]
                seed = _fold(cell, field.dataType, seed)
            return seed
        case T.StringType() | T.BinaryType():
            if isinstance(value, str):
                value = value.encode("utf-8", "surrogateescape")
            raw = bytes(value)
        case T.BooleanType():
            raw = struct.pack("<i", 1 if value else 0)
        case T.DateType():
            raw = struct.pack("<i", value if isinstance(value, int) else kind.toInternal(value))
        case T.IntegerType() | T.ShortType() | T.ByteType():
            raw = struct.pack("<i", value)
        case T.TimestampType():
            raw = struct.pack("<q", value if isinstance(value, int) else kind.toInternal(value))
        case T.LongType():
            raw = struct.pack("<q", value)
        case T.DoubleType():
            raw = struct.pack("<d", 0.0 if value == 0 else value)
        case _:
            raise TypeError(f"no digest of {kind.simpleString()}")
    return xxhash.xxh64_intdigest(raw, seed=seed)
