"""Messages of a stream, read in this process. Transformed ones may be chosen by their fates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

from jobs.files.intact import check_files
from jobs.files.narrow import is_narrow, joined
from jobs.files.ordered import Ordered
from jobs.files.scan import Scan
from jobs.progress import advance, step
from jobs.warehouse.specs import MESSAGES, TRANSFORMED, TableSpec
from jobs.warehouse.tables import data_files, warehouse_errors
from nats_transform.kernel.messages import WIDE


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

        Raises:
            WarehouseError: a file cannot be read, or was changed after being published.
        """
        self.fates, self.versions = Counter[str](), set[str]()
        self._chosen = None if fates is None else pa.array(sorted(fates), pa.string())
        self._columns = tuple(columns)
        files = data_files(table, stream, days)
        check_files(None, table, files)
        scan = Scan.of(table, spec, files)
        self.messages, self._ordered = 0, Ordered(scan)
        self._archived: Ordered | None = None
        if spec is TRANSFORMED and is_narrow(table, files):
            self._archived = _archived(table, stream, days)
        has_fates = "fate" in spec.rows.names
        short = ("seq", "fate", "mapping_version") if has_fates else ("seq",)
        with step(f"looking at {stream}", scan.count):
            for rows in self._ordered.look(short):
                advance(len(rows))
                self.messages += len(rows)
                if has_fates:
                    for fate in rows.column("fate").value_counts().to_pylist():
                        self.fates[fate["values"]] += fate["counts"]
                    self.versions.update(rows.column("mapping_version").unique().to_pylist())

    def rows(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The chosen messages, file by file, with the columns of the selection or with others."""
        return self._chosen_rows(self._ordered.rows, self._columns if columns is None else columns)

    def in_order(self) -> Iterator[pa.RecordBatch]:
        """The chosen messages, by ascending sequence."""
        return self._chosen_rows(self._ordered.in_order, self._columns)

    def _chosen_rows(
        self,
        read: Callable[[Sequence[str]], Iterable[pa.RecordBatch]],
        columns: Sequence[str],
    ) -> Iterator[pa.RecordBatch]:
        if self._archived is None or not {*columns} & {*WIDE}:
            yield from self._with_fates(read(self._read(columns)), columns)
            return
        # By ascending sequence, with what narrow rows lack.
        own = [name for name in dict.fromkeys(("seq", *self._read(columns))) if name not in WIDE]
        rows = self._with_fates(self._ordered.in_order(own), own)
        wide = ["seq", *(name for name in columns if name in WIDE)]
        for batch in joined(rows, self._archived.in_order(wide)):
            yield batch.select(list(columns))

    def _read(self, columns: Sequence[str]) -> Sequence[str]:
        """The columns that must be read for these."""
        return columns if self._chosen is None else list(dict.fromkeys((*columns, "fate")))

    def _with_fates(
        self, read: Iterable[pa.RecordBatch], columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        for rows in read:
            if self._chosen is not None:
                rows = rows.filter(pc.is_in(rows.column("fate"), self._chosen))
            yield rows.select(list(columns))


def _archived(table: Table, stream: str, days: Sequence[date] | None) -> Ordered:
    """The messages that rows of the table are about.

    Raises:
        WarehouseError: a file cannot be read, or was changed after being published.
    """
    with warehouse_errors(table.location()):
        messages = table.catalog.load_table((*table.name()[:-1], MESSAGES.name))
    files = data_files(messages, stream, days)
    check_files(None, messages, files)
    archived = Ordered(Scan.of(messages, MESSAGES, files))
    for _ in archived.look(["seq"]):
        pass
    return archived
