"""The rules that every row must obey, and the rows that break them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import date
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nats_transform import Fate
from nats_transform.digest import Digest
from nats_transform.mappings.mapping import DRAWS
from nats_transform.mappings.subject import decode

MAX_SUBJECT = 4096 - 24
"""Bytes of the longest subject that can be published under the server's default limits.

The arguments of a PUB line, the subject and two sizes, must fit in `max_control_line`, which is
4096 (`overMaxControlLineLimit` in nats-server `server/parser.go`). The 24 are two sizes of ten
digits and the blanks between; a reply subject would take its length away too.
"""

EXAMPLES = 5
"""How many of the rows that break a rule are shown."""

_ILLEGAL = rb"(\A|\.)[*>]?(\.|\z)"
_DAY_NS = 86_400 * 10**9
_NO_DAY = -(2**31)  # of which Python knows no date

StreamDay = tuple[str | None, date | None]


@dataclass(frozen=True, slots=True)
class Flag:
    """The rows that break a rule: how many, and some of them."""

    rows: int = 0
    examples: tuple[dict[str, Any], ...] = ()

    @classmethod
    def of(cls, rows: pa.RecordBatch, broken: np.ndarray, columns: Sequence[str]) -> Flag:
        """The rows of a batch that are broken, shown with some of their columns."""
        places = np.flatnonzero(broken)
        shown = rows.select(columns).take(pa.array(places[:EXAMPLES])) if len(places) else None
        return cls(len(places), () if shown is None else tuple(plain_rows(shown)))

    def __add__(self, other: Flag) -> Flag:
        return Flag(self.rows + other.rows, (self.examples + other.examples)[:EXAMPLES])


class Sums:
    """A dataclass whose values can be added up, field by field."""

    def __add__(self, other: Self) -> Self:
        names = [field.name for field in fields(self)]  # type: ignore[arg-type]
        return type(self)(*(_sum(getattr(self, name), getattr(other, name)) for name in names))


def _sum(ours: Any, theirs: Any) -> Any:
    """The sum of two values; of mappings, the values of one key are added up."""
    if isinstance(ours, int):  # how a sample was drawn
        return max(ours, theirs)
    if not isinstance(ours, Mapping) or isinstance(ours, Counter):
        return ours + theirs
    return {**ours, **theirs} | {key: ours[key] + theirs[key] for key in ours.keys() & theirs}


@dataclass(frozen=True)
class Measures(Sums):
    """What was found in rows of a table. Measures of two parts can be added up.

    Attributes:
        days: rows of each day, with the digest of the columns that `messages` has.
        flags: the rows that break a rule, of each day that has any.
    """

    days: Mapping[StreamDay, Digest]
    flags: Mapping[tuple[StreamDay, str], Flag]

    @property
    def archive(self) -> Digest:
        """All rows, with the digest of the columns that `messages` has."""
        return sum(self.days.values(), Digest())

    def flag(self, rule: str) -> Flag:
        """The rows of all days that break a rule."""
        return sum((flag for (_, name), flag in self.flags.items() if name == rule), Flag())

    def broken(self, rule: str) -> dict[StreamDay, int]:
        """How many rows of each day break a rule, of the days that have any."""
        return {day: flag.rows for (day, name), flag in self.flags.items() if name == rule}


def by_day(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[StreamDay, pa.RecordBatch]]:
    """The rows of each batch, apart for each stream and day: mostly all of a batch."""
    for batch in batches:
        if not len(batch):
            continue
        streams, days = batch.column("stream"), batch.column("day")
        numbers = days.view(pa.int32()).fill_null(_NO_DAY).to_numpy().astype(np.int64)
        both = numbers << 32 | numbers_of(words(streams))
        firsts = [0] if (both == both[0]).all() else np.unique(both, return_index=True)[1].tolist()
        for first in firsts:
            rows = batch.filter(pa.array(both == both[first])) if len(firsts) > 1 else batch
            yield (streams[first].as_py(), days[first].as_py()), rows


def is_misdated(rows: pa.RecordBatch) -> np.ndarray:
    """Whether the three times of a message disagree; `ts_ns` is the exact one. Without one, no."""
    exact, micros = _numbers(rows.column("ts_ns")), _numbers(rows.column("ts"))
    days = _numbers(rows.column("day"))
    found: np.ndarray = (exact // 1000 != micros) | (exact // _DAY_NS != days)
    found &= ~is_missing(rows, ("ts_ns", "ts", "day"))
    return found


def is_missing(rows: pa.RecordBatch, names: Iterable[str]) -> np.ndarray:
    """Whether a row lacks any of some columns."""
    missing = np.zeros(len(rows), np.bool_)
    for name in names:
        if rows.column(name).null_count:
            missing |= flags(rows.column(name).is_null())
    return missing


def is_illegal(subjects: pa.Array) -> np.ndarray:
    """Whether a subject is no legal literal one: `literal_fault` of the library."""
    return flags(pc.match_substring_regex(subjects.view(pa.binary()), _ILLEGAL))


def is_too_long(subjects: pa.Array) -> np.ndarray:
    """Whether a subject has more than `MAX_SUBJECT` bytes."""
    return flags(pc.greater(pc.binary_length(subjects), MAX_SUBJECT))


def is_incoherent(rows: pa.RecordBatch) -> np.ndarray:
    """Whether the columns that tell the outcome contradict one another."""
    has_subject, has_mapping, has_reason = (
        flags(rows.column(name).is_valid())
        for name in ("mapped_subject", "mapping_source", "reason")
    )
    fate, draws = rows.column("fate").cast(pa.string()), rows.column("draw")
    is_mapped, is_invalid = (flags(pc.equal(fate, f.value)) for f in (Fate.MAPPED, Fate.INVALID))
    passes = is_mapped | flags(pc.equal(fate, Fate.UNMATCHED.value))
    is_known = flags(pc.is_in(fate, pa.array([f.value for f in Fate])))
    moved = pc.not_equal(
        *(rows.column(name).view(pa.binary()) for name in ("mapped_subject", "subject"))
    )
    found: np.ndarray = ~is_known | (has_subject != passes) | (has_reason != is_invalid)
    found |= (passes & (has_mapping != is_mapped)) | (flags(moved) & ~has_mapping)
    found |= flags(pc.or_(pc.less(draws, 0), pc.greater_equal(draws, DRAWS)))
    return found


def flags(found: pa.Array) -> np.ndarray:
    """Booleans as numpy has them; null is false."""
    return np.asarray(found.fill_null(False).to_numpy(zero_copy_only=False))


def words(column: pa.Array) -> pa.DictionaryArray:
    """A text column as a dictionary."""
    return column if pa.types.is_dictionary(column.type) else column.dictionary_encode()


def numbers_of(words: pa.DictionaryArray) -> np.ndarray:
    """The place of each word in the dictionary; of a missing one the place behind the last."""
    return np.asarray(words.indices.fill_null(len(words.dictionary)).to_numpy())


def counts_of(numbers: np.ndarray) -> list[tuple[int, int]]:
    """Which numbers there are, and how often; none of them is negative."""
    if not len(numbers):
        return []
    if int(numbers.max()) < 4 * len(numbers) + 1024:  # then it needs no sorting
        counts = np.bincount(numbers)
        found = np.flatnonzero(counts)
        return list(zip(found.tolist(), counts[found].tolist(), strict=True))
    found, counts = np.unique(numbers, return_counts=True)
    return list(zip(found.tolist(), counts.tolist(), strict=True))


def _numbers(column: pa.Array) -> np.ndarray:
    """Whole numbers, days or microseconds of a column; 0 where it is null."""
    kind = pa.int32() if pa.types.is_date32(column.type) else pa.int64()
    return np.asarray(column.view(kind).fill_null(0).to_numpy())


def plain_rows(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows as Python has them; bytes of text that are not UTF-8 are surrogate escapes."""
    columns = pa.RecordBatch.from_arrays([_raw(c) for c in rows.columns], rows.schema.names)
    return [
        {name: decode(value) if isinstance(value, bytes) else value for name, value in row.items()}
        for row in columns.to_pylist()
    ]


def _raw(column: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_string(column.type):
        return column.view(pa.binary())
    return column.cast(pa.timestamp("us")) if pa.types.is_timestamp(column.type) else column


def sample_hashes(numbers: np.ndarray) -> np.ndarray:
    """Whole numbers, mixed so that those with any remainder are a sample (SplitMix64)."""
    mixed = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (mixed ^ (mixed >> np.uint64(31))).view(np.int64)
