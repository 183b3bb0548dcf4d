"""Text that need not be UTF-8: rows as jobs have them, and as the tables store them.

NATS lets subjects, headers and so cluster names be any bytes, but Parquet calls a column text only
if it is valid UTF-8, and engines such as DuckDB refuse a whole file otherwise. So a job has rows
whose text columns hold the bytes as they are, and a table stores, for each text column that can
hold such bytes,

- the column itself, always valid UTF-8: `readable` of the bytes;
- `<column>_raw` (binary): the bytes; null where the text is the bytes.

Headers have no such column: `headers_raw` has the block as it came wherever the pairs of `headers`
do not reproduce it, which is so where some of their bytes are not UTF-8.

`stored` and `restored` are the only two ways between both; every write and every read of a table
takes them. Digests are of rows as jobs have them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from jobs.warehouse.schema import HEADERS

RAW = "_raw"
_LATIN_1 = "ISO-8859-1"
_VERSION, _CRLF = "NATS/1.0", "\r\n"  # of header blocks, see `jobs.jetstream.headers`
_UNREADABLE = re.compile(rb"[\\\x80-\xff]")


def readable(raw: bytes) -> str:
    r"""The text of some bytes; of bytes that are not UTF-8, with those from 0x80 on as `\xFF`.

    A backslash in the latter is doubled, so that two values that are not UTF-8 never look alike.
    """
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return _UNREADABLE.sub(_escape, raw).decode("ascii")


def _escape(found: re.Match[bytes]) -> bytes:
    return rb"\\" if found[0] == b"\\" else b"\\x%02X" % found[0][0]


def stored_schema(rows: T.StructType, raw: Sequence[str]) -> T.StructType:
    """The columns that a table stores for such rows; those named in `raw` may be any bytes."""
    found = T.StructType()
    for field in rows.fields:
        found = found.add(field.name, field.dataType)
        if field.name in raw:
            found = found.add(field.name + RAW, T.BinaryType())
    return found


def stored(rows: DataFrame, schema: T.StructType, raw: Sequence[str]) -> list[Column]:
    """The columns of `stored_schema`, of rows with the columns of `schema`."""
    found = []
    for field in schema.fields:
        name, column = field.name, rows[field.name].cast(field.dataType)
        if name in raw:
            bytes_only = F.when(~F.is_valid_utf8(column), column.cast("binary"))
            found += [_text(column).alias(name), bytes_only.alias(name + RAW)]
            continue
        if name == "headers":
            column = F.when(_are_text(column), column).otherwise(
                _pairs(column, lambda header: _text(header)).cast(HEADERS)
            )
        elif name == "headers_raw":
            headers = rows["headers"].cast(HEADERS)
            column = F.when(
                column.isNull() & ~_are_text(headers),
                F.encode(_block(_pairs(headers, lambda h: _latin_1(h.cast("binary")))), _LATIN_1),
            ).otherwise(column)
        found.append(column.alias(name))
    return found


def restored(rows: DataFrame, schema: T.StructType, raw: Sequence[str]) -> DataFrame:
    """The rows with the columns of `schema`, of rows with those of `stored_schema`."""
    found = []
    for field in schema.fields:
        name, column = field.name, rows[field.name]
        if name in raw:
            column = F.coalesce(rows[name + RAW].cast("string"), column)
        elif name in ("headers", "headers_raw"):
            block = rows["headers_raw"]
            is_needed = F.coalesce(~F.is_valid_utf8(block.cast("string")), F.lit(False))
            pairs = _parsed(_latin_1(block))
            if name == "headers":
                bytes_of_pairs = _pairs(pairs, lambda h: F.encode(h, _LATIN_1).cast("string"))
                column = F.when(is_needed, bytes_of_pairs.cast(HEADERS)).otherwise(column)
            else:
                is_usual = _block(pairs) == _latin_1(block)
                column = F.when(~(is_needed & is_usual), column)
        found.append(column.alias(name))
    return rows.select(*found)


def restored_columns(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    """The columns of a stored batch with their bytes, except for those of headers.

    `jobs.files.text` restores headers as well.
    """
    found = dict(zip(batch.schema.names, batch.columns, strict=True))
    for name in [name for name in found if name + RAW in found and name != "headers"]:
        raw = found.pop(name + RAW)
        if raw.null_count < len(raw):
            text = found[name]
            if pa.types.is_dictionary(text.type):
                text = text.dictionary_decode()
            found[name] = pc.coalesce(raw, text.view(pa.binary())).view(pa.string())
    return found


def _text(column: Column) -> Column:
    """The same as `readable`, in built-in functions of Spark."""
    text = F.replace(_latin_1(column.cast("binary")), F.lit("\\"), F.lit("\\\\"))
    # Of Latin-1 text, 0x80 to 0xBF become %C2%80 to %C2%BF, and 0xC0 to 0xFF %C3%80 to %C3%BF.
    text = F.regexp_replace(F.url_encode(text), "%C2%([89AB].)", r"\\x$1")
    for given, wanted in zip("89AB", "CDEF", strict=True):
        text = F.regexp_replace(text, f"%C3%{given}(.)", rf"\\x{wanted}$1")
    return F.when(F.is_valid_utf8(column), column).otherwise(F.url_decode(text))


def _latin_1(data: Column) -> Column:
    """Bytes as text, one character a byte."""
    return F.decode(data, _LATIN_1)


def _are_text(headers: Column) -> Column:
    joined = F.concat_ws("\n", headers["name"], headers["value"])
    return F.coalesce(F.is_valid_utf8(joined), F.lit(True))


def _pairs(headers: Column, change: Callable[[Column], Column]) -> Column:
    return F.transform(
        headers,
        lambda h: F.struct(change(h["name"]).alias("name"), change(h["value"]).alias("value")),
    )


def _block(pairs: Column) -> Column:
    """`format_headers`, where pairs and block are Latin-1 text."""
    lines = F.transform(pairs, lambda h: F.concat(h["name"], F.lit(": "), h["value"]))
    return F.concat(F.concat_ws(_CRLF, F.lit(_VERSION), lines), F.lit(2 * _CRLF))


def _parsed(block: Column) -> Column:
    """`parse_headers`, where block and pairs are Latin-1 text."""
    lines = F.split(block, _CRLF, -1)
    lines = F.slice(lines, 2, F.size(lines))

    def pair(line: Column) -> Column:
        name = F.substring_index(line, ":", 1)
        value = F.regexp_replace(F.substring(line, F.length(name) + 2, F.length(line)), "^ +", "")
        return F.struct(name.alias("name"), value.alias("value"))

    return F.transform(F.filter(lines, lambda line: F.contains(line, F.lit(":"))), pair)
