"""What a commit must know about the files that tasks wrote. It opens none of them again."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from jobs.files.write import Written
from jobs.warehouse.staging import Staged


def staged(table: Table, folder: str, written: Iterable[Written]) -> Staged:
    """Files that tasks wrote into a folder, for a commit.

    Raises:
        ValueError: a file has rows of more than one partition.
    """
    written = list(written)
    digests = {whole.path.rpartition("/")[2]: whole.digest for whole in written}
    return Staged(folder, tuple(data_file(table, whole) for whole in written), digests)


def data_file(table: Table, written: Written) -> DataFile:
    """The entry of a file in the table's metadata, with bounds and counts from the file's footer.

    Raises:
        ValueError: the file has rows of more than one partition.
    """
    schema = table.schema()
    statistics = data_file_statistics_from_parquet_metadata(
        parquet_metadata=pq.read_metadata(pa.BufferReader(written.footer)),
        stats_columns=compute_statistics_plan(schema, table.properties),
        parquet_column_mapping=parquet_path_to_id_mapping(schema),
    )
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=written.path,
        file_format=FileFormat.PARQUET,
        partition=statistics.partition(table.spec(), schema),
        file_size_in_bytes=written.size,
        sort_order_id=None,
        spec_id=table.spec().spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )


def arrow_schema(schema: Schema, words: frozenset[str] = frozenset()) -> pa.Schema:
    """The columns of a table for Arrow, with their Iceberg numbers.

    Args:
        words: text columns with few different values, which are held as dictionaries.
    """
    fields = []
    for field in schema_to_pyarrow(schema):
        kind = _narrow(field.type)
        if field.name in words:
            kind = pa.dictionary(pa.int32(), kind)
        fields.append(field.with_type(kind))
    return pa.schema(fields)


def _narrow(kind: pa.DataType) -> pa.DataType:
    """The type with offsets of 32 bits, which are enough because no batch comes near 2 GB."""
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(kind.value_field.with_type(_narrow(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_narrow(field.type)) for field in kind])
    return kind
