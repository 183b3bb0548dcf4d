"""The tasks of a census: they count messages by subject, cluster and what headers hold on to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.files.carried import carried, words
from jobs.files.grouped import Grouping
from jobs.files.read import Reader
from jobs.files.storage import Storage
from jobs.files.task import Task
from jobs.files.text import stored_rows
from jobs.files.write import Writer, Written
from jobs.warehouse.rows import constant
from nats_transform.digest import Digest
from nats_transform.kernel.digest import digest_batch

GROUPING = Grouping(
    ("subject", "cluster", "carries"),
    sums=("messages", "bytes"),
    lows=("first_ts",),
    highs=("last_ts",),
)
COLUMNS = ("subject", "cluster", "headers", "data", "ts")
"""The columns of `messages` that a census reads."""


@dataclass(frozen=True)
class Counted:
    """The file with some counts, and their sums: the number of messages and of payload bytes.

    The digest is that of the rows.
    """

    written: Written
    messages: int
    bytes: int
    digest: Digest


@dataclass(frozen=True)
class ReadCounts:
    """Gives the messages of a task as rows to add up.

    Attributes:
        reader: reads `COLUMNS`.
    """

    reader: Reader

    def __call__(self, task: Task) -> Iterator[pa.RecordBatch]:
        """Rows with the columns of `GROUPING`.

        Raises:
            WarehouseError: a file cannot be read.
        """
        for found in self.reader(task):
            sizes = pc.fill_null(pc.binary_length(found["data"]), 0)
            yield pa.RecordBatch.from_pydict(
                {
                    "subject": found["subject"].view(pa.binary()),
                    "cluster": found["cluster"].view(pa.binary()),
                    "carries": carried(found["headers"]),
                    "messages": pa.array(np.ones(len(found), np.int64)),
                    "bytes": sizes.cast(pa.int64()),
                    "first_ts": found["ts"],
                    "last_ts": found["ts"],
                }
            )


@dataclass(frozen=True)
class WriteCounts:
    """Writes the counts of a day, or of some of its subjects, as rows of the census.

    Attributes:
        storage: the file systems of the table.
        folder: the folder for the file.
        schema: the columns of the census, with their Iceberg numbers.
        stream: the stream whose messages were counted.
    """

    storage: Storage
    folder: str
    schema: pa.Schema
    stream: str

    def __call__(self, day: date, groups: pa.RecordBatch) -> Counted:
        """The file, and the sums of the counts in it.

        Raises:
            WarehouseError: the file cannot be written.
        """
        days = (day - date(1970, 1, 1)).days
        found = dict(zip(groups.schema.names, groups.columns, strict=True))
        found |= {name: found[name].view(pa.string()) for name in ("subject", "cluster")}
        found["carries"] = words(found["carries"])
        found["stream"] = constant(self.stream, len(groups))
        found["day"] = pa.array(np.full(len(groups), days, np.int32)).view(pa.date32())
        counts = pa.RecordBatch.from_pydict(found)
        rows = stored_rows(counts, self.schema)
        with Writer(self.storage, self.folder, day.isoformat(), self.schema) as writer:
            writer.write(rows)
            written = writer.close()
        messages, sizes = (pc.sum(found[name]).as_py() for name in GROUPING.sums)
        columns = [name for name in self.schema.names if name in found]
        return Counted(written, messages, sizes, Digest(*digest_batch(counts, columns)))
