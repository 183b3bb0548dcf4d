"""The tasks of a census: they count messages by subject, cluster and what headers hold on to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.files.grouped import Grouping
from jobs.files.read import Reader, Task
from jobs.files.storage import Storage
from jobs.files.text import stored_rows
from jobs.files.write import Writer, Written
from jobs.warehouse.rows import constant
from nats_transform.digest import Digest
from nats_transform.kernel.digest import digest_batch
from nats_transform.streams.features import CARRIED

GROUPING = Grouping(
    ("subject", "cluster", "carries"),
    sums=("messages", "bytes"),
    lows=("first_ts",),
    highs=("last_ts",),
)
COLUMNS = ("subject", "cluster", "headers", "data", "ts")
"""The columns of `messages` that a census reads."""
_NAMES = pa.array(CARRIED)
_WORDS = pa.array(
    " ".join(word for bit, word in enumerate(CARRIED.values()) if number >> bit & 1)
    for number in range(2 ** len(CARRIED))
)


@dataclass(frozen=True)
class Counted:
    """The file with some counts, and their sums: the number of messages and of payload bytes.

    The digest is that of the rows.
    """

    written: Written
    messages: int
    bytes: int
    digest: Digest


def carried(headers: pa.ListArray) -> pa.Array:
    """A number for each message, with a bit for each header of `CARRIED` that it has."""
    numbers = np.zeros(len(headers), np.uint8)
    bits = pc.index_in(headers.flatten().field("name"), _NAMES)
    if bits.null_count < len(bits):
        places = np.flatnonzero(bits.is_valid())
        rows = pc.list_parent_indices(headers).to_numpy()[places]
        ones = np.left_shift(1, bits.take(pa.array(places)).to_numpy()).astype(np.uint8)
        np.bitwise_or.at(numbers, rows, ones)
    return pa.array(numbers)


def values(headers: pa.ListArray, name: str) -> pa.StructArray:
    """The different values of a header, and how often each is there: `values` and `counts`."""
    pairs = headers.flatten()
    mine = pairs.field("value").filter(pc.equal(pairs.field("name"), name))
    return pc.value_counts(mine.view(pa.binary()))


def words(numbers: pa.Array) -> pa.Array:
    """The words of `CARRIED` for each number of `carried`, with blanks between them."""
    return _WORDS.take(numbers)


def read_counts(reader: Reader, task: Task) -> Iterator[pa.RecordBatch]:
    """The messages of a task as rows to add up, with the columns of `GROUPING`.

    Raises:
        WarehouseError: a file cannot be read.
    """
    for rows in reader(task):
        sizes = pc.fill_null(pc.binary_length(rows["data"]), 0)
        yield pa.RecordBatch.from_pydict(
            {
                "subject": rows["subject"].view(pa.binary()),
                "cluster": rows["cluster"].view(pa.binary()),
                "carries": carried(rows["headers"]),
                "messages": pa.array(np.ones(len(rows), np.int64)),
                "bytes": sizes.cast(pa.int64()),
                "first_ts": rows["ts"],
                "last_ts": rows["ts"],
            }
        )


def write_counts(
    storage: Storage,
    folder: str,
    schema: pa.Schema,
    stream: str,
    day: date,
    groups: pa.RecordBatch,
) -> Counted:
    """Writes the counts of a day, or of some of its subjects, as rows of the census.

    Raises:
        WarehouseError: the file cannot be written.
    """
    columns = dict(zip(groups.schema.names, groups.columns, strict=True))
    columns |= {name: columns[name].view(pa.string()) for name in ("subject", "cluster")}
    columns["carries"] = words(columns["carries"])
    columns["stream"] = constant(stream, len(groups))
    columns["day"] = pa.repeat(pa.scalar(day), len(groups))
    counts = pa.RecordBatch.from_pydict(columns)
    with Writer(storage, folder, day.isoformat(), schema) as writer:
        writer.write(stored_rows(counts, schema))
        written = writer.close()
    messages, sizes = (pc.sum(columns[name]).as_py() for name in GROUPING.sums)
    names = [name for name in schema.names if name in columns]
    return Counted(written, messages, sizes, digest_batch(counts, names))
