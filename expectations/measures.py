"""What is measured of the rows of a table: how many of each day, and which break a rule.

A table is read once for all its expectations: a task measures its rows, batch by batch, and what
tasks find can be added up. Digests are the kernel's, as everywhere; all else is found by other code
than the kernel, so that the checks see what a fault of the kernel would hide.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import date
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa

from nats_transform import Fate
from nats_transform.audit import End
from nats_transform.digest import Digest
from nats_transform.kernel.counting import texts
from nats_transform.kernel.digest import digest_batch
from nats_transform.mappings.subject import decode

EXAMPLES = 5
"""How many of the rows that break a rule are shown."""

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

    digest = archive
    """All rows, with the digest of all columns."""

    def flagged(self, rule: str) -> dict[StreamDay, Flag]:
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
            day, rows: the day, and the rows.
            columns, shown: what the digest is of, and what is shown of rows that break a rule.
            broken: by the name of a rule, whether a row breaks it.
        """
        self.days[day] += digest_batch(rows, tuple(columns))
        for rule, breaks in broken.items():
            if len(places := np.flatnonzero(breaks)):
                missing = EXAMPLES - len(self.flags[day, rule].examples)
                some = rows.select(shown).take(pa.array(places[:missing]))
                self.flags[day, rule] += Flag(len(places), tuple(plain_rows(some)))

    def __add__(self, other: Self) -> Self:
        names = [field.name for field in fields(self)]
        return type(self)(*(_sum(getattr(self, name), getattr(other, name)) for name in names))


def _sum(ours: Any, theirs: Any) -> Any:
    """The sum of two values; of mappings, the values of one key are added up."""
    if not isinstance(ours, Mapping) or isinstance(ours, Counter):
        return ours + theirs
    return {**ours, **theirs} | {key: ours[key] + theirs[key] for key in ours.keys() & theirs}


class Ending(NamedTuple):
    """What became of messages of a cluster on a day: their fate, and what made it so."""

    day: date | None
    cluster: str | None
    fate: str | None
    source: str | None
    destination: str | None


@dataclass
class TransformedMeasures(Measures):
    """What was found in rows of `transformed_messages`.

    Attributes:
        digest: all rows, with the digest of all columns.
        endings: rows of each ending.
        numbers: rows by partition number, of each end that has one.
        keys: of some keys, rows by hash of the key and partition number, of each end.
    """

    digest: Digest = Digest()  # noqa: RUF009 - it is frozen
    endings: Counter[Ending] = field(default_factory=Counter)
    numbers: dict[End, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    keys: dict[End, Counter[tuple[int, int]]] = field(default_factory=lambda: defaultdict(Counter))

    def fates_of(self, *days: date) -> dict[str, int]:
        """Rows of each fate; of some days, or of all."""
        counted: Counter[str | None] = Counter()
        for ending, rows in self.endings.items():
            if not days or ending.day in days:
                counted[ending.fate] += rows
        return {fate.value: counted[fate.value] for fate in Fate}


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


def flags(booleans: pa.Array) -> np.ndarray:
    """Booleans as numpy has them; null is false."""
    return np.asarray(booleans.fill_null(False))


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
