"""The rows of pieces of files, batch by batch. The checksums of pages are verified."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.errors import WarehouseError, text_of
from jobs.files.storage import Storage
from jobs.files.text import restored_rows
from jobs.progress import advance
from jobs.warehouse.raw import RAW
from nats_transform.kernel.messages import PAIR

BATCH_ROWS = 32_768
BATCH_BYTES = 16 * 2**20
"""A batch has at most this many rows, and about this many bytes at most."""
MANY_ROWS = 2**17
"""The same of jobs that hold one batch at a time: what Python does for each takes 1 to 2 ms."""
_BUFFER = 2**20  # bytes of one read from a disk


@dataclass(frozen=True, slots=True)
class Piece:
    """A file, or some of its row groups.

    Attributes:
        path: the path of the file, as the table has it.
        first, end: the row groups of the piece: from `first` on, up to but not including `end`.
        groups: the number of row groups of the file, as the table says; 0 if the piece is the
            whole file.
    """

    path: str
    first: int = 0
    end: int = 0
    groups: int = 0


@dataclass(frozen=True, slots=True)
class Task:
    """A task that reads rows of one day.

    Attributes:
        number: the number of the task, from 0 on, in the order of days.
        pieces: the pieces to read, in this order.
        size: the size of the Parquet data, in bytes.
    """

    number: int
    day: date
    pieces: tuple[Piece, ...]
    size: int


def batches(
    storage: Storage,
    piece: Piece,
    schema: pa.Schema,
    *,
    filled: Collection[str] = (),
    most: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a piece, with the columns of a schema.

    A column that the file does not have is null. Of a list of structs only the fields that the
    schema has are read. A column whose type is a dictionary is read as
    one, which is faster where values repeat. Row groups in which none of the `filled` columns has a
    value are left out, if any columns are named. A batch has at most `most` rows, or `BATCH_ROWS`.

    Raises:
        WarehouseError: the file cannot be read, is damaged, or is not as the table says.
    """
    shown = storage.shown(piece.path)
    try:
        filesystem, path = storage.find(piece.path)
        is_local = filesystem.type_name == "local"
        with (
            filesystem.open_input_file(path) as opened,
            pq.ParquetFile(
                opened,
                page_checksum_verification=True,
                # An object store is fastest with few large requests. From a disk, small reads keep
                # less of a column in memory.
                pre_buffer=not is_local,
                buffer_size=_BUFFER if is_local else 0,
                read_dictionary=[f.name for f in schema if pa.types.is_dictionary(f.type)],
            ) as file,
        ):
            count = file.metadata.num_row_groups
            if piece.groups and piece.groups != count:
                raise WarehouseError(
                    "row-groups-differ", path=shown, count=count, groups=piece.groups
                )
            there = set(file.schema_arrow.names)
            for group in range(piece.first, piece.end if piece.groups else count):
                metadata = file.metadata.row_group(group)
                paths, empty = _leaves(metadata)
                if filled and not any(path.partition(".")[0] in filled for path in paths - empty):
                    continue
                read = file.iter_batches(
                    batch_size=rows_of_batch(metadata, most),
                    row_groups=[group],
                    columns=[
                        path
                        for field in schema
                        if field.name in there - empty
                        for path in _parts(field, paths)
                    ],
                    use_threads=False,
                )
                for batch in read:
                    yield _with_all_columns(batch, schema)
    except (OSError, pa.ArrowException) as error:
        raise WarehouseError(
            "file-unreadable-in-warehouse", path=shown, reason=text_of(error)
        ) from error


def _leaves(group: pq.RowGroupMetaData) -> tuple[set[str], set[str]]:
    """The columns of a row group, each field of a list by itself, and those that need no reading.

    Their statistics say that every value is null.
    """
    columns = [group.column(number) for number in range(group.num_columns)]
    return {column.path_in_schema for column in columns}, {
        column.path_in_schema
        for column in columns
        if column.statistics is not None
        and column.statistics.has_null_count
        and column.statistics.null_count == column.num_values
    }


def _parts(field: pa.Field, paths: set[str]) -> list[str]:
    """The columns that are read for a field: of a list of structs one for each field of these."""
    if not (pa.types.is_list(field.type) and pa.types.is_struct(field.type.value_type)):
        return [field.name]
    names = {part.name for part in field.type.value_type}
    mine = (path.split(".") for path in paths)
    return [".".join(path) for path in mine if path[0] == field.name and path[-1] in names]


def rows_of_batch(group: pq.RowGroupMetaData, most: int | None = None) -> int:
    """How many rows of a row group make a batch."""
    bytes_of_row = group.total_byte_size / max(1, group.num_rows)
    return max(1, min(most or BATCH_ROWS, int(BATCH_BYTES / max(1, bytes_of_row))))


def _with_all_columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    there = set(batch.schema.names)
    columns = [
        batch.column(field.name).cast(field.type)
        if field.name in there
        else pa.nulls(len(batch), field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@dataclass(frozen=True)
class Reader:
    """Reads rows of a table as jobs use them. It can be sent to a task.

    Attributes:
        schema: the columns to read, as the table stores them.
        columns: the columns of the rows; `jobs.warehouse.raw` explains the difference.
        filled, most: as of `batches`.
    """

    storage: Storage
    schema: pa.Schema
    columns: tuple[str, ...]
    filled: frozenset[str] = frozenset()
    most: int | None = None

    def only(
        self, columns: Iterable[str], filled: Iterable[str] = (), most: int | None = None
    ) -> Reader:
        """The reader of some of the columns, in this order."""
        columns = tuple(columns)
        schema = pa.schema([f for f in self.schema if f.name in _with_raw(columns)])
        return Reader(self.storage, schema, columns, _with_raw(filled), most or self.most)

    @property
    def names_of_headers(self) -> Reader:
        """The same reader, whose headers have only names.

        Of a name that is not UTF-8 it gives what the table shows.
        """
        fields = [column for column in self.schema if column.name != "headers" + RAW]
        names = pa.list_(pa.struct([field for field in PAIR if field.name == "name"]))
        schema = pa.schema(
            column.with_type(names) if column.name == "headers" else column for column in fields
        )
        return replace(self, schema=schema)

    def __call__(self, task: Task) -> Iterator[pa.RecordBatch]:
        """`read`, where a batch counts as progress when the next one is asked for."""
        for rows in self.read(task):
            yield rows
            advance(len(rows))

    def read(self, task: Task) -> Iterator[pa.RecordBatch]:
        """The rows of a task.

        Raises:
            WarehouseError: a file cannot be read, is damaged, or is not as the table says.
        """
        for piece in task.pieces:
            for batch in batches(
                self.storage, piece, self.schema, filled=self.filled, most=self.most
            ):
                yield restored_rows(batch, self.columns)


def _with_raw(names: Iterable[str]) -> frozenset[str]:
    return frozenset(column for name in names for column in (name, name + RAW))
