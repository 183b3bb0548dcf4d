"""What the tables are: their names, columns and partitions, for Iceberg and for Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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

from jobs.warehouse.raw import RAW, stored_schema
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
        about: what each column of `schema` means.
    """

    name: str
    schema: Schema
    spark_schema: T.StructType
    raw: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ("stream", "day")
    about: Mapping[str, str] = field(default_factory=dict, compare=False)

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


# What a column means in every table that has it, unless the table says something else.
_ABOUT = {
    "stream": "The name that the stream is archived under.",
    "seq": "The sequence of the message in its stream.",
    "ts": "When the message was stored, cut to microseconds (UTC).",
    "ts_ns": "When the message was stored, exactly: nanoseconds since 1970-01-01 UTC.",
    "day": "The day (UTC) on which the message was stored.",
    "subject": "The subject as published.",
    "cluster": "The cluster that the message was published in; null if it is not known.",
    "headers": "The headers in their order; empty if there are none.",
    "headers_raw": "The header block as it was stored, only where `headers` does not give it back "
    "byte for byte.",
    "data": "The payload.",
    "mapped_subject": "The subject after the mapping; null unless the fate is mapped or unmatched.",
    "fate": "What became of the message: mapped, unmatched, lost, filtered or invalid.",
    "reason": "Why a message is invalid; null for all others.",
    "mapping_source": "The source of the mapping that decided.",
    "mapping_destination": "The destination that decided.",
    "draw": "The number from 0 to 99 that was drawn; null where nothing was drawn.",
    "mapping_version": "The version of the mappings and the seed: a SHA-256 of what they do.",
    "run_id": "The run that wrote the row.",
}


def table_spec(
    name: str,
    fields: Mapping[str, T.DataType],
    raw: Sequence[str] = (),
    about: Mapping[str, str] | None = None,
) -> TableSpec:
    """The spec of a table for rows with these columns; all of them may be null.

    Args:
        name: the name of the table.
        fields: the columns of its rows.
        raw: those of text that may hold any bytes.
        about: what columns mean that mean something else, or are not there, in other tables.
    """
    ids = iter(range(1, 10_000))
    rows = T.StructType([T.StructField(column, kind) for column, kind in fields.items()])
    # Iceberg numbers a struct's columns before what is nested in them.
    numbered = [(next(ids), field) for field in stored_schema(rows, raw).fields]
    columns = [
        NestedField(number, field.name, _iceberg_type(field.dataType, ids), required=False)
        for number, field in numbered
    ]
    texts = {**_ABOUT, **(about or {})}
    for column in raw:
        texts[column + RAW] = f"The bytes of `{column}`, only where they are not UTF-8."
    known = {column.name: texts[column.name] for column in columns}
    return TableSpec(name, Schema(*columns), rows, tuple(raw), about=known)


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
WEIGHT_AUDIT = table_spec(
    "weight_audit",
    {
        "stream": T.StringType(),
        "day": T.DateType(),
        "kind": T.StringType(),
        "mapping_version": T.StringType(),
        "mapping_source": T.StringType(),
        "cluster": T.StringType(),
        "from_ts": T.TimestampType(),
        "to_ts": T.TimestampType(),
        "mapping_destination": T.StringType(),
        "end": T.StringType(),
        "weight": T.DoubleType(),
        "expected": T.DoubleType(),
        "messages": T.LongType(),
        "count": T.LongType(),
        "ambiguous": T.LongType(),
        "share": T.DoubleType(),
        "low": T.DoubleType(),
        "high": T.DoubleType(),
        "verdict": T.StringType(),
        "messages_to_decide": T.LongType(),
        "method": T.StringType(),
        "p_value": T.DoubleType(),
        "tolerance": T.DoubleType(),
        "confidence": T.DoubleType(),
        "comparisons": T.LongType(),
        "run_id": T.StringType(),
    },
    about={
        "day": "The day (UTC) of `from_ts`.",
        "kind": "`expected` (a rehearsal by replay) or `observed` (what the servers did).",
        "cluster": "The cluster; null stands for all that have no destinations of their own.",
        "from_ts": "When the hour or the day begins (UTC).",
        "to_ts": "When the hour or the day ends (UTC).",
        "mapping_destination": "The destination; null for what else becomes of messages.",
        "end": "What becomes of the messages: `destination`, `remainder`, `lost`, ...",
        "weight": "Percent that are configured.",
        "expected": "Percent that are expected of the messages counted.",
        "messages": "Messages of the mapping.",
        "count": "Messages of the destination.",
        "ambiguous": "Messages that may have gone there, and that nothing tells apart.",
        "share": "Percent that were measured.",
        "low": "Where the interval around the share begins, in percent.",
        "high": "Where the interval around the share ends, in percent.",
        "verdict": "`within`, `outside`, `undecided` or `nothing to audit`.",
        "messages_to_decide": "How many messages would decide what is undecided.",
        "method": "The test of all destinations together.",
        "p_value": "The result of that test.",
        "tolerance": "How many points a share may be off its weight.",
        "confidence": "The probability, 0 to 1, that all intervals are right together.",
        "comparisons": "How many intervals share the confidence.",
    },
)
