"""Tables as array literals: what depends on a rule or a destination is looked up by number.

The code that Spark generates then has the same size for one rule as for thousands, and stays below
the size at which the JVM stops compiling it.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

import xxhash
from pyspark.sql import Column
from pyspark.sql import functions as F

from nats_transform.subject import encode

_SPARK_SEED = 42  # where Spark's xxhash64 starts
_TRIES = 1_000_000


def literal(text: str) -> Column:
    """A string literal of any bytes: one that is not UTF-8 cannot travel as a string."""
    data = encode(text)
    try:
        return F.lit(data.decode("utf-8"))
    except UnicodeDecodeError:
        return F.lit(data).cast("string")


def pick(values: Sequence[Any], index: Column, kind: str) -> Column:
    """The value at an index.

    Where all values are equal it is a literal, which is not null even where the index is.

    Args:
        values: str, int, bool or None.
        index: 0-based.
        kind: `string`, `int`, `bigint` or `boolean`.
    """
    if len(set(values)) <= 1:
        only = values[0] if values else None
        return (literal(only) if isinstance(only, str) else F.lit(only)).cast(kind)
    return F.get(array(values, kind), index)


def array(values: Sequence[Any], kind: str) -> Column:
    """An array literal, made from one JSON text: a literal for each value would take minutes."""
    if kind != "string":
        return F.from_json(F.lit(json.dumps(values)), f"array<{kind}>")
    data = [None if value is None else encode(value) for value in values]
    try:
        texts = [None if value is None else value.decode("utf-8") for value in data]
    except UnicodeDecodeError:
        raw = [None if value is None else base64.b64encode(value).decode() for value in data]
        return F.from_json(F.lit(json.dumps(raw)), "array<binary>").cast("array<string>")
    return F.from_json(F.lit(json.dumps(texts)), "array<string>")


def own_method(value: Column) -> Column:
    """The value, computed in a method of its own: Spark makes one of what is used twice.

    In line, larger expressions would take the one method that handles a row above the 8000 bytes
    of bytecode from which on the JVM does not compile it.
    """
    return F.least(value, value)


class Index:
    """A perfect hash over strings: each has a slot of its own, found with one hash.

    `slot` gives a slot for any string; compare with `keys` there to know whether it is the one.
    Each bucket of hashes has a number that, xored to the hash, sends its strings to free slots.
    """

    def __init__(self, numbers: Mapping[str, int]) -> None:
        """Args: numbers: what each string stands for."""
        count = len(numbers)
        # Odd: modulo a power of two, xor never parts two hashes that end alike.
        size = (count + count // 2) | 1
        buckets: list[list[tuple[int, str]]] = [[] for _ in range(count // 3 + 1)]
        for text in numbers:
            hash64 = xxhash.xxh64_intdigest(encode(text), _SPARK_SEED)
            hash64 -= 2**64 if hash64 >= 2**63 else 0
            buckets[hash64 % len(buckets)].append((hash64, text))
        self._size = size
        self._shifts = [0] * len(buckets)
        self.keys: list[str | None] = [None] * size
        self.numbers: list[int | None] = [None] * size
        chance = random.Random(0)  # noqa: S311 - the same table every time
        for bucket in sorted(range(len(buckets)), key=lambda b: -len(buckets[b])):
            for _ in range(_TRIES):
                shift = chance.getrandbits(62)
                slots = [(hash64 ^ shift) % size for hash64, _ in buckets[bucket]]
                if len(set(slots)) == len(slots) and all(self.keys[s] is None for s in slots):
                    break
            else:
                raise AssertionError("no perfect hash found")
            self._shifts[bucket] = shift
            for slot, (_, text) in zip(slots, buckets[bucket], strict=True):
                self.keys[slot], self.numbers[slot] = text, numbers[text]

    def slot(self, hash64: Column) -> Column:
        """The slot of the string with this `xxhash64`."""
        bucket = F.pmod(hash64, F.lit(len(self._shifts))).cast("int")
        shift = pick(self._shifts, bucket, "bigint")
        return F.pmod(hash64.bitwiseXOR(shift), F.lit(self._size)).cast("int")

    def number(self, text: Column, slot: Column) -> Column:
        """What the string stands for, given its slot; null if it is not in the index."""
        is_there = pick(self.keys, slot, "string") == text
        return F.when(is_there, pick(self.numbers, slot, "int"))
