"""The Iceberg tables of namespace `nats`: written by Spark or by Arrow, committed by PyIceberg.

A job writes Parquet files beside the table (`stage`), then makes them part of it in one commit
(`publish`), so a reader sees the table before or after, never between. Every file holds rows of
exactly one (stream, day), which lets a day be replaced by swapping files.

Every snapshot carries properties whose names start with `nats-transform.`.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import sqlite3
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, model_validator
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationException,
)
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, EqualTo, In
from pyiceberg.io.pyarrow import parquet_files_to_data_files
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import IdentityTransform
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
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from jobs.errors import (
    SPARK_ERRORS,
    ConcurrentWrite,
    JobError,
    NoTable,
    WarehouseError,
    job_error,
    one_line,
)
from jobs.warehouse.folder import (
    CATALOG_FILE,
    filesystem_of,
    folder_catalog,
    place,
)
from jobs.warehouse.paths import NAMESPACE, literal_path
from jobs.warehouse.raw import RAW, restored, restored_batch, stored, stored_schema
from jobs.warehouse.schema import MESSAGE_COLUMNS
from nats_transform.spark import OUTPUT

PROPERTY = "nats-transform."
_COMMIT_ATTEMPTS = 20


class Warehouse(BaseModel):
    """Where the tables are: a folder with its own SQLite catalog, or a PyIceberg catalog.

    Attributes:
        dir: the folder; made on first use.
        catalog: the name of a catalog in PyIceberg's own configuration (`.pyiceberg.yaml` or
            `PYICEBERG_CATALOG__<NAME>__URI`); the folder is not used then.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    dir: Path | None = None
    catalog: str | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Warehouse:
        if self.dir is not None and self.catalog is not None:
            raise ValueError("give a warehouse folder or a catalog, not both")
        return self

    @property
    def folder(self) -> Path:
        """The folder, absolute; the default is `warehouse` in the current folder."""
        return (self.dir or Path("warehouse")).absolute()

    def __str__(self) -> str:
        return f"catalog {self.catalog}" if self.catalog else str(self.folder)


