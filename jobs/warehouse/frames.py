"""Rows of tables as DataFrames of Spark: what `jobs.files.text` does in Arrow.

Apart from the rest of the package, which needs no Spark: importing it takes longer than many a job.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from jobs.warehouse.raw import RAW
from jobs.warehouse.rows import HEADERS as ARROW_HEADERS

HEADERS = from_arrow_schema(pa.schema([("headers", ARROW_HEADERS)]))["headers"].dataType
_LATIN_1 = "ISO-8859-1"
_VERSION, _CRLF = "NATS/1.0", "\r\n"  # of header blocks, see `jobs.jetstream.headers`


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
