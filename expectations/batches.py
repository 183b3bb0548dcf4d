"""The measures of batches of three kinds, by one function over Arrow batches.

- A manifest of data files: a pandas or Spark DataFrame with a row for each Parquet file and its
  path in `file_path`, as Iceberg's metadata table `files` has it;
- rows in a Spark DataFrame, with the columns of the table;
- such rows in a pandas DataFrame.

Workers of Spark import this module, so it does without Great Expectations.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import pandas as pd
import pyarrow as pa

from expectations.expectation import Report, Suite
from nats_transform import AccountMappings
from nats_transform.config import from_canonical
from nats_transform.digest import Digest
from nats_transform.errors import InvalidValue
from nats_transform.kernel.messages import MESSAGES, TRANSFORMED

FILE = "file_path"
"""The column that tells a manifest from rows."""

_COLUMNS = {"messages": pa.schema(MESSAGES), "transformed_messages": pa.schema(TRANSFORMED)}

ReadFiles = Callable[[str, Sequence[str]], Iterator[pa.RecordBatch]]
"""Gives the rows of some files of a table, whose name it gets first."""


def mappings_of(canonical: Mapping[str, Any]) -> tuple[AccountMappings, int]:
    """The mappings and the seed of a canonical form, parsed once for all expectations."""
    return _parsed(json.dumps(canonical))


@lru_cache(maxsize=8)
def _parsed(text: str) -> tuple[AccountMappings, int]:
    config, seed = from_canonical(text)
    assert isinstance(config, AccountMappings)  # noqa: S101 - `read_mappings` made it
    return config, seed


def measures_of(frame: Any, suite: Suite, read: ReadFiles) -> Any:
    """The measures of a batch.

    Args:
        frame: a manifest or rows, in pandas or Spark.
        suite: what they are for.
        read: reads the files of a manifest. It can be pickled.

    Raises:
        ValueError: the batch lacks a column.
    """
    columns = [FILE] if FILE in frame.columns else _COLUMNS[suite.name].names
    if lacking := [name for name in columns if name not in frame.columns]:
        raise InvalidValue(
            "batch-lacks-columns", suite=suite.name, needed=FILE, lacking=", ".join(lacking)
        )
    rows_of = partial(_rows, suite.name, read)
    if isinstance(frame, pd.DataFrame):
        # A whole number beside none is a float in pandas.
        schema = None if columns == [FILE] else _COLUMNS[suite.name]
        table = pa.Table.from_pandas(frame[columns], schema, preserve_index=False, safe=False)
        return suite.measure(rows_of(table.to_batches()))
    work = partial(_pickled, suite.measure, rows_of)
    parts = frame.select(columns).mapInArrow(work, "measures binary").collect()
    # The bytes come from our own tasks.
    return sum((pickle.loads(part[0]) for part in parts), start=suite.measure(()))  # noqa: S301


def _rows(
    table: str, read: ReadFiles, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The rows that batches have, or those of the files that they list."""
    for batch in batches:
        if FILE in batch.schema.names:
            yield from read(table, batch.column(FILE).drop_null().to_pylist())
        else:
            yield batch.cast(_COLUMNS[table])


def _pickled(
    measure: Callable[..., Any],
    rows_of: Callable[..., Iterator[pa.RecordBatch]],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """The measures of a part of a Spark DataFrame: something for `mapInArrow`."""
    measures = pickle.dumps(measure(rows_of(batches)))
    yield pa.record_batch({"measures": pa.array([measures], pa.binary())})


def aggregates(report: Report) -> pd.DataFrame:
    """The frame of aggregates, for expectations that Great Expectations has itself.

    One row for each stream and day: its `rows` and their `digest`, and for each expectation with a
    column how much is wrong. With files it is their manifest, and each repeats what its day has.
    """
    days = report.measures.days or {(None, None): Digest()}
    counts = pd.DataFrame(
        {"stream": day[0], "day": day[1], "rows": bag.rows, "digest": str(bag)}
        | {
            result.column: int(not result.success)
            if result.broken is None
            else result.broken.get(day, 0)
            for result in report.results
            if result.column is not None
        }
        for day, bag in days.items()
    )
    manifest = pd.DataFrame([*report.files], columns=["stream", "day", FILE, "record_count"])
    return manifest.merge(counts, "outer", ["stream", "day"]) if len(manifest) else counts


def count_of(frame: Any) -> int:
    """How many rows a batch has, or the files of its manifest."""
    is_pandas = isinstance(frame, pd.DataFrame)
    if FILE not in frame.columns:
        return len(frame) if is_pandas else int(frame.count())
    counts = frame["record_count"] if is_pandas else frame.agg({"record_count": "sum"}).first()
    return int(sum(count or 0 for count in counts))
