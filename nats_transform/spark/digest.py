"""The digest of a DataFrame, see `nats_transform.digest`: the kernel computes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from nats_transform.digest import Digest
from nats_transform.kernel.digest import digest_batch


def digest(rows: DataFrame, columns: Sequence[str] | None = None) -> Digest:
    """The digest of a DataFrame; one pass over it.

    Args:
        rows: the rows.
        columns: the columns that count, in this order; by default all.
    """

    def digests(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        digest = sum((digest_batch(batch) for batch in batches), Digest())
        yield pa.record_batch({"rows": [digest.rows], "total": [str(digest)]})

    # By number: `mapInArrow` takes no column with a dot in its name.
    named = enumerate(columns or rows.columns)
    counted = rows.select(*(column(name).alias(str(place)) for place, name in named))
    parts = counted.mapInArrow(digests, "rows long, total string").collect()
    return sum((Digest.parse(part["rows"], part["total"]) for part in parts), Digest())


def column(name: str) -> Column:
    """The column with exactly this name, whatever characters the name has."""
    return F.col("`" + name.replace("`", "``") + "`")
