"""The Iceberg tables of namespace `nats`: opening them, and reading their rows.

`specs` says what the tables are, and `staging` puts rows into them. Every snapshot carries
properties whose names start with `nats-transform.`.
"""

from __future__ import annotations

import contextlib
import copy
import json
import random
import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from typing import Any, cast

from pyiceberg.conversions import from_bytes
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    RESTError,
    TableAlreadyExistsError,
    ValidationException,
)
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThanOrEqual,
    In,
    LessThanOrEqual,
)
from pyiceberg.io import PY_IO_IMPL
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import DataScan, Table, TableProperties
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, StringType

from jobs.errors import ConcurrentWrite, JobError, NoBranch, NoTable, WarehouseError, text_of
from jobs.settings.days import DayRange
from jobs.settings.warehouse import MAIN
from jobs.settings.warehouse import Warehouse as Warehouse
from jobs.warehouse.catalogs import Catalog, configuration_of, create_namespace, load_catalog
from jobs.warehouse.folder import CATALOG_FILE, folder_catalog
from jobs.warehouse.paths import NAMESPACE
from jobs.warehouse.specs import TableSpec
from jobs.warehouse.store import StoreIO
from nats_transform.errors import did_you_mean

PROPERTY = "nats-transform."
Day = tuple[str, date]
"""A stream and a day."""
_FILES = PROPERTY + "files."
_ATTEMPTS = 20

# What catalogs and file systems raise, apart from what PyIceberg raises to say how a commit went.
_RAISED = (
    *(OSError, ValueError, ImportError, sqlite3.Error),
    *(RESTError, NoSuchNamespaceError),
)
_GLUE_RETRIES = "glue.max-retries"
# Of SQL, Glue and Hive: imported for these catalogs only.
_LIBRARIES = ("sqlalchemy", "botocore", "thrift")

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


class Branch(Table):
    """A table as one of its branches has it: empty, unless the table has this branch.

    Whatever reads it reads the branch, and `jobs.warehouse.staging` publishes in the branch.
    """

    branch: str

    def __init__(self, table: Table, branch: str) -> None:
        vars(self).update(vars(table), branch=branch)

    @property
    def is_there(self) -> bool:
        """Whether the table has this branch, or a tag of this name."""
        return self.branch in self.metadata.refs

    def current_snapshot(self) -> Snapshot | None:
        """The newest snapshot of the branch."""
        return self.snapshot_by_name(self.branch)

    def scan(self, row_filter: Any = AlwaysTrue(), *args: Any, **kwargs: Any) -> DataScan:  # noqa: B008
        """A scan of the branch; PyIceberg takes no snapshot for the newest of the main branch."""
        filter = row_filter if self.is_there else AlwaysFalse()
        scan = super().scan(filter, *args, **kwargs)
        return scan.use_ref(self.branch) if self.is_there else scan


def branches_of(table: Table) -> list[str]:
    """The names of the branches of a table, without its tags."""
    refs = table.metadata.refs.items()
    return sorted(n for n, ref in refs if ref.snapshot_ref_type == SnapshotRefType.BRANCH)


def branch_of(table: Table) -> str:
    """The branch that a table was opened with."""
    return table.branch if isinstance(table, Branch) else MAIN


@contextlib.contextmanager
def warehouse_errors(where: object) -> Iterator[None]:
    """Turns what catalogs and file systems raise into one line."""
    try:
        yield
    except JobError:
        raise
    except Exception as error:
        if not isinstance(error, _RAISED) and not type(error).__module__.startswith(_LIBRARIES):
            raise
        cause = getattr(error, "orig", None) or error
        raise WarehouseError("warehouse-unusable", where=where, reason=text_of(cause)) from error


def open_catalog(warehouse: Warehouse, create: bool = False) -> Catalog:
    """The catalog of a warehouse.

    Args:
        create: make the folder and its catalog if they are not there; else that is an error.

    Raises:
        NoTable: there is no warehouse in the folder.
        WarehouseError: a catalog that is not configured or a folder that cannot be used.
    """
    with warehouse_errors(warehouse):
        if warehouse.catalog is None:
            folder = warehouse.folder
            if not create and not (folder / CATALOG_FILE).exists():
                raise NoTable("no-tables", warehouse=warehouse)
            return folder_catalog(folder)
        return load_catalog(warehouse.catalog, _settings(warehouse.catalog))


