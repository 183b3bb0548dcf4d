"""Counts of the combinations of values in some columns of a batch, where these are few.

Each column becomes an array of whole numbers that stand for its values. The numbers of a row are
then joined to one number, so that a count by several columns is one pass over one array.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nats_transform.errors import NatsTransformError
from nats_transform.mappings.subject import decode

MOST_CELLS = 2**16
"""With up to this many possible combinations each has its own counter; with more, rows are sorted.
"""
_HOUR_MICROS = 3_600_000_000


class Coded(NamedTuple):
    """A column as numbers.

    Attributes:
        numbers: for each row a place in `values`.
        values: what the numbers stand for.
    """

    numbers: np.ndarray
    values: Sequence[Any]


def texts(column: pa.Array) -> Coded:
    """A text column; bytes that are not UTF-8 are surrogate escapes, as in the library."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    words = column.dictionary.view(pa.binary()).to_pylist()
    values = [None if word is None else decode(word) for word in words]
    numbers = column.indices
    if numbers.null_count:
        numbers = numbers.fill_null(len(values))
        values.append(None)
    return Coded(numbers.to_numpy(), values)


def hours(times: pa.Array) -> Coded:
    """The hour of each time, in whole hours since 1970.

    Raises:
        NatsTransformError: a message has no time.
    """
    micros = times.view(pa.int64())
    if micros.null_count:
        raise NatsTransformError("message-without-time")
    ends = pc.min_max(micros).as_py()
    first, last = (ends[name] // _HOUR_MICROS for name in ("min", "max"))
    if first == last:  # the usual case, because messages are stored in the order of their times
        return Coded(np.broadcast_to(np.int64(0), len(micros)), [first])
    numbered = micros.to_numpy() // _HOUR_MICROS
    if last - first < MOST_CELLS:
        return Coded(numbered - first, range(first, last + 1))
    values, numbers = np.unique(numbered, return_inverse=True)
    return Coded(numbers, values.tolist())


def combinations(*columns: Coded) -> Iterator[tuple[tuple[Any, ...], int]]:
    """Each combination of values that a row has, and the number of rows that have it."""
    for places, count in _counted(columns):
        yield tuple(c.values[place] for c, place in zip(columns, places, strict=True)), count


def _counted(columns: Sequence[Coded]) -> Iterator[tuple[tuple[int, ...], int]]:
    cells = math.prod(len(column.values) for column in columns)
    if cells > 2**62:  # the joined number would not fit into 64 bits
        yield from Counter(zip(*(c.numbers.tolist() for c in columns), strict=True)).items()
        return
    together = np.zeros(len(columns[0].numbers), np.int64)
    for column in columns:
        if len(column.values) > 1:
            together *= len(column.values)
            together += column.numbers
    if cells <= MOST_CELLS:
        every = np.bincount(together, minlength=cells)
        present = np.flatnonzero(every)
        counts = every[present]
    else:
        present, counts = np.unique(together, return_counts=True)
    places: list[list[int]] = []
    for column in reversed(columns):
        present, place = np.divmod(present, len(column.values))
        places.insert(0, place.tolist())
    yield from zip(zip(*places, strict=True), counts.tolist(), strict=True)
