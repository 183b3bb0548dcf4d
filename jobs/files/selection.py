"""Transformed messages of some fates, read from the files of the table in this process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

from jobs.files.commit import arrow_schema
from jobs.files.ordered import Extent, in_order
from jobs.files.plan import plan
from jobs.files.read import batches
from jobs.files.storage import Storage
from jobs.files.task import Piece
from jobs.files.text import restored
from jobs.warehouse.raw import RAW
from jobs.warehouse.specs import TRANSFORMED
from jobs.warehouse.tables import data_files


class Selection:
    """The messages of a stream on some days that have one of some fates.

    Attributes:
        fates: how many messages there are of each fate, also of those that are not chosen.
        versions: the mapping versions that they were transformed with.
    """

    def __init__(
        self,
        table: Table,
        stream: str,
        days: Sequence[date] | None,
        fates: Collection[str],
        columns: Sequence[str],
    ) -> None:
        """Reads the short columns of all messages.

        Args:
            table: `transformed_messages`, as it was loaded: what it has then is what is read.
            stream, days: whose messages; None is every day.
            fates: the chosen ones.
            columns: what `rows` and `in_order` give.

        Raises:
            WarehouseError: a file cannot be read.
        """
        self.fates, self.versions = Counter[str](), set[str]()
        self._chosen = pa.array(sorted(fates), pa.string())
        self._columns = tuple(columns)
        self._storage = Storage.of(table)
        whole = arrow_schema(TRANSFORMED.schema)
        read = {*columns, *(name + RAW for name in columns), "fate"}
        self._schema = pa.schema([field for field in whole if field.name in read])
        tasks = plan(table, data_files(table, stream, days))
        # Whole files, in the order of their days and sequences.
        paths = dict.fromkeys(piece.path for task in tasks for piece in task.pieces)
        self._extents = [Extent(Piece(path)) for path in paths]
        short = pa.schema([whole.field(name) for name in ("seq", "fate", "mapping_version")])
        for extent in self._extents:
            for batch in batches(self._storage, extent.piece, short):
                extent.add(batch.column("seq"))
                for fate in batch.column("fate").value_counts().to_pylist():
                    self.fates[fate["values"]] += fate["counts"]
                self.versions.update(batch.column("mapping_version").unique().to_pylist())

    def rows(self) -> Iterator[pa.RecordBatch]:
        """The messages, file by file."""
        for extent in self._extents:
            yield from self._found(batches(self._storage, extent.piece, self._schema))

    def in_order(self) -> Iterator[pa.RecordBatch]:
        """The messages by ascending sequence."""
        yield from self._found(in_order(self._storage, self._extents, self._schema))

    def _found(self, read: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in read:
            chosen = batch.filter(pc.is_in(batch.column("fate"), self._chosen))
            columns = restored(chosen)
            yield pa.RecordBatch.from_pydict({name: columns[name] for name in self._columns})
