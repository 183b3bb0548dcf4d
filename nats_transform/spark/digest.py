"""The digest of a DataFrame, see `nats_transform.digest`.

`digest` hands the rows to the kernel. `row_hash` is the hash of a row in Spark's own functions, for
a pass that computes other things too. Its 64 bits are summed in pieces of 21 or 22 bits, so that no
sum overflows a long below 2**41 rows, also in ANSI mode.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import xxhash
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from nats_transform.digest import Digest
from nats_transform.kernel.digest import digest_batch
from nats_transform.subject import encode

_PIECES = ((0, 22), (22, 21), (43, 21))  # (first bit, bits)
_MASK = (1 << 64) - 1


def digest(rows: DataFrame, columns: Sequence[str] | None = None) -> Digest:
    """The digest of a DataFrame, computed by the kernel; one pass over it."""

    def digests(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = sum((Digest(*digest_batch(batch)) for batch in batches), Digest())
        yield pa.record_batch({"rows": [found.rows], "total": [str(found)]})

    # By number: `mapInArrow` takes no column with a dot in its name.
    named = enumerate(columns or rows.columns)
    counted = rows.select(*(F.col(_quoted(name)).alias(str(place)) for place, name in named))
    parts = counted.mapInArrow(digests, "rows long, total string").collect()
    return sum((Digest.parse(part["rows"], part["total"]) for part in parts), Digest())


def row_hash(schema: T.StructType, columns: Sequence[str] | None = None) -> Column:
    """The 64-bit hash of a row.

    xxhash64 skips nulls, so a bit mask of what is null goes first, and the length of each array
    goes before its elements: without them two different rows could hash the same sequence.
    """
    fields = [schema[name] for name in columns or schema.names]
    mask = F.lit(0)
    for bit, field in enumerate(fields):
        if field.nullable:
            mask = mask + F.when(F.col(_quoted(field.name)).isNull(), 1 << bit).otherwise(0)
    parts = [mask.cast("long")]
    for field in fields:
        column = F.col(_quoted(field.name))
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
    return Digest(int(values[f"{prefix}rows"]), total & _MASK)


def hash_of(*texts: str | None) -> int:
    """What Spark's `xxhash64` makes of some text columns."""
    value = 42
    for text in texts:
        value = value if text is None else xxhash.xxh64_intdigest(encode(text), seed=value)
    return value - 2**64 if value >= 2**63 else value


def _quoted(name: str) -> str:
    return f"`{name}`" if "." in name else name
