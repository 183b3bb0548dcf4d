"""The measures of batches of three kinds, by one function over Arrow batches.

- A manifest of data files: a pandas or Spark DataFrame with a row for each Parquet file and its
  path in `file_path`, as Iceberg's metadata table `files` has it;
- rows in a Spark DataFrame, with the columns of the table;
- such rows in a pandas DataFrame.

Workers of Spark import this module, so it does without Great Expectations.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from expectations.expectation import Row
from expectations.mappings import as_mappings
from expectations.measures.messages import measure_messages
from expectations.measures.rows import Measures
from expectations.measures.transformed import MeasureTransformed
from nats_transform.kernel.messages import MESSAGES, TRANSFORMED
from nats_transform.mappings.subject import encode

FILE = "file_path"
"""The column that tells a manifest from rows."""

COLUMNS = {"messages": MESSAGES, "transformed_messages": TRANSFORMED}

ReadFiles = Callable[[str, Sequence[str]], Iterator[pa.RecordBatch]]
"""Gives the rows of some files of a table, whose name it gets first."""

Measure = Callable[[Iterable[pa.RecordBatch]], Any]


def measures_of(
    frame: Any,
    table: str,
    read: ReadFiles,
    *,
    mappings: Sequence[dict[str, Any]] = (),
    seed: int = 0,
    mapping_version: str | None = None,
) -> Any:
    """The measures of a batch.

    Args:
        frame: a manifest or rows, in pandas or Spark.
        table: `messages` or `transformed_messages`: what the rows are.
        read: reads the files of a manifest. It can be pickled.
        mappings: those that wrote the rows, as `expectations.mappings.as_plain` gives them.
        seed: the seed of the draws.
        mapping_version: the version that rows should name; None looks at no version.

    Raises:
        ValueError: the batch lacks a column.
    """
    columns = [FILE] if FILE in frame.columns else [*COLUMNS[table]]
    if lacking := [name for name in columns if name not in frame.columns]:
        raise ValueError(
            f"a batch for an expectation about {table} needs the column {FILE}, or all columns of "
            f"{table}; it lacks {', '.join(lacking)}"
        )
    measure: Measure = measure_messages
    if table == "transformed_messages":
        measure = MeasureTransformed.of(
            as_mappings(mappings),
            messages=_count(frame),
            seed=seed,
            version=mapping_version,
            archived=tuple(MESSAGES),
        )
    if isinstance(frame, pd.DataFrame):
        return measure(_batches(frame, table, read))
    work = partial(_pickled, measure, table, read)
    parts = frame.select(columns).mapInArrow(work, "measures binary").collect()
    # The bytes come from our own tasks.
    return sum((pickle.loads(part[0]) for part in parts), start=measure(()))  # noqa: S301


def aggregates(measures: Measures, files: Sequence[Row] = ()) -> pd.DataFrame:
    """The frame of aggregates, for expectations that Great Expectations has itself.

    One row for each stream and day: `rows`, and for each rule about single rows how many break it.
    With files it is their manifest, and each file repeats what its day has.
    """
    names = ["stream", "day", "rows", *measures.rules]
    counts = pd.DataFrame(measures.counts(), columns=names)
    manifest = pd.DataFrame([*files], columns=["stream", "day", FILE, "record_count"])
    return manifest.merge(counts, "outer", ["stream", "day"]) if len(manifest) else counts


def _count(frame: Any) -> int:
    is_pandas, is_manifest = isinstance(frame, pd.DataFrame), FILE in frame.columns
    if not is_manifest:
        return len(frame) if is_pandas else int(frame.count())
    if is_pandas:
        return int(frame["record_count"].sum())
    return int(frame.groupBy().sum("record_count").collect()[0][0] or 0)


def _pickled(
    measure: Measure, table: str, read: ReadFiles, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The measures of a part of a Spark DataFrame: something for `mapInArrow`."""

    def rows() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if FILE in batch.schema.names:
                yield from read(table, batch.column(FILE).to_pylist())
            else:
                yield _typed(dict(zip(batch.schema.names, batch.columns, strict=True)), table)

    yield pa.record_batch({"measures": pa.array([pickle.dumps(measure(rows()))], pa.binary())})


def _batches(frame: pd.DataFrame, table: str, read: ReadFiles) -> Iterator[pa.RecordBatch]:
    if FILE in frame.columns:
        yield from read(table, frame[FILE].dropna().tolist())
    else:
        kinds = COLUMNS[table]
        yield _typed({name: _column(frame[name], kind) for name, kind in kinds.items()}, table)


def _typed(columns: Mapping[str, pa.Array], table: str) -> pa.RecordBatch:
    """The rows with the columns of their table, in its order."""
    schema = pa.schema(COLUMNS[table])
    arrays = [
        column if column.type == field.type else column.cast(field.type, safe=False)
        for field in schema
        for column in [columns[field.name]]
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _column(values: pd.Series[Any], kind: pa.DataType) -> pa.Array:
    """A column of pandas for Arrow; text may be any bytes."""
    if pa.types.is_string(kind):
        return pa.array([encode(v) if isinstance(v, str) else None for v in values], pa.binary())
    if pa.types.is_list(kind):
        pairs = pa.list_(pa.struct([(field.name, pa.binary()) for field in kind.value_type]))
        return pa.array([_pairs(value) for value in values], pairs)
    return pa.array(values, kind, from_pandas=True, safe=False)


def _pairs(headers: Any) -> list[tuple[bytes, ...]] | None:
    if not isinstance(headers, list | tuple | np.ndarray):
        return None
    pairs = (pair.values() if isinstance(pair, Mapping) else pair for pair in headers)
    return [tuple(encode(text) for text in pair) for pair in pairs]
