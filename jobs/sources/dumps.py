"""Dumps of messages as DataFrames with the columns of the table: Parquet and JSON lines.

A dump's columns are named as the table's unless `DumpColumns` says otherwise. `subject` must be
there, and a time: `ts` or `time` (a timestamp, ISO 8601, or an epoch in s, ms, us or ns), or
`ts_ns` (nanoseconds). `seq` (else messages are numbered in file order), `cluster`, `headers` and
`data` may be.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeVar

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from jobs.errors import SPARK_ERRORS, ArchiveError, WarehouseError, job_error
from jobs.sources.files import DumpFiles, is_remote, shown
from jobs.sources.times import EPOCH_UNITS, epoch_ns, exact_ns
from jobs.warehouse.schema import HEADERS
from jobs.warehouse.specs import MESSAGES

_NO_TIME = "no column ts, ts_ns or time; name it with --time-column"
_MOST = 2**63 - 1

R = TypeVar("R")


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
    spark: SparkSession, files: DumpFiles, stream: str, columns: DumpColumns
) -> DataFrame:
    """The messages of Parquet files, as rows of the table `messages`.

    Args:
        spark: the session.
        files: the files with the messages.
        stream: the value of the column `stream`.
        columns: which column holds what.

    Raises:
        ArchiveError: a file is no Parquet, a column is missing or of a type that cannot be taken.
    """
    path = shown(files.path)
    # Nanosecond timestamps, which Spark has no type for, come as numbers.
    spark.conf.set("spark.sql.legacy.parquet.nanosAsLong", "true")
    # A column counts if any file has it.
    reader = spark.read.option("mergeSchema", "true")
    if files.base:
        reader = reader.option("basePath", files.base)
    dump = _read(lambda: reader.parquet(*files.literal), path)
    found = columns.find(dump.columns, path)
    kinds = {column: dump.schema[name].dataType for column, name in found.items()}

    def take(column: str) -> Column:
        return dump[found[column]]

    if "seq" in found:
        if not isinstance(kinds["seq"], T.IntegralType):
            raise _wrong_type(path, found["seq"], kinds["seq"], "an integer")
        seq = take("seq").cast("long")
    else:
        dump = _numbered(dump, columns.first_seq, path)
        seq = F.col("_seq")
    if "ts_ns" in found:
        if not isinstance(kinds["ts_ns"], T.IntegralType):
            raise _wrong_type(path, found["ts_ns"], kinds["ts_ns"], "an integer")
        ts_ns = take("ts_ns").cast("long")
    elif "ts" in found:
        if _read(lambda: _counts_nanoseconds(spark, files, found["ts"]), path):
            ts_ns = take("ts").cast("long")
        else:
            ts_ns = _nanoseconds(take("ts"), kinds["ts"], path, found["ts"])
    else:
        raise ArchiveError(f"{path} has no time: {_NO_TIME}; it has {', '.join(dump.columns)}")
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


def json_messages(
    spark: SparkSession, files: DumpFiles, stream: str, columns: DumpColumns
) -> DataFrame:
    """The messages of files with one JSON object a line, as rows of the table `messages`.

    Lines are read by Python's own JSON: it keeps the order of headers, and bytes that are not
    UTF-8 as surrogate escapes (`"\\udcff"`). Empty lines are skipped.

    Raises:
        ArchiveError: a file cannot be read. A line that is no message fails the action that reads
            it.
    """
    path = shown(files.path)
    lines = _read(lambda: spark.read.text(files.literal), path)
    lines = _numbered(lines.where(F.trim("value") != ""), columns.first_seq, path)
    placed = lines.select(F.col("value").cast("binary"), "_seq", "_in_file", "_file_path")

    def parse(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = [
                parse_line(line, seq, f"{shown(file)}: message {number}", columns)
                for line, seq, number, file in zip(
                    *(c.to_pylist() for c in batch.columns), strict=True
                )
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


def parse_line(line: bytes, seq: int, place: str, columns: DumpColumns) -> tuple[Any, ...]:
    """One line as (seq, ts_ns, subject, cluster, headers, data).

    Args:
        line: its bytes.
        seq: its sequence, if the line names none.
        place: the file and the number of the message in it, for errors.
        columns: which field is what.

    Raises:
        ArchiveError: it is not a message; the error has the place and the start of the line.
    """
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        raise ArchiveError(
            f"{place}: byte {error.start + 1} of the line is not UTF-8; "
            f'write it as "\\udc{line[error.start]:02x}"'
        ) from error
    where = f"{place}, line {text[:60]!r}"
    try:
        pairs = json.loads(text, object_pairs_hook=_Object)
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
            time = exact_ns(row[found["ts_ns"]])
        elif "ts" in found:
            time = epoch_ns(row[found["ts"]])
        else:
            raise ValueError(f"it has no time: {_NO_TIME}")
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


def _read(read: Callable[[], R], path: str) -> R:
    try:
        return read()
    except SPARK_ERRORS as error:
        found = job_error(error)
        if isinstance(found, WarehouseError | ArchiveError):  # it names the file
            raise ArchiveError(str(found)) from error
        raise ArchiveError(f"{path} cannot be read: {found}") from error


def _numbered(rows: DataFrame, first: int, path: str) -> DataFrame:
    """The rows with `_seq`: first, first + 1, ... in order of file name and place in it.

    `_in_file` counts the rows of each file from 1.

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
    counted = placed.groupBy("_file_path", "_block").agg(
        F.count(F.lit(1)).alias("_rows"), F.min("_row").alias("_first_row")
    )
    blocks: list[Row] = _read(counted.collect, path)
    blocks.sort(key=lambda block: (block["_file_path"], block["_block"]))
    starts, following, before, file = [], first, first, None
    for block in blocks:
        if block["_file_path"] != file:
            file, before = block["_file_path"], following
        offset = following - block["_first_row"]
        starts.append((file, block["_block"], offset, offset - before + 1))
        following += block["_rows"]
    schema = "_file_path string, _block long, _offset long, _offset_in_file long"
    offsets = rows.sparkSession.createDataFrame(starts, schema)
    joined = placed.join(F.broadcast(offsets), ["_file_path", "_block"])
    return joined.withColumns(
        {
            "_seq": F.col("_row") + F.col("_offset"),
            "_in_file": F.col("_row") + F.col("_offset_in_file"),
        }
    )


