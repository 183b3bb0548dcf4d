"""The messages that a simulated stream would hold, as the archive has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.dry_run.simulate import SIMULATED
from jobs.errors import JobError
from jobs.files.intact import check_files
from jobs.files.narrow import joined
from jobs.files.ordered import Ordered
from jobs.files.scan import Scan
from jobs.files.selection import Selection
from jobs.settings.warehouse import Warehouse
from jobs.warehouse.specs import MESSAGES
from jobs.warehouse.tables import data_files, open_table

_COLUMNS = ("stream", "seq", "archive_seq", "via", "stored_subject")


class SimulatedMessages:
    """The messages of a stream in `simulated_streams`; it is read in the same way as a `Selection`.

    Only messages that the stream captured itself: to those that come from another stream
    nats-server adds headers, and gives another time, which a simulation does not have.

    Attributes:
        messages: how many there are.
        fates: none.
        versions: none.
    """

    def __init__(
        self, warehouse: Warehouse, archive: str, stream: str, columns: Sequence[str]
    ) -> None:
        """Reads the short columns.

        Args:
            archive: the stream whose messages were published again.
            columns: the columns of the archive that `in_order` gives, with the simulated `seq` and
                `subject`.

        Raises:
            JobError: the simulation has no such stream, or a message came from another stream.
            WarehouseError: there is no simulation, or a file cannot be read.
        """
        table = open_table(warehouse, SIMULATED)
        self.fates, self.versions = Counter[str](), set[str]()
        self.messages = 0
        self._stream, self._columns = stream, tuple(columns)
        files = data_files(table, archive)
        check_files(None, table, files)
        self._ordered = Ordered(Scan.of(table, SIMULATED, files))
        for batch in self._ordered.look(_COLUMNS):
            ours = self._ours(batch)
            self.messages += len(ours)
            for via in set(ours.column("via").unique().to_pylist()) - {"capture"}:
                raise JobError("simulated-has-headers", stream=stream, via=via)
        if not self.messages:
            raise JobError("not-simulated", archive=archive, stream=stream)
        messages = open_table(warehouse, MESSAGES)
        self._archive = Selection(messages, archive, None, None, self._columns, MESSAGES)

    def rows(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Sequences and subjects, in order."""
        for batch in self._stored():
            yield pa.RecordBatch.from_pydict(
                {"seq": batch.column("seq"), "subject": batch.column("stored_subject")}
            )

    def in_order(self) -> Iterator[pa.RecordBatch]:
        """The messages by ascending sequence; both sides are read once, side by side."""
        # A stream takes messages as they are published.
        stored = (
            pa.RecordBatch.from_arrays(
                [batch.column(name) for name in ("archive_seq", "seq", "stored_subject")],
                names=["seq", "place", "stored_subject"],
            )
            for batch in self._stored()
        )
        for rows in joined(stored, self._archive.in_order()):
            columns = dict(zip(rows.schema.names, rows.columns, strict=True))
            columns |= {"seq": columns["place"], "subject": columns["stored_subject"]}
            yield pa.RecordBatch.from_pydict({name: columns[name] for name in self._columns})

    def _stored(self) -> Iterator[pa.RecordBatch]:
        before = 0
        for batch in self._ordered.in_order(_COLUMNS):
            if not len(rows := self._ours(batch)):
                continue
            steps = np.diff(rows.column("archive_seq").to_numpy(), prepend=before)
            if (steps < 0).any():
                raise JobError("simulated-out-of-order", stream=self._stream)
            before = int(rows.column("archive_seq")[-1].as_py())
            yield rows

    def _ours(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.filter(pc.equal(batch.column("stream"), self._stream))