@dataclass(frozen=True)
class TableSpec:
    """A table of ours: its name and columns, for Iceberg and for Spark.

    Attributes:
        name: in the namespace.
        schema: the columns that the table stores.
        spark_schema: the columns of rows as jobs have them, see `jobs.warehouse.raw`.
        raw: the text columns of such rows that may hold any bytes.
        partitions: the columns that every file has one value of.
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

_TABLE_PROPERTIES = {
    # We retry ourselves, after looking at what the other writer changed.
    "commit.retry.num-retries": "0",
    # Bounds of the columns that queries prune by. Others cost space, and those of a subject that
    # is not UTF-8 could not even be read.
    "write.metadata.metrics.default": "none",
    "write.metadata.metrics.column.stream": "full",
    "write.metadata.metrics.column.archive": "full",
    "write.metadata.metrics.column.day": "full",
    "write.metadata.metrics.column.seq": "full",
    "write.metadata.metrics.column.ts": "full",
    # An audit takes the files of one mapping version without looking into them.
    "write.metadata.metrics.column.mapping_version": "full",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}


@contextlib.contextmanager
def warehouse_errors(where: object) -> Iterator[None]:
    """Turns what catalogs and file systems raise into one line."""
    try:
        yield
    except JobError:
        raise
    except (OSError, SQLAlchemyError, sqlite3.Error, ValueError, ImportError) as error:
        cause = getattr(error, "orig", None) or error
        raise WarehouseError(
            f"warehouse {where} cannot be used: {one_line(cause)}; "
            "check that it exists, is writable and has room"
        ) from error


def open_catalog(warehouse: Warehouse, create: bool = False) -> Catalog:
    """The catalog of a warehouse, with the namespace in it.

    Args:
        warehouse: where it is.
        create: make the folder and its catalog if they are not there; else that is an error.

    Raises:
        NoTable: there is no warehouse in the folder.
        WarehouseError: a catalog that is not configured or a folder that cannot be used.
    """
    with warehouse_errors(warehouse):
        if warehouse.catalog is None:
            folder = warehouse.folder
            if not create and not (folder / CATALOG_FILE).exists():
                raise NoTable(f"no tables in {warehouse}; run `nats-transform ingest` first")
            return folder_catalog(folder)
        catalog = load_catalog(warehouse.catalog)
        with contextlib.suppress(NamespaceAlreadyExistsError, IntegrityError):
            catalog.create_namespace(NAMESPACE)
        return catalog


def open_table(warehouse: Warehouse, spec: TableSpec, create: bool = False) -> Table:
    """A table of the warehouse.

    Args:
        warehouse: where it is.
        spec: which.
        create: make it if it is not there, and add the columns that one of an older release lacks;
            for jobs that write. Else a table that is not there is an error.

    Raises:
        NoTable: it is not there.
        WarehouseError: the warehouse cannot be used.
    """
    try:
        catalog = open_catalog(warehouse, create)
    except NoTable:
        raise _missing(warehouse, spec) from None
    identifier = (NAMESPACE, spec.name)
    with warehouse_errors(warehouse):
        try:
            table = catalog.load_table(identifier)
            return _with_all_columns(table, spec) if create else table
        except NoSuchTableError:
            if not create:
                raise _missing(warehouse, spec) from None
        partition_spec = PartitionSpec(
            *(
                PartitionField(
                    spec.schema.find_field(column).field_id, 1000 + n, IdentityTransform(), column
                )
                for n, column in enumerate(spec.partitions)
            )
        )
        try:
            return catalog.create_table(
                identifier,
                spec.schema,
                partition_spec=partition_spec,
                properties=_TABLE_PROPERTIES
                | {
                    # Spark's Parquet files carry no Iceberg column numbers: readers go by name.
                    TableProperties.DEFAULT_NAME_MAPPING: spec.schema.name_mapping.model_dump_json()
                },
            )
        except TableAlreadyExistsError:  # another job made it just now
            return catalog.load_table(identifier)


def _with_all_columns(table: Table, spec: TableSpec) -> Table:
    """The table, with the columns that one of an older release lacks; its files stay."""
    for attempt in range(_COMMIT_ATTEMPTS):
        have = set(table.schema().column_names)
        missing = [field for field in spec.schema.fields if field.name not in have]
        if not missing:
            return table
        try:
            with table.update_schema() as update:
                for field in missing:
                    update.add_column(field.name, field.field_type)
        except CommitFailedException:
            time.sleep(random.uniform(0, 0.05 * (attempt + 1)))  # noqa: S311
        table = table.refresh()
    raise ConcurrentWrite(f"other jobs kept changing {'.'.join(table.name())}; run again")


def _missing(warehouse: Warehouse, spec: TableSpec) -> NoTable:
    cure = {"messages": "ingest", "transformed_messages": "transform"}.get(spec.name)
    hint = f"; run `nats-transform {cure}` first" if cure else ""
    return NoTable(f"no table {NAMESPACE}.{spec.name} in {warehouse}{hint}")


def slice_of(
    stream: str | None = None, days: Sequence[date] | None = None, owner: str = "stream"
) -> BooleanExpression:
    """The rows of a stream on some days; None is all of them. `owner` is the stream's column."""
    # The casts: pyiceberg's expressions hide their constructors from type checkers.
    chosen: BooleanExpression = AlwaysTrue()
    if stream is not None:
        chosen = And(chosen, cast(Any, EqualTo)(owner, stream))
    if days is not None:
        chosen = And(chosen, cast(Any, In)("day", [day.isoformat() for day in days]))
    return chosen


def data_files(
    table: Table, stream: str | None = None, days: Sequence[date] | None = None
) -> list[DataFile]:
    """The live files of a stream on some days, in the table as it was loaded."""
    rows = slice_of(stream, days, partitions_of(table)[0])
    return [task.file for task in table.scan(row_filter=rows).plan_files()]


def times_of(table: Table, stream: str, sequence: int) -> list[int]:
    """`ts_ns` of the message with a sequence: one value, or none if the table lacks it."""
    wanted = And(slice_of(stream), cast(Any, EqualTo)("seq", sequence))
    found = table.scan(row_filter=wanted, selected_fields=("ts_ns",)).to_arrow()
    times: list[int] = found.column("ts_ns").to_pylist()
    return times


