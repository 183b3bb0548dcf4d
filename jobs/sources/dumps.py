"""Dumps of messages as DataFrames with the columns of the table: Parquet and JSON lines.

A dump's columns are named as the table's unless `DumpColumns` says otherwise. `subject` must be
there, and in JSON lines a time: `ts` or `time` (a timestamp, ISO 8601, or an epoch in s, ms, us or
ns), or `ts_ns` (nanoseconds). `seq` (else messages are numbered in file order), `cluster`,
`headers` and `data` may be.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Literal

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from jobs.errors import SPARK_ERRORS, ArchiveError, job_error
from jobs.warehouse.schema import HEADERS
from jobs.warehouse.tables import MESSAGES

_SECOND_NS = 1_000_000_000
_ISO_TIME = re.compile(
    r"(?P<whole>\d{4}-\d\d-\d\d(?:[Tt ]\d\d:\d\d)?)"
    r"(?:(?<=:\d\d):(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9}))?)?"
    r"(?P<zone>[Zz]|[+-]\d\d:?\d\d)?",
    re.ASCII,
)
# Epochs below these are in s, ms and us: each holds for the years 1973 to 5138 of its unit.
_EPOCH_UNITS = ((10**11, _SECOND_NS), (10**14, 1_000_000), (10**17, 1_000))


class DumpColumns(BaseModel):
    """Which columns of a dump hold what; None is the table's own name, if the dump has it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    subject: str | None = None
    seq: str | None = None
    time: str | None = None
    cluster: str | None = None
    headers: str | None = None
    data: str | None = None
    data_encoding: Literal["text", "base64"] = "text"
    first_seq: int = Field(default=1, ge=1)

    def find(self, have: list[str], where: str) -> dict[str, str]:
        """The dump's column for each of subject, seq, ts, ts_ns, cluster, headers and data.

        Raises:
            ArchiveError: a declared column, or the subject, is not among those the dump has.
        """
        declared = {
            "subject": self.subject,
            "seq": self.seq,
            "ts": self.time,
            "cluster": self.cluster,
            "headers": self.headers,
            "data": self.data,
        }
        found = {}
        for column, name in declared.items():
            if name is not None and name not in have:
                raise ArchiveError(f"{where} has no column {name}; it has {', '.join(have)}")
            if name is not None or column in have:
                found[column] = name or column
        if "subject" not in found:
            raise ArchiveError(
                f"{where} has no column subject; name it with --subject-column: {', '.join(have)}"
            )
        if "ts_ns" in have and self.time is None:
            found["ts_ns"] = "ts_ns"
        if not found.keys() & {"ts", "ts_ns"} and "time" in have:
            found["ts"] = "time"  # as JetStream calls it
        if "headers_raw" in have and self.headers is None:
            found["headers_raw"] = "headers_raw"
        return found


def parquet_messages(
    spark: SparkSession, path: str, stream: str, columns: DumpColumns
) -> DataFrame:
    """The messages of Parquet files, as rows of the table `messages`.

    Args:
        spark: the session.
        path: a file, a folder or a pattern.
        stream: what column `stream` says.
        columns: which column holds what.

    Raises:
        ArchiveError: no such file, a column is missing or of a type that cannot be taken.
    """
    # Nanosecond timestamps, which Spark has no type for, come as numbers.
    spark.conf.set("spark.sql.legacy.parquet.nanosAsLong", "true")
    dump = _read(lambda: spark.read.parquet(path), path)
    found = columns.find(dump.columns, path)
    kinds = {column: dump.schema[name].dataType for column, name in found.items()}

    def take(column: str) -> Column:
        return dump[found[column]]

    if "seq" in found:
        if not isinstance(kinds["seq"], T.IntegralType):
            raise _wrong_type(path, found["seq"], kinds["seq"], "an integer")
        seq = take("seq").cast("long")
    else:
        dump = _numbered(dump, columns.first_seq)
        seq = F.col("_seq")
    ts_ns = F.lit(0).cast("long")
    if "ts_ns" in found and isinstance(kinds["ts_ns"], T.IntegralType):
        ts_ns = take("ts_ns").cast("long")
    elif "ts" in found:
        ts_ns = _nanoseconds(take("ts"), kinds["ts"], path, found["ts"])
    subject = take("subject")
    if not isinstance(kinds["subject"], T.StringType | T.BinaryType):
        raise _wrong_type(path, found["subject"], kinds["subject"], "text or bytes")
    data = F.lit(b"")
    if "data" in found:
        data = _payload(take("data"), kinds["data"], columns, path, found["data"])
    headers = F.array().cast(HEADERS)
    if "headers" in found:
        headers = _headers(take("headers"), kinds["headers"], path, found["headers"])
    raw = F.lit(None).cast("binary")
    if "headers_raw" in found and isinstance(kinds["headers_raw"], T.BinaryType):
        raw = take("headers_raw")
    cluster = take("cluster").cast("string") if "cluster" in found else F.lit(None).cast("string")
    rows = dump.select(
        F.lit(stream).alias("stream"),
        seq.alias("seq"),
        ts_ns.alias("ts_ns"),
        subject.cast("string").alias("subject"),
        cluster.alias("cluster"),
        headers.alias("headers"),
        raw.alias("headers_raw"),
        data.alias("data"),
    )
    return _with_time(rows)