def _with_time(rows: DataFrame) -> DataFrame:
    """The rows with `ts` and `day` from `ts_ns`, and the table's columns only."""
    # pmod, because div rounds towards zero and so would move times before 1970.
    ts = F.expr("timestamp_micros((ts_ns - pmod(ts_ns, 1000)) div 1000)")
    timed = rows.withColumn("ts", ts).withColumn("day", F.to_date("ts"))
    return timed.select(*MESSAGES.spark_schema.names)


def _counts_nanoseconds(spark: SparkSession, files: DumpFiles, name: str) -> bool:
    """Whether the first file that has a column says that it is a timestamp in nanoseconds.

    Its numbers are exact then, also near 1970, where those of an epoch would be seconds. A Spark
    Connect server does not tell: there they are read as an epoch.
    """
    if is_remote(spark):
        return False
    parquet: Any = spark.sparkContext._jvm.org.apache.parquet.hadoop  # type: ignore[union-attr]
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    for file in files.read:
        path = spark.sparkContext._jvm.org.apache.hadoop.fs.Path(file)  # type: ignore[union-attr]
        readable = parquet.util.HadoopInputFile.fromPath(path, configuration)
        reader = parquet.ParquetFileReader.open(readable)
        try:
            schema = reader.getFooter().getFileMetaData().getSchema()
            if schema.containsField(name):
                kind = schema.getType(schema.getFieldIndex(name)).getLogicalTypeAnnotation()
                return kind is not None and kind.toString().startswith("TIMESTAMP(NANOS")
        finally:
            reader.close()
    return False  # it is the name of a folder


def _nanoseconds(column: Column, kind: T.DataType, path: str, name: str) -> Column:
    """Nanoseconds since 1970; null where 64 bits do not hold them, which the ingest refuses."""
    match kind:
        case T.TimestampType():
            return _scaled(F.unix_micros(column), 1000)
        case T.TimestampNTZType() | T.DateType():  # UTC, as the session is
            return _scaled(F.unix_micros(column.cast("timestamp")), 1000)
        case T.LongType() | T.IntegerType():
            value = column.cast("long")
            scaled = value
            for below, unit in reversed(EPOCH_UNITS):
                scaled = F.when(F.abs(value) < below, _scaled(value, unit)).otherwise(scaled)
            return scaled
        case T.StringType():
            where = f"{path}, column {name}"
            return F.udf(lambda text: _text_ns(text, where), T.LongType(), useArrow=False)(column)
        case _:
            raise _wrong_type(path, name, kind, "a timestamp, ISO 8601 text or an epoch")


def _text_ns(text: str | None, where: str) -> int | None:
    try:
        return None if text is None else epoch_ns(text)
    except ValueError as error:
        raise ArchiveError(f"{where}: {error}") from error


def _scaled(value: Column, unit: int) -> Column:
    """The product where it fits; it is formed only there."""
    return F.when(F.abs(value) <= _MOST // unit, value * unit)


def _payload(
    column: Column, kind: T.DataType, columns: DumpColumns, path: str, name: str
) -> Column:
    empty = F.lit(b"")
    match kind:
        case T.BinaryType():
            return F.coalesce(column, empty)
        case T.StringType() if columns.data_encoding == "base64":
            # Null where it is no base64, as `base64.b64decode` says too; the ingest refuses null.
            right = column.rlike(r"\A[A-Za-z0-9+/]*={0,2}\z") & (F.length(column) % 4 == 0)
            decoded = F.when(right, F.to_binary(column, F.lit("base64")))
            return F.when(column.isNull(), empty).otherwise(decoded)
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
                        F.coalesce(e["value"], F.array(F.lit(None).cast("string"))),
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
