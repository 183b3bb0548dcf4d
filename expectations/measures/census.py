"""One look at rows of `subject_census`: what they count, and whether that is possible."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from expectations.measures.rows import Measures, by_day, flags

_SUMS = ("messages", "bytes")


@dataclass
class CensusMeasures(Measures):
    """What was found in rows of `subject_census`.

    Attributes:
        counted: the sums of the columns `messages` and `bytes`.
    """

    counted: Counter[str] = field(default_factory=Counter)

    digest = Measures.archive


def measure_census(batches: Iterable[pa.RecordBatch]) -> CensusMeasures:
    """The measures of rows of `subject_census`, with the columns in the order of the table."""
    found = CensusMeasures()
    for day, rows in by_day(batches):
        messages, sizes = (rows.column(name) for name in _SUMS)
        possible = pc.and_(pc.greater_equal(messages, 1), pc.greater_equal(sizes, 0))
        possible = pc.and_(possible, pc.less_equal(rows.column("first_ts"), rows.column("last_ts")))
        found.count(day, rows, rows.schema.names, rows.schema.names, impossible=~flags(possible))
        found.counted.update({name: pc.sum(rows.column(name)).as_py() or 0 for name in _SUMS})
    return found