def json_messages(spark: SparkSession, path: str, stream: str, columns: DumpColumns) -> DataFrame:
    """The messages of files with one JSON object a line, as rows of the table `messages`.

    Lines are read by Python's own JSON: it keeps the order of headers, and bytes that are not
    UTF-8 as surrogate escapes (`"\\udcff"`). Empty lines are skipped.

    Raises:
        ArchiveError: no such file. A line that is no message fails the action that reads it.
    """
    lines = _read(lambda: spark.read.text(path), path)
    lines = _numbered(lines.where(F.trim("value") != ""), columns.first_seq)
    placed = lines.select("value", "_seq", "_file_path")

    def parse(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = [
                parse_line(line, seq, file, columns)
                for line, seq, file in zip(*(c.to_pylist() for c in batch.columns), strict=True)
            ]
            columns_of = zip(*rows, strict=True) if rows else [()] * len(_LINE_ARROW)
            arrays = [
                pa.array(values, kind)
                for values, kind in zip(columns_of, _LINE_ARROW.types, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=_LINE_ARROW)

    parsed = placed.mapInArrow(parse, _LINE_SCHEMA)  # type: ignore[arg-type]
    headers = F.transform(
        "headers",
        lambda h: F.struct(
            h["name"].cast("string").alias("name"), h["value"].cast("string").alias("value")
        ),
    )
    rows = parsed.select(
        F.lit(stream).alias("stream"),
        "seq",
        "ts_ns",
        F.col("subject").cast("string").alias("subject"),
        F.col("cluster").cast("string").alias("cluster"),
        headers.alias("headers"),
        F.lit(None).cast("binary").alias("headers_raw"),
        "data",
    )
    return _with_time(rows)


_BYTES_PAIR = T.StructType(
    [T.StructField("name", T.BinaryType()), T.StructField("value", T.BinaryType())]
)
_LINE_SCHEMA = T.StructType(
    [
        T.StructField("seq", T.LongType()),
        T.StructField("ts_ns", T.LongType()),
        T.StructField("subject", T.BinaryType()),
        T.StructField("cluster", T.BinaryType()),
        T.StructField("headers", T.ArrayType(_BYTES_PAIR)),
        T.StructField("data", T.BinaryType()),
    ]
)
_LINE_ARROW = pa.schema(
    [
        ("seq", pa.int64()),
        ("ts_ns", pa.int64()),
        ("subject", pa.binary()),
        ("cluster", pa.binary()),
        ("headers", pa.list_(pa.struct([("name", pa.binary()), ("value", pa.binary())]))),
        ("data", pa.binary()),
    ]
)


class _Object(list[tuple[str, Any]]):
    """A JSON object as the pairs it was written with: a list, but not a JSON array."""


def parse_line(line: str, seq: int, file: str, columns: DumpColumns) -> tuple[Any, ...]:
    """One line as (seq, ts_ns, subject, cluster, headers, data).

    Raises:
        ArchiveError: it is not a message; the message names the file and the start of the line.
    """
    where = f"{file}: line {line[:60]!r}"
    try:
        pairs = json.loads(line, object_pairs_hook=_Object)
    except RecursionError as error:
        raise ArchiveError(f"{where} is nested too deeply") from error
    except ValueError as error:
        raise ArchiveError(f"{where} is not JSON: {error}") from error
    if not isinstance(pairs, _Object):
        raise ArchiveError(f"{where} is not a JSON object")
    row = dict(pairs)
    found = columns.find(list(row), where)
    try:
        subject = row[found["subject"]]
        if not isinstance(subject, str):
            raise ValueError(f"column {found['subject']} is not text: {subject!r}")
        number = row[found["seq"]] if "seq" in found else seq
        if not isinstance(number, int) or isinstance(number, bool):
            raise ValueError(f"column {found['seq']} is not an integer: {number!r}")
        cluster = row[found["cluster"]] if "cluster" in found else None
        if not -(2**63) <= number < 2**63:
            raise ValueError(f"sequence {number} does not fit into 64 bits")
        if "ts_ns" in found:
            time = _exact_ns(row[found["ts_ns"]])
        elif "ts" in found:
            time = epoch_ns(row[found["ts"]])
        else:
            raise ValueError(
                "it has no time: no column ts, ts_ns or time; name it with --time-column"
            )
        return (
            number,
            time,
            _bytes(subject),
            None if cluster is None else _bytes(str(cluster)),
            _json_headers(row[found["headers"]]) if "headers" in found else [],
            _json_payload(row[found["data"]], columns) if "data" in found else b"",
        )
    except (ValueError, TypeError, OverflowError) as error:
        raise ArchiveError(f"{where}: {error}") from error


def epoch_ns(value: Any) -> int:
    """Nanoseconds since 1970 of an ISO 8601 text (UTC if it names no zone) or an epoch.

    A text needs a date. Its fraction may follow a point or a comma and have nine digits.

    Raises:
        ValueError: it is neither, or not a time that 64 bits of nanoseconds can hold.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"not a time: {value!r}")
    if isinstance(value, str):
        found = _iso_ns(value)
    elif not math.isfinite(value):
        raise ValueError(f"not a time: {value!r}")
    else:
        unit = next((unit for below, unit in _EPOCH_UNITS if abs(value) < below), 1)
        found = value * unit if isinstance(value, int) else round(value * unit)
    return _in_range(found, value)


def _iso_ns(text: str) -> int:
    parts = _ISO_TIME.fullmatch(text.strip())
    if parts is None:
        raise ValueError(f"not a time: {text!r}; write one such as 2026-01-31T12:30:00.123456789Z")
    if parts["second"] == "60":
        raise ValueError(f"{text!r} is a leap second, which a count since 1970 has no place for")
    try:
        clock = parts["whole"] + (f":{parts['second']}" if parts["second"] else "")
        moment = datetime.fromisoformat(clock + (parts["zone"] or "").upper())
    except ValueError as error:
        raise ValueError(f"not a time: {text!r}: {error}") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    whole = moment - datetime(1970, 1, 1, tzinfo=UTC)
    seconds = whole.days * 86_400 + whole.seconds
    return seconds * _SECOND_NS + int((parts["fraction"] or "").ljust(9, "0"))


def _exact_ns(value: Any) -> int:
    """The value of a column that holds nanoseconds, whatever their size."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"column ts_ns is not a whole number of nanoseconds: {value!r}")
    return _in_range(value, value)


def _in_range(ns: int, value: Any) -> int:
    if not -(2**63) <= ns < 2**63:
        raise ValueError(f"the time {value!r} is not between the years 1678 and 2262")
    return ns


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _json_headers(value: Any) -> list[dict[str, bytes]]:
    if value is None:
        return []
    if not isinstance(value, _Object):
        raise ValueError("headers are not a JSON object")
    found = []
    for name, given in value:
        one_or_more = given if isinstance(given, list) else [given]
        if isinstance(given, _Object) or not all(isinstance(v, str) for v in one_or_more):
            raise ValueError(f"header {name} is neither text nor a list of texts")
        if any(c in text for text in (name, *one_or_more) for c in "\r\n"):
            raise ValueError(f"header {name!r} has a line break, which no NATS header can have")
        found += [{"name": _bytes(name), "value": _bytes(v)} for v in one_or_more]
    return found


def _json_payload(value: Any, columns: DumpColumns) -> bytes:
    if value is None:
        return b""
    if not isinstance(value, str):
        raise ValueError("data is not text; write it as JSON text or base64")
    if columns.data_encoding == "text":
        return _bytes(value)
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error as error:
        raise ValueError(f"data is not base64: {error}") from error


def _read(read: Any, path: str) -> DataFrame:
    try:
        frame: DataFrame = read()
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            raise ArchiveError(f"no file or folder {path}") from error
        raise ArchiveError(f"{path} cannot be read: {job_error(error)}") from error
    except SPARK_ERRORS as error:
        raise ArchiveError(f"{path} cannot be read: {job_error(error)}") from error
    return frame


def _numbered(rows: DataFrame, first: int) -> DataFrame:
    """The rows with column `_seq`: first, first + 1, ... in order of file name and place in it.

    Spark cuts files into blocks and hands them out in any order, but each block to one task, in
    order. One pass counts the rows of each block; where each block starts follows from that.
    """
    placed = rows.withColumns(
        {
            "_file_path": F.col("_metadata.file_path"),
            "_block": F.col("_metadata.file_block_start"),
            "_row": F.monotonically_increasing_id(),
        }
    )
    blocks = (
        placed.groupBy("_file_path", "_block")
        .agg(F.count(F.lit(1)).alias("_rows"), F.min("_row").alias("_first_row"))
        .collect()
    )
    blocks.sort(key=lambda block: (block["_file_path"], block["_block"]))
    starts, following = [], first
    for block in blocks:
        starts.append((block["_file_path"], block["_block"], following - block["_first_row"]))
        following += block["_rows"]
    schema = "_file_path string, _block long, _offset long"
    offsets = rows.sparkSession.createDataFrame(starts, schema)
    joined = placed.join(F.broadcast(offsets), ["_file_path", "_block"])
    return joined.withColumn("_seq", F.col("_row") + F.col("_offset"))


def _with_time(rows: DataFrame) -> DataFrame:
    """The rows with `ts` and `day` from `ts_ns`, and the table's columns only."""
    # pmod, because div rounds towards zero and so would move times before 1970.
    ts = F.expr("timestamp_micros((ts_ns - pmod(ts_ns, 1000)) div 1000)")
    timed = rows.withColumn("ts", ts).withColumn("day", F.to_date("ts"))
    return timed.select(*MESSAGES.spark_schema.names)


def _nanoseconds(column: Column, kind: T.DataType, path: str, name: str) -> Column:
    match kind:
        case T.TimestampType():
            return F.unix_micros(column) * 1000
        case T.TimestampNTZType():  # UTC, as the session is
            return F.unix_micros(column.cast("timestamp")) * 1000
        case T.DateType():
            return F.unix_micros(column.cast("timestamp")) * 1000
        case T.LongType() | T.IntegerType():
            value = column.cast("long")
            scaled = value
            for below, unit in reversed(_EPOCH_UNITS):
                small = F.abs(value) < below
                # The product is formed only where it fits.
                scaled = F.when(small, F.when(small, value) * unit).otherwise(scaled)
            return scaled
        case T.StringType():
            return _iso_nanoseconds(column)
        case _:
            raise _wrong_type(path, name, kind, "a timestamp, ISO 8601 text or an epoch")


def _iso_nanoseconds(column: Column) -> Column:
    """Nanoseconds of ISO 8601 text; null where it is not, which the ingest then refuses."""
    micros = F.unix_micros(F.try_to_timestamp(column))
    beyond = F.rpad(F.regexp_extract(column, r"\.\d{6}(\d{1,3})", 1), 3, "0")
    return micros * 1000 + beyond.cast("long")


def _payload(
    column: Column, kind: T.DataType, columns: DumpColumns, path: str, name: str
) -> Column:
    empty = F.lit(b"")
    match kind:
        case T.BinaryType():
            return F.coalesce(column, empty)
        case T.StringType() if columns.data_encoding == "base64":
            return F.coalesce(F.to_binary(column, F.lit("base64")), empty)
        case T.StringType():
            return F.coalesce(column.cast("binary"), empty)
        case _:
            raise _wrong_type(path, name, kind, "bytes or text")


def _headers(column: Column, kind: T.DataType, path: str, name: str) -> Column:
    none = F.array().cast(HEADERS)
    text = T.StringType
    match kind:
        case T.ArrayType(elementType=T.StructType(names=["name", "value"])):
            found = column.cast(HEADERS)
        case T.MapType(keyType=T.StringType(), valueType=T.StringType()):
            found = F.transform(
                F.map_entries(column),
                lambda e: F.struct(e["key"].alias("name"), e["value"].alias("value")),
            )
        case T.MapType(keyType=T.StringType(), valueType=T.ArrayType(elementType=T.StringType())):
            found = F.flatten(
                F.transform(
                    F.map_entries(column),
                    lambda e: F.transform(
                        e["value"],
                        lambda v: F.struct(e["key"].alias("name"), v.alias("value")),
                    ),
                )
            )
        case T.StructType(fields=fields) if all(isinstance(f.dataType, text) for f in fields):
            pairs = [
                F.struct(F.lit(f.name).alias("name"), column[f.name].alias("value")) for f in fields
            ]
            found = F.filter(F.array(*pairs), lambda p: p["value"].isNotNull())
        case _:
            raise _wrong_type(path, name, kind, "a map or a list of (name, value)")
    return F.coalesce(found.cast(HEADERS), none)


def _wrong_type(path: str, name: str, kind: T.DataType, wanted: str) -> ArchiveError:
    return ArchiveError(f"{path}: column {name} is {kind.simpleString()}, not {wanted}")
