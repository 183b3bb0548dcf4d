"""One pass over rows of `messages`: how many, which sequences, and what is wrong with them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from expectations.measures.digests import aggregates_of, from_row
from expectations.measures.rows import (
    BROKEN,
    CHECK,
    Flag,
    StreamDay,
    collected,
    flags,
    is_broken,
    is_illegal,
    is_misdated,
    is_too_long,
    look,
)
from nats_transform.digest import Digest

Range = tuple[int, int]

_HASH = CHECK + "hash"
_DIGEST = CHECK + "digest_"
_WORD = 6  # bits: a word of a bitmap holds 64 sequences, a block 64 words
_ONES = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Sequences:
    """The sequences of a stream on a day.

    Attributes:
        ranges: those present, as ascending inclusive ranges that do not touch.
        repeated: rows beyond the first of each sequence.
    """

    ranges: tuple[Range, ...]
    repeated: int

    @property
    def gaps(self) -> tuple[Range, ...]:
        """The missing sequences between the first and the last."""
        pairs = zip(self.ranges, self.ranges[1:], strict=False)
        return tuple((before[1] + 1, after[0] - 1) for before, after in pairs)


@dataclass(frozen=True, slots=True)
class MessagesMeasures:
    """What one pass over rows of `messages` found.

    Attributes:
        days: rows of each day, with their digest.
        sequences: which there are, of each day.
        flags: the rules about single rows, by name.
    """

    days: Mapping[StreamDay, Digest]
    sequences: Mapping[StreamDay, Sequences]
    flags: Mapping[str, Flag]

    @property
    def archive(self) -> Digest:
        """All rows."""
        return sum(self.days.values(), Digest())


def prepare_messages(rows: DataFrame, *, row_hash: Column) -> DataFrame:
    """The rows of `messages` and what the checks need to know of each.

    Args:
        rows: the rows of `messages`, of any streams and days.
        row_hash: a 64-bit hash of the row.
    """
    needed = [F.col(name).isNull() for name in ("stream", "seq", "ts", "ts_ns", "day")]
    return rows.select(
        "*",
        row_hash.alias(_HASH),
        *flags(
            missing=reduce(or_, needed),
            misdated=is_misdated(),
            illegal=is_illegal("subject") | F.col("subject").isNull(),
            too_long=is_too_long("subject"),
        ),
    )


def measure_messages(prepared: DataFrame) -> MessagesMeasures:
    """The measures of prepared rows of `messages`; one pass over them.

    Sequences become bitmaps, 64 of them in one word and 64 words in one block, so that duplicates
    and gaps are exact and what leaves Spark is a row for each 4,096 messages.
    """
    words = prepared.groupBy("stream", "day", F.shiftright("seq", _WORD).alias("word")).agg(
        F.bit_or(_bit("seq")).alias("bits"),
        F.count_if(is_broken(prepared)).alias(BROKEN),
        *aggregates_of(F.col(_HASH), _DIGEST),
    )
    is_full = F.col("bits") == -1
    blocks = words.groupBy("stream", "day", F.shiftright("word", _WORD).alias("block")).agg(
        F.sum(F.bit_count("bits")).alias("present"),
        F.bit_or(F.when(is_full, _bit("word")).otherwise(0)).alias("full"),
        F.collect_list(F.when(~is_full, F.struct("word", "bits"))).alias("partly"),
        *(F.sum(name).alias(name) for name in words.columns if name.startswith((BROKEN, _DIGEST))),
    )
    days: dict[StreamDay, Digest] = defaultdict(Digest)
    found: dict[StreamDay, list[dict[str, Any]]] = defaultdict(list)
    broken = 0
    for row in collected(blocks):
        day = (row["stream"], row["day"])
        days[day] += from_row(row, _DIGEST)
        broken += row[BROKEN]
        if row["block"] is not None:
            found[day].append(row)
    return MessagesMeasures(
        days=dict(days),
        sequences={day: _sequences(rows) for day, rows in found.items()},
        flags=look(prepared, broken, ["stream", "day", "seq", "ts", "ts_ns", "subject"]),
    )


def _bit(number: str) -> Column:
    """The bit of a number in its word."""
    return F.call_function("shiftleft", F.lit(1).cast("long"), (F.col(number) % 64).cast("int"))


def _sequences(blocks: Sequence[Mapping[str, Any]]) -> Sequences:
    ranges: list[Range] = []

    def add(first: int, last: int) -> None:
        if ranges and ranges[-1][1] + 1 == first:
            ranges[-1] = (ranges[-1][0], last)
        else:
            ranges.append((first, last))

    for row in sorted(blocks, key=lambda row: int(row["block"])):
        first_word = row["block"] << _WORD
        full = row["full"] & _ONES
        if full == _ONES:
            add(first_word << _WORD, ((first_word + 64) << _WORD) - 1)
            continue
        words = {word: bits & _ONES for word, bits in row["partly"]}
        words |= {first_word + place: _ONES for place in range(64) if full >> place & 1}
        for word in sorted(words):
            for first, last in runs_of_ones(words[word]):
                add((word << _WORD) + first, (word << _WORD) + last)
    return Sequences(tuple(ranges), sum(row[f"{_DIGEST}rows"] - row["present"] for row in blocks))


def runs_of_ones(bits: int) -> Iterable[Range]:
    """The runs of ones in a whole number, as (first, last) places, the lowest bit being 0."""
    place = 0
    while bits:
        zeros = (bits & -bits).bit_length() - 1
        bits >>= zeros
        ones = (~bits & (bits + 1)).bit_length() - 1
        bits >>= ones
        yield place + zeros, place + zeros + ones - 1
        place += zeros + ones
