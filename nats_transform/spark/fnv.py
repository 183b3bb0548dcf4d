"""FNV-1a in Columns, exact for any bytes.

No built-in function reads a byte as a number fast, but Spark's `hash` of 4 bytes is one block of
Murmur3, and every step of that can be undone: four bytes at a time come back as an integer. A key
is filled up with zero bytes, each of which only multiplies the value by the prime of FNV; that is
undone by multiplying with the inverse of a power of the prime.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from nats_transform.spark.lookup import own_method

_BASIS = 2166136261
_PRIME = 16777619
_MASK = 0xFFFFFFFF
UNROLLED = 16
"""Bytes of a key that are hashed in generated code; the rest goes byte by byte."""


def add_hashes(frame: DataFrame, keys: Mapping[str, str]) -> DataFrame:
    """The frame with the FNV-1a hashes of the first `UNROLLED` bytes of some binary columns.

    Each step is a select of its own because the next one uses its result more than once, and
    because protobuf, which carries the plan to Spark Connect, nests no deeper than 100 levels.

    Args:
        frame: with the columns.
        keys: for each new column the binary column it is the hash of.
    """
    filled = {
        f"{name}_bytes": F.concat(F.col(key), F.lit(bytes(UNROLLED))) for name, key in keys.items()
    }
    frame = frame.withColumns(filled)
    words: dict[str, Column] = {}
    for name, key in keys.items():
        # `hash` makes a number even of null; where there is no key nothing should be computed.
        there = F.col(key).isNotNull()
        for i in range(UNROLLED // 4):
            word = F.hash(F.substring(f"{name}_bytes", 4 * i + 1, 4)).cast("long")
            words[f"{name}_word{i}"] = F.when(there, _mask(word))
    frame = frame.withColumns(words)
    for step in _UNMIX:
        frame = frame.withColumns({word: own_method(step(F.col(word))) for word in words})
    frame = frame.withColumns({name: F.lit(_BASIS) for name in keys})
    for i in range(UNROLLED // 4):
        frame = frame.withColumns(
            {name: own_method(_four(F.col(name), F.col(f"{name}_word{i}"))) for name in keys}
        )
    return frame


def _four(value: Column, word: Column) -> Column:
    """A hash after four more bytes."""
    for shift in (0, 8, 16, 24):
        byte = _right(word, shift).bitwiseAND(F.lit(0xFF))
        value = _times(value.bitwiseXOR(byte), _PRIME)
    return value


def whole_hash(key: str, name: str) -> Column:
    """The FNV-1a hash of a binary column, given that of its first bytes."""
    head, length = F.col(name), F.octet_length(key)
    undo = F.lit([_signed(pow(_PRIME, -n, 2**32)) for n in range(UNROLLED + 1)])
    rest = F.decode(F.substring(key, UNROLLED + 1, _ALL), "ISO-8859-1")
    tail = F.aggregate(
        F.split(rest, ""),
        head,
        lambda value, byte: _times(value.bitwiseXOR(F.ascii(byte)), _PRIME),
    )
    return F.when(
        length <= UNROLLED, _mask(head * F.get(undo, F.lit(UNROLLED) - length))
    ).otherwise(tail)


def _mask(value: Column) -> Column:
    return value.bitwiseAND(F.lit(_MASK))


def _signed(factor: int) -> int:
    """A factor modulo 2**32 so small that its product with 32 bits fits in a long."""
    return factor - 2**32 if factor >= 2**31 else factor


def _times(value: Column, factor: int) -> Column:
    return _mask(value * F.lit(_signed(factor)).cast("long"))


def _undo_times(value: Column, factor: int) -> Column:
    return _times(value, pow(factor, -1, 2**32))


def _right(value: Column, bits: int) -> Column:
    return F.shiftrightunsigned(value, bits)


def _undo_rotate(value: Column, bits: int) -> Column:
    return _mask(_right(value, bits).bitwiseOR(F.shiftleft(value, 32 - bits)))


# Murmur3's finalizer, its block step and its key step, backwards. Seed 42 and length 4 are Spark's.
_UNMIX: tuple[Callable[[Column], Column], ...] = (
    lambda x: _undo_times(x.bitwiseXOR(_right(x, 16)), 0xC2B2AE35),
    lambda x: _undo_times(x.bitwiseXOR(_right(x, 13)).bitwiseXOR(_right(x, 26)), 0x85EBCA6B),
    lambda x: _undo_times(x.bitwiseXOR(_right(x, 16)).bitwiseXOR(F.lit(4)) - 0xE6546B64, 5),
    lambda x: _undo_times(_undo_rotate(x, 13).bitwiseXOR(F.lit(42)), 0x1B873593),
    lambda x: _undo_times(_undo_rotate(x, 15), 0xCC9E2D51),
)
_ALL = 2**31 - 1
