"""One look at rows of `subject_census`: what they count, and whether that is possible."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from expectations.measures.rows import Flag, Sums, flags
from nats_transform.digest import Digest
from nats_transform.kernel.digest import digest_batch

_SHOWN = (
    *("stream", "day", "subject", "cluster", "carries"),
    *("messages", "bytes", "first_ts", "last_ts"),
)


@dataclass(frozen=True)
class CensusMeasures(Sums):
    """What was found in rows of `subject_census`.

    Attributes:
        digest: all rows, with the digest of all columns.
        counted: the sums of the columns `messages` and `bytes`.
        impossible: rows that count nothing, or end before they begin.
    """

    digest: Digest
    counted: Counter[str]
    impossible: Flag


def measure_census(batches: Iterable[pa.RecordBatch]) -> CensusMeasures:
    """The measures of rows of `subject_census`, with the columns in the order of the table."""
    return sum(map(_measured, batches), CensusMeasures(Digest(), Counter(), Flag()))


def _measured(rows: pa.RecordBatch) -> CensusMeasures:
    messages, sizes = rows.column("messages"), rows.column("bytes")
    impossible = pc.or_(pc.less(messages, 1), pc.less(sizes, 0))
    impossible = pc.or_(impossible, pc.greater(rows.column("first_ts"), rows.column("last_ts")))
    return CensusMeasures(
        Digest(*digest_batch(rows)),
        Counter(messages=pc.sum(messages).as_py() or 0, bytes=pc.sum(sizes).as_py() or 0),
        Flag.of(rows, flags(impossible.fill_null(True)), _SHOWN),
    )