def _settings(catalog: str) -> dict[str, Any]:
    """What PyIceberg is told of a catalog beside what is configured."""
    # Our own reads and writes go through PyArrow; PyIceberg would choose another for Azure.
    settings: dict[str, Any] = {PY_IO_IMPL: f"{StoreIO.__module__}.{StoreIO.__name__}"}
    configured = configuration_of(catalog)
    if str(configured.get("type")).lower() == "glue":
        # PyIceberg (0.12) tries a Glue that is gone for a minute or two, and the text that it
        # reads from its file is no number to AWS's library.
        settings[_GLUE_RETRIES] = int(str(configured.get(_GLUE_RETRIES, 4)))
    return settings


def open_table(warehouse: Warehouse, spec: TableSpec, create: bool = False) -> Table:
    """A table of the warehouse, or a `Branch` of it.

    Args:
        warehouse: the warehouse, and the branch if it names one and the table has branches.
        create: make it if it is not there, and add the columns that one of an older release lacks;
            for jobs that write. Else a table that is not there is an error.

    Raises:
        NoTable: it is not there.
        NoBranch: it has no such branch, and is not to be made.
        WarehouseError: the warehouse cannot be used, or the branch is a tag.
    """
    table = _open_table(warehouse, spec, create)
    if warehouse.branch is None or not spec.has_branches:
        return table
    branch, names = Branch(table, warehouse.branch), branches_of(table)
    if branch.branch in names or (create and not branch.is_there):
        return branch
    others = [name for name in names if name != MAIN]
    there = did_you_mean(branch.branch, others) or f"; it has {', '.join(others) or 'none'}"
    if branch.is_there:
        raise WarehouseError(
            "tag-is-no-branch", table=".".join(table.name()), tag=branch.branch, there=there
        )
    raise NoBranch("no-branch", table=".".join(table.name()), branch=branch.branch, there=there)


def _open_table(warehouse: Warehouse, spec: TableSpec, create: bool) -> Table:
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
        create_namespace(catalog, NAMESPACE)
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


def attempts(table: str) -> Iterator[None]:
    """Attempts at a commit, each after a pause, in which other jobs can finish theirs.

    Raises:
        ConcurrentWrite: there were too many.
    """
    for attempt in range(_ATTEMPTS):
        yield
        time.sleep(random.uniform(0, 0.05 * (attempt + 1)))  # noqa: S311
    raise ConcurrentWrite(
        "table-kept-changing", namespace=NAMESPACE, table=table, attempts=_ATTEMPTS
    )


@contextlib.contextmanager
def unless_overtaken(table: Table) -> Iterator[None]:
    """Ends quietly if what is tried on a table, as it was loaded, fails because it has changed.

    An erasure deletes the files of earlier states at once.
    """
    try:
        yield
    except (CommitFailedException, ValidationException):
        pass
    except (WarehouseError, ValueError):
        if copy.copy(table).refresh().metadata_location == table.metadata_location:
            raise


def _with_all_columns(table: Table, spec: TableSpec) -> Table:
    """The table, with the columns that one of an older release lacks; its files stay."""
    for _ in attempts(spec.name):
        have = set(table.schema().column_names)
        missing = [field for field in spec.schema.fields if field.name not in have]
        if not missing:
            return table
        with contextlib.suppress(CommitFailedException), table.update_schema() as update:
            for field in missing:
                update.add_column(field.name, field.field_type, field.doc)
        table = table.refresh()
    return table


def _missing(warehouse: Warehouse, spec: TableSpec) -> NoTable:
    cure = {"messages": "ingest", "transformed_messages": "transform"}.get(spec.name)
    hint = f"; run `nats-transform {cure}` first" if cure else ""
    return NoTable("no-table", namespace=NAMESPACE, table=spec.name, warehouse=warehouse, hint=hint)


def slice_of(
    stream: str | None = None, days: Sequence[date] | None = None, owner: str = "stream"
) -> BooleanExpression:
    """The rows of a stream on some days; None is all of them. `owner` is the stream's column."""
    # The casts: pyiceberg's expressions hide their constructors from type checkers.
    chosen: BooleanExpression = AlwaysTrue()
    if stream is not None:
        chosen = And(chosen, cast(Any, EqualTo)(owner, stream))
    if isinstance(days, DayRange):
        chosen = And(chosen, cast(Any, GreaterThanOrEqual)("day", days.first.isoformat()))
        chosen = And(chosen, cast(Any, LessThanOrEqual)("day", days.last.isoformat()))
    elif days is not None:
        chosen = And(chosen, cast(Any, In)("day", [day.isoformat() for day in days]))
    return chosen


def find_table(warehouse: Warehouse, spec: TableSpec) -> Table | None:
    """The table; None if there is none, or not this branch of it.

    Raises:
        WarehouseError: the catalog cannot be reached.
    """
    with contextlib.suppress(NoTable, NoBranch):
        return open_table(warehouse, spec)
    return None


