"""The definitions of the tables: their names, columns and partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
from pyiceberg.schema import Schema, assign_fresh_schema_ids

from jobs.warehouse.raw import RAW
from nats_transform.kernel import messages


@dataclass(frozen=True)
class TableSpec:
    """A table of ours: its name and columns.

    Attributes:
        name: the name of the table in the namespace.
        schema: the columns that the table stores.
        rows: the columns of rows as jobs use them, see `jobs.warehouse.raw`.
        raw: the text columns of such rows that may hold any bytes.
        partitions: the columns that have only one value in each file.
        about: what each column of `schema` means.
        has_branches: whether another mapping makes other rows, which a branch keeps apart.
    """

    name: str
    schema: Schema
    rows: pa.Schema
    raw: tuple[str, ...]
    partitions: tuple[str, ...]
    about: Mapping[str, str] = field(compare=False)
    has_branches: bool


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
    fields: Mapping[str, pa.DataType],
    raw: Sequence[str] = (),
    about: Mapping[str, str] | None = None,
    partitions: tuple[str, ...] = ("stream", "day"),
    has_branches: bool = False,
) -> TableSpec:
    """The spec of a table for rows with these columns; all of them may be null.

    Args:
        raw: those of text that may hold any bytes.
        about: what columns mean that mean something else, or are not there, in other tables.
        partitions, has_branches: those of the table.
    """
    rows = pa.schema(fields)
    texts = {**_ABOUT, **(about or {})}
    stored: list[pa.Field] = []
    for column in rows:
        stored.append(column)
        if column.name in raw:
            exact = pa.field(column.name + RAW, pa.binary())
            texts[exact.name] = f"The bytes of `{column.name}`, only where they are not UTF-8."
            stored.append(exact)
    # Iceberg keeps the texts with the columns, so that every reader of a table sees them.
    documented = pa.schema([column.with_metadata({"doc": texts[column.name]}) for column in stored])
    schema = assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(documented))
    known = {column.name: texts[column.name] for column in stored}
    return TableSpec(name, schema, rows, tuple(raw), partitions, known, has_branches)


MESSAGES = table_spec("messages", messages.MESSAGES, raw=("subject", "cluster"))
TRANSFORMED = table_spec(
    "transformed_messages",
    messages.TRANSFORMED,
    raw=(*MESSAGES.raw, "mapped_subject", "mapping_source", "mapping_destination"),
    has_branches=True,
)
QUARANTINED = table_spec(
    "quarantined_messages",
    messages.TRANSFORMED | {"quarantined": pa.string()},
    raw=TRANSFORMED.raw,
    about={
        "quarantined": "The suite and the expectation that the row breaks, which kept it out of "
        "`transformed_messages`."
    },
    has_branches=True,
)
WEIGHT_AUDIT = table_spec(
    "weight_audit",
    {
        "stream": pa.string(),
        "day": pa.date32(),
        "kind": pa.string(),
        "mapping_version": pa.string(),
        "mapping_source": pa.string(),
        "cluster": pa.string(),
        "from_ts": pa.timestamp("us", "UTC"),
        "to_ts": pa.timestamp("us", "UTC"),
        "mapping_destination": pa.string(),
        "end": pa.string(),
        "weight": pa.float64(),
        "expected": pa.float64(),
        "messages": pa.int64(),
        "count": pa.int64(),
        "ambiguous": pa.int64(),
        "share": pa.float64(),
        "low": pa.float64(),
        "high": pa.float64(),
        "verdict": pa.string(),
        "messages_to_decide": pa.int64(),
        "method": pa.string(),
        "p_value": pa.float64(),
        "tolerance": pa.float64(),
        "confidence": pa.float64(),
        "comparisons": pa.int64(),
        "run_id": pa.string(),
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
