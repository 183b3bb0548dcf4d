"""Messages of a stream, read in this process. Transformed ones may be chosen by their fates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

from jobs.files.commit import arrow_schema
from jobs.files.intact import check_files
from jobs.files.ordered import Extent, extents_of, in_order
from jobs.files.read import batches
from jobs.files.storage import Storage
from jobs.files.text import restored_rows
from jobs.progress import advance, step
from jobs.warehouse.raw import RAW
from jobs.warehouse.specs import TRANSFORMED, TableSpec
from jobs.warehouse.tables import data_files

_SHORT = ("seq", "fate", "mapping_version")


class Selection:
    """The messages of a stream on some days that have one of some fates.

    Attributes:
        messages: how many messages of any fate there are.
        fates: how many messages there are of each fate, whether it is chosen or not.
        versions: the mapping versions that the messages were transformed with.
    """

    def __init__(
        self,
        table: Table,
        stream: str,
        days: Sequence[date] | None,
        fates: Collection[str] | None,
        columns: Sequence[str],
        spec: TableSpec = TRANSFORMED,
    ) -> None:
        """Verifies the files, and reads the short columns of all messages.

        Args:
            table: the table. Commits after it was loaded make no difference.
            stream, days: the stream and the days of the messages; None is every day.
            fates: the chosen fates; None is all messages, also of a table without fates.
            columns: the columns that `rows` and `in_order` give.
            spec: the definition of the table.

        Raises:
            WarehouseError: a file cannot be read, or was changed after being published.
        """
        self.fates, self.versions = Counter[str](), set[str]()
        self.messages = 0
        self._chosen = None if fates is None else pa.array(sorted(fates), pa.string())
        self._columns = tuple(columns)
        self._storage = Storage.of(table)
        self._whole = whole = arrow_schema(spec.schema)
        files = data_files(table, stream, days)
        check_files(None, table, files)
        self._extents = extents_of(table, files)
        short = pa.schema([field for field in whole if field.name in _SHORT])
        with step(f"looking at {stream}", sum(file.record_count for file in files)):
            for extent in self._extents:
                self._look_at(extent, short)

    def _look_at(self, extent: Extent, short: pa.Schema) -> None:
        for batch in batches(self._storage, extent.piece, short):
            extent.add(batch.column("seq"))
            self.messages += len(batch)
            advance(len(batch))
            if "fate" not in short.names:
                continue
            for fate in batch.column("fate").value_counts().to_pylist():
                self.fates[fate["values"]] += fate["counts"]
            self.versions.update(batch.column("mapping_version").unique().to_pylist())

    def rows(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The chosen messages, file by file, with the columns of the selection or with others."""
        columns = self._columns if columns is None else tuple(columns)
        for extent in self._extents:
            read = batches(self._storage, extent.piece, self._schema(columns))
            yield from self._found(read, columns)

    def in_order(self) -> Iterator[pa.RecordBatch]:
        """The chosen messages, by ascending sequence."""
        read = in_order(self._storage, self._extents, self._schema(self._columns))
        yield from self._found(read, self._columns)

    def _schema(self, columns: Sequence[str]) -> pa.Schema:
        read = {*columns, *(name + RAW for name in columns)}
        if self._chosen is not None:
            read.add("fate")
        return pa.schema([field for field in self._whole if field.name in read])

    def _found(
        self, read: Iterable[pa.RecordBatch], columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        for batch in read:
            if self._chosen is not None:
                batch = batch.filter(pc.is_in(batch.column("fate"), self._chosen))
            yield restored_rows(batch, columns)
