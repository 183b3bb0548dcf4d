"""The tasks of a transform: each reads messages, maps them, counts the rows and writes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from jobs.files.engine import end_if_told
from jobs.files.read import Reader, Task
from jobs.files.sequences import Runs
from jobs.files.storage import Storage
from jobs.files.text import stored_rows
from jobs.files.write import Writer, Written
from jobs.warehouse.rows import constant
from nats_transform.digest import Digest
from nats_transform.kernel import Program
from nats_transform.kernel.digest import digest_batch
from nats_transform.kernel.messages import MESSAGES, TRANSFORMED, columns_of_messages

WORDS = frozenset({"fate", "reason", "mapping_source", "mapping_destination", "mapping_version"})
"""The columns that `_rows` makes as dictionaries."""


@dataclass(frozen=True, slots=True)
class Done:
    """The result of a task.

    Attributes:
        digest: the digest of the rows; empty if it is not computed.
        archive: the same of the columns of messages.
        sequences: the ascending runs of the sequences.
        aside: the file of rows for the quarantine; None if there are none.
        aside_digest: the digest of their columns of messages.
        reasons: how many of them each reason has.
    """

    written: Written | None
    fates: Counter[str]
    digest: Digest
    archive: Digest
    sequences: Runs
    aside: Written | None
    aside_digest: Digest
    reasons: Counter[str]

    @property
    def rows(self) -> int:
        """How many rows the file has."""
        return self.written.rows if self.written else 0


Sift = Callable[[pa.RecordBatch], Sequence[str | None]]
"""Of each row as the table would store it: why it must not be published, or None."""


@dataclass(frozen=True)
class Quarantine:
    """What keeps rows out of a table, and where they go instead.

    Attributes:
        sift: finds them. It can be pickled.
        stored: the columns to write, with their Iceberg numbers.
    """

    sift: Sift
    folder: str
    stored: pa.Schema


@dataclass(frozen=True)
class TransformTask:
    """The function of a task, with all that the task needs.

    Attributes:
        reader: reads messages, all columns of them or those that a narrow file has.
        stored: the columns to write, with their Iceberg numbers.
        version: the version of the mappings and the seed.
        is_digested: whether nobody else computes the digests.
        quarantine: what keeps rows out of the table; None if nothing does.
    """

    storage: Storage
    folder: str
    reader: Reader
    stored: pa.Schema
    program: Program
    version: str
    is_digested: bool
    quarantine: Quarantine | None = None

    def __call__(self, task: Task) -> Done:
        """The file that the task wrote, and what it counted on the way.

        Raises:
            WarehouseError: a file cannot be read or written.
        """
        fates, reasons = Counter[str](), Counter[str]()
        sequences, digest, archive, aside_digest = Runs(), Digest(), Digest(), Digest()
        name = f"{task.day.isoformat()}-{task.number:05}"
        with ExitStack() as files:
            writer = files.enter_context(Writer(self.storage, self.folder, name, self.stored))
            aside = writer
            if self.quarantine is not None:
                folder, stored = self.quarantine.folder, self.quarantine.stored
                aside = files.enter_context(Writer(self.storage, folder, name, stored))
            for messages in self.reader(task):
                end_if_told()
                sequences.add(messages.column("seq"))
                rows = self._rows(messages)
                if self.quarantine is not None:
                    faults = pa.array(self.quarantine.sift(self._plain(rows)), pa.string())
                    reasons += Counter(faults.drop_null().to_pylist())
                    apart, why = rows.filter(faults.is_valid()), faults.drop_null()
                    if len(apart):
                        aside_digest += digest_batch(apart, tuple(MESSAGES))
                        apart = apart.append_column("quarantined", why)
                        aside.write(stored_rows(apart, self.quarantine.stored))
                        rows = rows.filter(faults.is_null())
                if self.is_digested:
                    # Of the new rows, so that it also shows whether mapping has changed a message.
                    archive += digest_batch(rows, columns_of_messages(rows))
                    digest += digest_batch(_with_nulls(rows))
                fates += _counts(rows.column("fate"))
                writer.write(stored_rows(rows, self.stored))
            written = writer.close() if fates or not reasons else None
            kept = aside.close() if reasons else None
        return Done(written, fates, digest, archive, sequences, kept, aside_digest, reasons)

    def _plain(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows as the table stores them, without dictionaries."""
        stored = stored_rows(rows, self.stored)
        columns = [
            column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
            for column in stored.columns
        ]
        return pa.RecordBatch.from_arrays(columns, names=stored.schema.names)

    def _rows(self, messages: pa.RecordBatch) -> pa.RecordBatch:
        """The transformed messages, with the columns that are read."""
        outcomes = self.program.apply(
            messages.column("subject"),
            cluster=messages.column("cluster"),
            stream=messages.column("stream"),
            seq=messages.column("seq"),
            text=pa.string(),
        )
        columns = dict(zip(messages.schema.names, messages.columns, strict=True))
        columns |= dict(zip(outcomes.schema.names, outcomes.columns, strict=True))
        columns["mapping_version"] = constant(self.version, len(messages))
        return pa.RecordBatch.from_pydict(columns)


def _with_nulls(rows: pa.RecordBatch) -> pa.RecordBatch:
    """All columns of the table, in its order; those that a narrow file lacks are null."""
    there = dict(zip(rows.schema.names, rows.columns, strict=True))
    return pa.RecordBatch.from_pydict(
        {
            name: there[name] if name in there else pa.nulls(len(rows), kind)
            for name, kind in TRANSFORMED.items()
        }
    )


def _counts(words: pa.DictionaryArray) -> Counter[str]:
    """The number of rows of each word, for a column without nulls."""
    numbers = np.bincount(words.indices.to_numpy(), minlength=len(words.dictionary))
    pairs = zip(words.dictionary.to_pylist(), numbers.tolist(), strict=True)
    return Counter({word: number for word, number in pairs if number})
