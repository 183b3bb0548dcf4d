"""What is measured of the rows of any table: how many of each day, and which break a rule."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import date
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nats_transform.digest import Digest
from nats_transform.kernel.counting import texts
from nats_transform.kernel.digest import digest_batch
from nats_transform.mappings.subject import decode

MAX_SUBJECT = 4096 - 24
"""Bytes of the longest subject that can be published under the server's default limits.

The arguments of a PUB line, the subject and two sizes, must fit in `max_control_line`, which is
4096 (`overMaxControlLineLimit` in nats-server `server/parser.go`). The 24 are two sizes of ten
digits and the blanks between; a reply subject would take its length away too.
"""

EXAMPLES = 5
"""How many of the rows that break a rule are shown."""

_DAY_NS = 86_400 * 10**9
_NO_DAY = -(2**31)  # of which Python knows no date

StreamDay = tuple[str | None, date | None]


@dataclass(frozen=True, slots=True)
class Flag:
    """The rows that break a rule: how many, and some of them."""

    rows: int = 0
    examples: tuple[dict[str, Any], ...] = ()

    def __add__(self, other: Flag) -> Flag:
        return Flag(self.rows + other.rows, (self.examples + other.examples)[:EXAMPLES])


@dataclass
class Measures:
    """What was found in rows of a table. Measures of two parts can be added up, field by field.

    Attributes:
        days: rows of each day, with the digest of the columns that were ingested.
        flags: the rows that break a rule, of each day that has any.
    """

    days: dict[StreamDay, Digest] = field(default_factory=lambda: defaultdict(Digest))
    flags: dict[tuple[StreamDay, str], Flag] = field(default_factory=lambda: defaultdict(Flag))

    @property
    def archive(self) -> Digest:
        """All rows, with the digest of the columns that were ingested."""
        return sum(self.days.values(), Digest())

    def broken(self, rule: str) -> dict[StreamDay, Flag]:
        """The rows of each day that break a rule, of the days that have any."""
        return {day: flag for (day, name), flag in self.flags.items() if name == rule}

    def count(
        self,
        day: StreamDay,
        rows: pa.RecordBatch,
        columns: Iterable[str],
        shown: Sequence[str],
        **broken: np.ndarray,
    ) -> None:
        """Adds rows of a day.

        Args:
            day: the day.
            rows: the rows.
            columns: those that the digest is of.
            shown: those that are shown of rows that break a rule.
            broken: by the name of a rule, whether a row breaks it.
        """
        self.days[day] += Digest(*digest_batch(rows, tuple(columns)))
        for rule, breaks in broken.items():
            if len(places := np.flatnonzero(breaks)):
                some = rows.select(shown).take(pa.array(places[:EXAMPLES]))
                self.flags[day, rule] += Flag(len(places), tuple(plain_rows(some)))

    def __add__(self, other: Self) -> Self:
        names = [field.name for field in fields(self)]
        return type(self)(*(_sum(getattr(self, name), getattr(other, name)) for name in names))


def _sum(ours: Any, theirs: Any) -> Any:
    """The sum of two values; of mappings, the values of one key are added up."""
    if not isinstance(ours, Mapping) or isinstance(ours, Counter):
        return ours + theirs
    return {**ours, **theirs} | {key: ours[key] + theirs[key] for key in ours.keys() & theirs}


def by_day(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[StreamDay, pa.RecordBatch]]:
    """The rows of each batch, apart for each stream and day: mostly all of a batch."""
    for batch in batches:
        if not len(batch):
            continue
        streams, days = texts(batch.column("stream")), batch.column("day")
        both = np.asarray(days.view(pa.int32()).fill_null(_NO_DAY)).astype(np.int64) << 32
        both |= streams.numbers
        firsts = [0] if (both == both[0]).all() else np.unique(both, return_index=True)[1].tolist()
        for first in firsts:
            rows = batch.filter(pa.array(both == both[first])) if len(firsts) > 1 else batch
            yield (streams.values[streams.numbers[first]], days[first].as_py()), rows


def is_misdated(rows: pa.RecordBatch) -> np.ndarray:
    """Whether the three times of a message disagree; `ts_ns` is the exact one. Without one, no."""
    kinds = {"ts_ns": pa.int64(), "ts": pa.int64(), "day": pa.int32()}
    exact, micros, days = (
        np.asarray(rows.column(name).view(kind).fill_null(0)) for name, kind in kinds.items()
    )
    found: np.ndarray = (exact // 1000 != micros) | (exact // _DAY_NS != days)
    found &= ~is_missing(rows, kinds)
    return found


def is_missing(rows: pa.RecordBatch, names: Iterable[str]) -> np.ndarray:
    """Whether a row lacks any of some columns."""
    missing = np.zeros(len(rows), np.bool_)
    for name in names:
        if rows.column(name).null_count:
            missing |= flags(rows.column(name).is_null())
    return missing


def is_too_long(subjects: pa.Array) -> np.ndarray:
    """Whether a subject has more than `MAX_SUBJECT` bytes."""
    return flags(pc.greater(pc.binary_length(subjects), MAX_SUBJECT))


def flags(found: pa.Array) -> np.ndarray:
    """Booleans as numpy has them; null is false."""
    return np.asarray(found.fill_null(False))


def plain_rows(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows as Python has them; bytes of text that are not UTF-8 are surrogate escapes."""
    columns = zip(*map(_values, rows.columns), strict=True)
    return [dict(zip(rows.schema.names, values, strict=True)) for values in columns]


def _values(column: pa.Array) -> Sequence[Any]:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not pa.types.is_string(column.type):
        return list(column.to_pylist())
    return [raw if raw is None else decode(raw) for raw in column.view(pa.binary()).to_pylist()]


def sample_hashes(numbers: np.ndarray) -> np.ndarray:
    """Whole numbers, mixed so that those with any remainder are a sample (SplitMix64)."""
    mixed = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (mixed ^ (mixed >> np.uint64(31))).view(np.int64)
