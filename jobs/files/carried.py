"""What the headers of messages hold on to: the column `carries` of a census, and subjects."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nats_transform.streams.features import CARRIED

_NAMES = pa.array(CARRIED)
_WORDS = pa.array(
    " ".join(word for bit, word in enumerate(CARRIED.values()) if number >> bit & 1)
    for number in range(2 ** len(CARRIED))
)


def carried(headers: pa.ListArray) -> pa.Array:
    """A number for each message, with a bit for each header of `CARRIED` that it has."""
    numbers = np.zeros(len(headers), np.uint8)
    bits = pc.index_in(headers.flatten().field("name"), _NAMES)
    if bits.null_count < len(bits):
        places = np.flatnonzero(bits.is_valid())
        rows = pc.list_parent_indices(headers).to_numpy()[places]
        ones = np.left_shift(1, bits.take(pa.array(places)).to_numpy()).astype(np.uint8)
        np.bitwise_or.at(numbers, rows, ones)
    return pa.array(numbers)


def values(headers: pa.ListArray, name: str) -> pa.StructArray:
    """The different values of a header, and how often each is there: `values` and `counts`."""
    pairs = headers.flatten()
    mine = pairs.field("value").filter(pc.equal(pairs.field("name"), name))
    return pc.value_counts(mine.view(pa.binary()))


def words(numbers: pa.Array) -> pa.Array:
    """The words of `CARRIED` for each number of `carried`, with blanks between them."""
    return _WORDS.take(numbers)
