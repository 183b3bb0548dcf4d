"""Rows of our tables in Spark, for what is compared with us: the jobs read and write without it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from pyiceberg.io.pyarrow import parquet_files_to_data_files
from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type

from jobs.files.commit import arrow_schema
from jobs.files.ingest import by_day
from jobs.files.scan import Scan
from jobs.warehouse.accounting import Archived
from jobs.warehouse.folder import place
from jobs.warehouse.raw import RAW
from jobs.warehouse.rows import Total
from jobs.warehouse.specs import MESSAGES, TableSpec
from jobs.warehouse.staging import Staged, new_folder, publish
from jobs.warehouse.tables import PROPERTY, data_files
from nats_transform.kernel.coverage import Coverage
from nats_transform.kernel.messages import HEADERS as PAIRS

HEADERS = from_arrow_type(PAIRS)


def read(
    spark: SparkSession,
    table: Table,
    spec: TableSpec,
    stream: str | None = None,
    days: Sequence[date] | None = None,
) -> DataFrame:
    """The rows of a stream on some days; text columns hold the bytes that were archived."""
    paths = [place(file.file_path, table) for file in data_files(table, stream, days)]
    if not paths:
        return spark.createDataFrame([], from_arrow_schema(spec.rows))
    # A file of an older release lacks columns of the schema: Spark reads them as null.
    rows = spark.read.schema(from_arrow_schema(arrow_schema(spec.schema))).parquet(*paths)
    bytes_first = {n: F.coalesce(F.col(n + RAW).cast("string"), F.col(n)) for n in spec.raw}
    return rows.withColumns(bytes_first).select(*spec.rows.names)


def archive(rows: DataFrame, table: Table, stream: str) -> Staged:
    """Puts messages of a stream into the table `messages`, with the accounts of an ingest."""
    staged = spark_files(rows, table, MESSAGES)
    days: defaultdict[date, Total] = defaultdict(Total)
    for batch in Scan.of(table, MESSAGES, staged.data_files):
        for day, messages in by_day(batch):
            days[day] += Total.of(messages)
    total = sum(days.values(), Total())
    there = Coverage.of([(total.first or 1, total.last or 0)])
    accounts = Archived().add(there, there, days, None)
    properties = {PROPERTY + Archived.key(stream): accounts.model_dump_json()}
    publish(table, staged, stream, replace=True, properties={}, table_properties=properties)
    return staged


def spark_files(rows: DataFrame, table: Table, spec: TableSpec) -> Staged:
    """Files with rows whose texts are UTF-8, as Spark writes them, for a commit."""
    folder = new_folder(table)
    columns = [
        (rows[f.name] if f.name in rows.columns else F.lit(None)).cast(f.dataType).alias(f.name)
        for f in from_arrow_schema(arrow_schema(spec.schema)).fields
    ]
    # partitionBy takes its column out of the files, so it gets a copy.
    rows.select(*columns, F.col("day").alias("_day")).write.partitionBy("_day").parquet(folder)
    local = Path(folder.removeprefix("file://"))
    paths = [f"{folder}/{path.relative_to(local)}" for path in sorted(local.rglob("*.parquet"))]
    return Staged(folder, tuple(parquet_files_to_data_files(table.io, table.metadata, iter(paths))))