def partitions_of(table: Table) -> list[str]:
    """The columns that a table is partitioned by, whatever its partitions are called."""
    found = [table.schema().find_column_name(field.source_id) for field in table.spec().fields]
    return [name for name in found if name is not None]


def days_of(table: Table, stream: str) -> list[date]:
    """The days that the table has of a stream, ascending."""
    position = partitions_of(table).index("day")
    epoch = date(1970, 1, 1)
    found = {epoch + timedelta(days=f.partition[position]) for f in data_files(table, stream)}
    return sorted(found)


def read(
    spark: SparkSession,
    table: Table,
    spec: TableSpec,
    stream: str | None = None,
    days: Sequence[date] | None = None,
) -> DataFrame:
    """The rows of a stream on some days, as of when the table was loaded; perhaps no row."""
    return read_files(spark, paths_of(table, data_files(table, stream, days)), spec)


def paths_of(table: Table, files: Iterable[DataFile]) -> list[str]:
    """Where files of a table are, for `read_files`."""
    return [place(file.file_path, table) for file in files]


def read_files(spark: SparkSession, paths: Sequence[str], spec: TableSpec) -> DataFrame:
    """The rows of some Parquet files in the table's columns."""
    if not paths:
        return spark.createDataFrame([], spec.spark_schema)
    # Spark writes a checksum with every page and by itself looks at none.
    reader = spark.read.option("parquet.page.verify-checksum.enabled", "true")
    # A file of an older release lacks columns of the schema: Spark reads them as null.
    rows = reader.schema(spec.stored_schema).parquet(*map(literal_path, paths))
    return restored(rows, spec.spark_schema, spec.raw)


