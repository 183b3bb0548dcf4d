"""What the tables are: their names, columns and partitions, for Iceberg and for Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DateType,
    DoubleType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)
from pyspark.sql import types as T

from jobs.warehouse.raw import stored_schema
from jobs.warehouse.schema import MESSAGE_COLUMNS
from nats_transform.spark import OUTPUT


@dataclass(frozen=True)
class TableSpec:
    """A table of ours: its name and columns, for Iceberg and for Spark.

    Attributes:
        name: the name of the table in the namespace.
        schema: the columns that the table stores.
        spark_schema: the columns of rows as jobs use them, see `jobs.warehouse.raw`.
        raw: the text columns of such rows that may hold any bytes.
        partitions: the columns that have only one value in each file.
    """

    name: str
    schema: Schema
    spark_schema: T.StructType
    raw: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ("stream", "day")

    @property
    def stored_schema(self) -> T.StructType:
        """The columns that the table stores, for Spark."""
        return stored_schema(self.spark_schema, self.raw)


_SPARK_TO_ICEBERG: dict[type[T.DataType], Any] = {
    T.StringType: StringType,
    T.LongType: LongType,
    T.DoubleType: DoubleType,
    T.IntegerType: IntegerType,
    T.TimestampType: TimestamptzType,
    T.DateType: DateType,
    T.BinaryType: BinaryType,
}


def table_spec(name: str, fields: Mapping[str, T.DataType], raw: Sequence[str] = ()) -> TableSpec:
    """The spec of a table for rows with these columns; all of them may be null."""
    ids = iter(range(1, 10_000))
    rows = T.StructType([T.StructField(column, kind) for column, kind in fields.items()])
    # Iceberg numbers a struct's columns before what is nested in them.
    numbered = [(next(ids), field) for field in stored_schema(rows, raw).fields]
    columns = [
        NestedField(number, field.name, _iceberg_type(field.dataType, ids), required=False)
        for number, field in numbered
    ]
    return TableSpec(name, Schema(*columns), rows, tuple(raw))


def _iceberg_type(kind: T.DataType, ids: Iterator[int]) -> Any:
    match kind:
        case T.ArrayType():
            number = next(ids)
            return ListType(number, _iceberg_type(kind.elementType, ids), element_required=False)
        case T.StructType():
            numbered = [(next(ids), field) for field in kind.fields]
            return StructType(
                *(
                    NestedField(number, field.name, _iceberg_type(field.dataType, ids))
                    for number, field in numbered
                )
            )
        case _:
            return _SPARK_TO_ICEBERG[type(kind)]()


MESSAGES = table_spec("messages", MESSAGE_COLUMNS, raw=("subject", "cluster"))
TRANSFORMED = table_spec(
    "transformed_messages",
    MESSAGE_COLUMNS
    | {field.name: field.dataType for field in OUTPUT.fields}
    | {"mapping_version": T.StringType()},
    raw=(*MESSAGES.raw, "mapped_subject", "mapping_source", "mapping_destination"),
)
