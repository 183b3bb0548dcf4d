"""Converts text columns between the form that jobs use and the form that tables store.

Jobs hold any bytes in their text columns. A table stores valid UTF-8 there, and the exact bytes in
a column beside it; see `jobs.warehouse.raw`. Nearly every batch is valid UTF-8 as a whole, and then
no value is looked at by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from jobs.jetstream.headers import format_headers, parse_headers
from jobs.warehouse.raw import RAW, readable

Columns = dict[str, pa.Array]


def restored_rows(batch: pa.RecordBatch, names: Iterable[str]) -> pa.RecordBatch:
    """Some columns of a batch that a table stores, as jobs use them."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    for name in [name for name in columns if name + RAW in columns and name != "headers"]:
        raw = columns.pop(name + RAW)
        if raw.null_count < len(raw):
            text = columns[name]
            if pa.types.is_dictionary(text.type):
                text = text.dictionary_decode()
            columns[name] = pc.coalesce(raw, text.view(pa.binary())).view(pa.string())
    if "headers_raw" in columns and not is_text(columns["headers_raw"]):
        _restore_headers(columns)
    return pa.RecordBatch.from_pydict({name: columns[name] for name in names})


def stored_rows(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of a table, of rows as jobs have them."""
    columns = dict(zip(rows.schema.names, rows.columns, strict=True))
    return pa.RecordBatch.from_arrays(stored(columns, schema.names), schema=schema)


def stored(rows: Columns, names: Sequence[str]) -> list[pa.Array]:
    """Converts columns that jobs use into those of the given names that a table stores."""
    columns = dict(rows)
    for name in names:
        if name.endswith(RAW) and name != "headers_raw":
            text = name.removesuffix(RAW)
            columns[text], columns[name] = _split(rows[text])
    headers = columns.get("headers")
    if headers is not None and not _are_text(headers):
        _store_headers(columns)
    return [columns[name] for name in names]


def is_text(values: pa.Array) -> bool:
    """Whether every value is UTF-8."""
    if values.null_count == len(values):
        return True
    try:
        values.view(pa.string()).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _split(values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The readable text of each value, and its bytes, which are null if the value is UTF-8."""
    if pa.types.is_dictionary(values.type):
        text, raw = _split(values.dictionary)
        if raw.null_count == len(raw):
            return values, pa.nulls(len(values), pa.binary())
        return pa.DictionaryArray.from_arrays(values.indices, text), raw.take(values.indices)
    if is_text(values):
        return values, pa.nulls(len(values), pa.binary())
    given = values.view(pa.binary()).to_pylist()
    text = [None if value is None else readable(value) for value in given]
    raw = [None if _is_utf8(value) else value for value in given]
    return pa.array(text, pa.string()), pa.array(raw, pa.binary())


def _are_text(headers: pa.Array) -> bool:
    if headers.null_count == len(headers):
        return True
    pairs = headers.flatten()
    return is_text(pairs.field("name")) and is_text(pairs.field("value"))


def _store_headers(columns: Columns) -> None:
    blocks: list[bytes | None] = columns["headers_raw"].to_pylist()
    shown: list[Any] = []
    for row, pairs in enumerate(_pairs(columns["headers"])):
        if pairs is None or all(_is_utf8(value) for pair in pairs for value in pair):
            shown.append(pairs)
            continue
        if blocks[row] is None:
            blocks[row] = format_headers((n, v) for n, v in pairs if None not in (n, v))
        shown.append([tuple(v if v is None else readable(v).encode() for v in p) for p in pairs])
    columns["headers"] = _headers(shown, columns["headers"].type)
    columns["headers_raw"] = pa.array(blocks, pa.binary())


def _restore_headers(columns: Columns) -> None:
    blocks: list[bytes | None] = columns["headers_raw"].to_pylist()
    rows = _pairs(columns["headers"])
    for row, block in enumerate(blocks):
        if block is not None and not _is_utf8(block):
            pairs = parse_headers(block)
            rows[row] = pairs
            if format_headers(pairs) == block:
                blocks[row] = None
    columns["headers"] = _headers(rows, columns["headers"].type)
    columns["headers_raw"] = pa.array(blocks, pa.binary())


def _pairs(headers: pa.Array) -> list[Any]:
    """The headers of each row as pairs of bytes; None where a row has no list."""
    kind = pa.list_(pa.struct([("name", pa.binary()), ("value", pa.binary())]))
    rows = headers.cast(kind).to_pylist()
    return [
        None if row is None else [(pair["name"], pair["value"]) for pair in row] for row in rows
    ]


def _headers(rows: list[Any], kind: pa.DataType) -> pa.Array:
    """A column of headers, made of pairs of bytes. The bytes need not be UTF-8."""
    flat = [pair for row in rows if row is not None for pair in row]
    pairs = pa.StructArray.from_arrays(
        [
            pa.array([pair[place] for pair in flat], pa.binary()).view(pa.string())
            for place in (0, 1)
        ],
        fields=[kind.value_type.field(place) for place in (0, 1)],
    )
    sizes = [0 if row is None else len(row) for row in rows]
    offsets = pa.array([0, *accumulate(sizes)], pa.int32())
    missing = pa.array([row is None for row in rows], pa.bool_())
    return pa.ListArray.from_arrays(offsets, pairs, type=kind, mask=missing)


def _is_utf8(value: bytes | None) -> bool:
    if value is not None:
        try:
            value.decode()
        except UnicodeDecodeError:
            return False
    return True