def data_files(
    table: Table,
    stream: str | None = None,
    days: Sequence[date] | None = None,
    at: int | None = None,
) -> list[DataFile]:
    """The live files of a stream on some days, in the table as it was loaded, or at a snapshot."""
    rows = slice_of(stream, days, partitions_of(table)[0])
    return [task.file for task in table.scan(row_filter=rows, snapshot_id=at).plan_files()]


def sequence_ends(table: Table, file: DataFile) -> tuple[int, int] | None:
    """The lowest and the highest sequence of a file; None if the metadata lacks one."""
    fields = {field.name: field.field_id for field in table.schema().fields}
    number = fields.get("seq", 0)  # Iceberg counts columns from 1 on
    bounds = [(of or {}).get(number) for of in (file.lower_bounds, file.upper_bounds)]
    first, last = (None if b is None else int(from_bytes(LongType(), b)) for b in bounds)
    return None if first is None or last is None else (first, last)


def count_rows(
    warehouse: Warehouse, spec: TableSpec, stream: str, days: Sequence[date] | None = None
) -> int:
    """How many rows a table has of a stream on some days; none if there is no such table."""
    table = find_table(warehouse, spec)
    return sum(file.record_count for file in data_files(table, stream, days)) if table else 0


def digest_properties(folder: str, digests: Mapping[str, str]) -> dict[str, str]:
    """The properties of a table that keep the hashes of the files in a folder of its own."""
    if not digests:
        return {}
    return {_FILES + folder.rstrip("/").rpartition("/")[2]: json.dumps(dict(digests))}


def file_digests(table: Table, paths: Iterable[str]) -> dict[str, str]:
    """The hash of the bytes of those files that have one, by their paths."""
    kept = {
        name.removeprefix(_FILES): json.loads(text)
        for name, text in table.properties.items()
        if name.startswith(_FILES)
    }
    digests = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        digest = kept.get(folder.rpartition("/")[2], {}).get(name)
        if digest is not None:
            digests[path] = digest
    return digests


def forget_digests(table: Table, live: Iterable[str]) -> None:
    """Removes the hashes of files in folders that have none of the live files any more.

    Raises:
        CommitFailedException: another job changed the table meanwhile.
    """
    folders = {path.rpartition("/")[0].rpartition("/")[2] for path in live}
    kept = [name for name in table.properties if name.startswith(_FILES)]
    if gone := [name for name in kept if name.removeprefix(_FILES) not in folders]:
        try:
            table.transaction().remove_properties(*gone).commit_transaction()
        except KeyError as error:  # PyIceberg's, where another job removed them
            raise CommitFailedException(f"{error} is gone") from error


def times_of(table: Table, stream: str, sequence: int) -> list[int]:
    """`ts_ns` of the message with a sequence: one value, or none if the table lacks it."""
    wanted = And(slice_of(stream), cast(Any, EqualTo)("seq", sequence))
    rows = table.scan(row_filter=wanted, selected_fields=("ts_ns",)).to_arrow()
    times: list[int] = rows.column("ts_ns").to_pylist()
    return times


def mapping_version_of(table: Table, file: DataFile) -> str:
    """The mapping version of a file, whose rows all have one; the table's metadata says it."""
    number = table.schema().find_field("mapping_version").field_id
    bound = (file.lower_bounds or {}).get(number)
    return "" if bound is None else str(from_bytes(StringType(), bound))


def partitions_of(table: Table) -> list[str]:
    """The columns that a table is partitioned by, whatever its partitions are called."""
    names = [table.schema().find_column_name(field.source_id) for field in table.spec().fields]
    return [name for name in names if name is not None]


def stream_and_day(table: Table) -> Callable[[DataFile], Day]:
    """A function that gives the stream and the day of a file's rows."""
    stream, day = (partitions_of(table).index(name) for name in ("stream", "day"))
    epoch = date(1970, 1, 1)
    return lambda file: (file.partition[stream], epoch + timedelta(days=file.partition[day]))


def by_day(table: Table, files: Iterable[DataFile]) -> dict[Day, list[DataFile]]:
    """Files by the stream and the day of their rows."""
    key, of_day = stream_and_day(table), defaultdict[Day, list[DataFile]](list)
    for file in files:
        of_day[key(file)].append(file)
    return of_day


def days_of(table: Table, stream: str) -> list[date]:
    """The days that the table has of a stream, ascending."""
    return sorted(day for _, day in by_day(table, data_files(table, stream)))


def snapshot_id(table: Table) -> int | None:
    """The snapshot of the table as it was loaded."""
    snapshot = table.current_snapshot()
    return None if snapshot is None else snapshot.snapshot_id


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
