"""A digest of rows that depends on neither their order nor how they are cut into files.

Each row is hashed to 64 bits with xxHash64 and the hashes are added modulo 2**64: equal bags of
rows have equal digests, a repeated row counts twice (an xor would cancel it), and the digests of
two days add up to the digest of both. It guards against accidents, not against an attacker.

In Spark the 64 bits are summed in pieces of 21 or 22 bits, so that no sum overflows a long below
2**41 rows, also in ANSI mode; the pieces are plain aggregates, fit for `DataFrame.observe`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import xxhash
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T

from nats_transform.kernel.digest import digest_batch

_SEED = 42  # Spark's xxhash64 starts there
_MASK = (1 << 64) - 1
_PIECES = ((0, 22), (22, 21), (43, 21))  # (first bit, bits)
_PREFIX = "digest_"


@dataclass(frozen=True, slots=True)
class Digest:
    """The digest of a bag of rows: how many, and the sum of their hashes modulo 2**64."""

    rows: int = 0
    total: int = 0

    def __add__(self, other: Digest) -> Digest:
        return Digest(self.rows + other.rows, (self.total + other.total) & _MASK)

    def __str__(self) -> str:
        return f"{self.total:016x}"

    @classmethod
    def parse(cls, rows: int, text: str) -> Digest:
        """The digest that was written as `str()` of it, of so many rows."""
        return cls(rows, int(text, 16))


def aggregates(schema: T.StructType, columns: Sequence[str] | None = None) -> list[Column]:
    """The aggregate Columns whose results `from_row` reads: for `agg` or `observe`.

    Args:
        schema: of the rows.
        columns: which of them count, in this order; all by default.
    """
    return aggregates_of(row_hash(schema, columns))


def aggregates_of(hash64: Column, prefix: str = _PREFIX) -> list[Column]:
    """The same for rows whose hash is known; the names of the results start with `prefix`."""
    sums = [
        F.coalesce(
            F.sum(F.shiftrightunsigned(hash64, first).bitwiseAND(F.lit((1 << bits) - 1))),
            F.lit(0),
        ).alias(f"{prefix}{first}")
        for first, bits in _PIECES
    ]
    return [F.count(F.lit(1)).alias(f"{prefix}rows"), *sums]


def from_row(values: Mapping[str, Any], prefix: str = _PREFIX) -> Digest:
    """The digest from the results of `aggregates`, by name."""
    total = sum(int(values[f"{prefix}{first}"]) << first for first, _ in _PIECES)
    return Digest(int(values[f"{prefix}rows"]), total & _MASK)


def observed(observation: Observation) -> Digest:
    """The digest that an observation of `aggregates` saw; all zero if it saw no row."""
    values = observation.get
    return from_row(values) if values else Digest()


def digest(rows: DataFrame, columns: Sequence[str] | None = None) -> Digest:
    """The digest of a DataFrame, computed by the kernel; one pass over it."""

    def digests(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = sum((Digest(*digest_batch(batch)) for batch in batches), Digest())
        yield pa.record_batch({"rows": [found.rows], "total": [str(found)]})

    counted = rows.select(*(F.col(_quoted(name)) for name in columns or rows.columns))
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


def digest_of(
    rows: Iterable[Mapping[str, Any]], schema: T.StructType, columns: Sequence[str] | None = None
) -> Digest:
    """The digest of plain Python rows: the same as Spark's, computed without it.

    Values are as Spark collects them, but strings may be bytes (subjects need not be UTF-8),
    and dates and timestamps may be days or microseconds since 1970.
    """
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
    return Digest(count, total & _MASK)


def hash_of(*texts: str | None) -> int:
    """What Spark's `xxhash64` makes of some text columns."""
    value = _SEED
    for text in texts:
        value = _fold(text, T.StringType(), value)
    return value - 2**64 if value >= 2**63 else value


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


def _quoted(name: str) -> str:
    return f"`{name}`" if "." in name else name