def batches(
    table: Table,
    stream: str,
    days: Sequence[date] | None,
    columns: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    """Some columns of the rows of a stream on some days, file by file and without Spark.

    Raises:
        WarehouseError: a file cannot be read.
    """
    with warehouse_errors(table.location()):
        for file in data_files(table, stream, days):
            with table.io.new_input(file.file_path).open() as opened:
                # Page checksums are looked at, as in `read_files`.
                rows = pq.ParquetFile(opened, page_checksum_verification=True)
                there = set(rows.schema_arrow.names)
                raw = [name + RAW for name in columns if name + RAW in there]
                yield from map(restored_batch, rows.iter_batches(columns=[*columns, *raw]))


@dataclass(frozen=True)
class Staged:
    """Files beside a table that are not part of it yet.

    Attributes:
        folder: where they are.
        paths: of the files.
        data_files: what a commit needs of them, if it is known; else they are looked into.
    """

    folder: str
    paths: tuple[str, ...]
    data_files: tuple[DataFile, ...] = ()


def stage(rows: DataFrame, table: Table, spec: TableSpec) -> Staged:
    """Files with these rows, one (stream, day) in each, not yet part of the table.

    Nothing is left behind when writing fails. A stage that is not published must be dropped.

    Args:
        rows: with the columns of the table, in any order; one stream.
        table: where they will go.
        spec: its columns.

    Raises:
        JobError: what a source of the rows raised, or why writing failed.
    """
    folder = new_folder(table)
    columns = stored(rows, spec.spark_schema, spec.raw)
    # partitionBy takes its columns out of the files, so it gets a copy.
    writer = rows.select(*columns, F.col("day").alias("_day")).write.partitionBy("_day")
    try:
        writer.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false").parquet(folder)
        return Staged(folder, tuple(_parquet_files(folder, table)))
    except SPARK_ERRORS as error:
        drop(folder, table)
        told = job_error(error)
        if type(told) is JobError:  # Spark's own, such as a full disk: say where
            told = WarehouseError(f"writing to {folder} failed: {told}")
        raise told from error
    except BaseException:
        drop(folder, table)
        raise


def new_folder(table: Table) -> str:
    """A folder for files that are to become part of a table."""
    return place(f"{table.location()}/data/{uuid.uuid4()}", table)


def drop(staged: Staged | str, table: Table) -> None:
    """Deletes files that were staged for a table."""
    folder = staged.folder if isinstance(staged, Staged) else staged
    filesystem, path = filesystem_of(folder, table)
    with contextlib.suppress(FileNotFoundError, OSError):
        if isinstance(filesystem, pafs.LocalFileSystem):
            shutil.rmtree(path)
        else:
            filesystem.delete_dir(path)


def publish(
    table: Table,
    staged: Staged,
    stream: str,
    days: Sequence[date] | None = None,
    *,
    replace: bool,
    properties: Mapping[str, str],
    table_properties: Mapping[str, str] | None = None,
) -> int:
    """The id of the snapshot in which the staged files are part of the table: one commit.

    Args:
        table: as loaded before the job read anything from it: that state is what it builds on.
        staged: the new files; they are deleted if they cannot be published.
        stream: whose rows these are.
        days: the days they are of; None for the whole stream.
        replace: whether they take the place of the files of these days, or join them.
        properties: of the snapshot, without the prefix.
        table_properties: of the table, without the prefix, set in the same commit.

    Raises:
        ConcurrentWrite: someone changed files of this stream and these days since.
        WarehouseError: the catalog cannot be reached or written.
    """
    snapshot_properties = {PROPERTY + name: value for name, value in properties.items()}
    try:
        with warehouse_errors(table.location()):
            new_files = staged.data_files or tuple(
                parquet_files_to_data_files(table.io, table.metadata, iter(staged.paths))
            )
            for attempt in range(_COMMIT_ATTEMPTS):
                current = table.catalog.load_table(table.name())
                there = data_files(current, stream, days)
                is_base = current.metadata_location == table.metadata_location
                if not is_base and _paths(there) != _paths(data_files(table, stream, days)):
                    raise ConcurrentWrite(
                        f"another job changed {'.'.join(table.name())} for stream {stream} "
                        "meanwhile; nothing was published, run again"
                    )
                transaction = current.transaction()
                update = transaction.update_snapshot(snapshot_properties=snapshot_properties)
                old_files = there if replace else []
                with update.overwrite() if old_files else update.fast_append() as snapshot:
                    for old in old_files:
                        snapshot.delete_data_file(old)
                    for new in new_files:
                        snapshot.append_data_file(new)
                if table_properties:
                    transaction.set_properties(
                        {PROPERTY + name: value for name, value in table_properties.items()}
                    )
                try:
                    committed = transaction.commit_transaction()
                except (CommitFailedException, ValidationException):
                    time.sleep(random.uniform(0, 0.05 * (attempt + 1)))  # noqa: S311
                    continue
                snapshot_now = committed.current_snapshot()
                assert snapshot_now is not None  # noqa: S101 - we made it
                table.refresh()
                return snapshot_now.snapshot_id
            raise ConcurrentWrite(
                f"other jobs kept changing {'.'.join(table.name())}; "
                f"gave up after {_COMMIT_ATTEMPTS} attempts, run again"
            )
    except ConcurrentWrite:
        drop(staged, table)
        raise


def _paths(files: Iterable[DataFile]) -> frozenset[str]:
    return frozenset(f.file_path for f in files)


def snapshot_properties(table: Table) -> dict[str, str]:
    """Our properties of the table's current snapshot, without the prefix."""
    snapshot = table.current_snapshot()
    return {} if snapshot is None else properties_of(snapshot)


def properties_of(snapshot: Snapshot) -> dict[str, str]:
    """Our properties of a snapshot, without the prefix."""
    if snapshot.summary is None:
        return {}
    return {
        name.removeprefix(PROPERTY): value
        for name, value in snapshot.summary.additional_properties.items()
        if name.startswith(PROPERTY)
    }


def _parquet_files(folder: str, table: Table) -> Iterator[str]:
    filesystem, path = filesystem_of(folder, table)
    selector = pafs.FileSelector(path, recursive=True, allow_not_found=True)
    prefix = folder.removesuffix("/")
    for entry in sorted(filesystem.get_file_info(selector), key=lambda e: cast(str, e.path)):
        if entry.type == pafs.FileType.File and entry.extension == "parquet":
            yield prefix + entry.path.removeprefix(path.removesuffix("/"))
