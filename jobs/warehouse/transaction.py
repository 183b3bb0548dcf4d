"""A transaction of PyIceberg that does not copy the metadata of a table again and again."""

from __future__ import annotations

from pyiceberg.table import Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableUpdate


class FrugalTransaction(Transaction):
    """A transaction that works out what it makes of the metadata once for each change.

    PyIceberg (0.12) does so whenever a commit looks at it, dozens of times, and each time it copies
    every snapshot of the table: a commit to a table with 1,000 of them took 0.6 CPU seconds.
    """

    _known: tuple[TableMetadata, tuple[TableUpdate, ...], TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        """The metadata of the table with the changes so far."""
        base, updates = self._table.metadata, self._updates
        if self._known is None or self._known[0] is not base or self._known[1] is not updates:
            self._known = base, updates, super().table_metadata
        return self._known[2]
