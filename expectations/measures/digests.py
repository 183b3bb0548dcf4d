"""The digest of rows (`nats_transform.digest`), computed by Spark's own functions.

The jobs compute it with the kernel while they write. The checks use other code, so that they find
what the kernel and the files that it was written to would both hide.

The 64 bits of a hash are summed in pieces of 21 or 22 bits, so that no sum overflows a long below
2**41 rows, also in ANSI mode.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from nats_transform.digest import Digest

_PIECES = ((0, 22), (22, 21), (43, 21))  # (first bit, bits)


def row_hash(schema: T.StructType) -> Column:
    """The 64-bit hash of a row of a table."""
    mask = F.lit(0)
    for bit, field in enumerate(schema.fields):
        if field.nullable:
            mask = mask + F.when(F.col(field.name).isNull(), 1 << bit).otherwise(0)
    parts = [mask.cast("long")]
    for field in schema.fields:
        column = F.col(field.name)
        if isinstance(field.dataType, T.ArrayType):
            parts.append(F.coalesce(F.size(column), F.lit(-1)))
        parts.append(column)
    return F.xxhash64(*parts)


def aggregates_of(hash64: Column, prefix: str) -> list[Column]:
    """The aggregate Columns whose results `from_row` reads; their names start with `prefix`."""
    sums = [
        F.coalesce(
            F.sum(F.shiftrightunsigned(hash64, first).bitwiseAND(F.lit((1 << bits) - 1))),
            F.lit(0),
        ).alias(f"{prefix}{first}")
        for first, bits in _PIECES
    ]
    return [F.count(F.lit(1)).alias(f"{prefix}rows"), *sums]


def from_row(values: Mapping[str, Any], prefix: str) -> Digest:
    """The digest from the results of `aggregates_of`, by name."""
    total = sum(int(values[f"{prefix}{first}"]) << first for first, _ in _PIECES)
    return Digest(int(values[f"{prefix}rows"]), total % 2**64)
