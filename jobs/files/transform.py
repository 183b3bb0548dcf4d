"""The tasks of a transform: each reads messages, maps them, counts the rows and writes them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from jobs.files.engine import end_if_told
from jobs.files.read import Reader
from jobs.files.sequences import Runs
from jobs.files.storage import Storage
from jobs.files.task import Task
from jobs.files.text import stored_rows
from jobs.files.write import Writer, Written
from jobs.warehouse.rows import constant
from nats_transform.digest import Digest
from nats_transform.kernel import Program
from nats_transform.kernel.digest import digest_batch

WORDS = frozenset({"fate", "reason", "mapping_source", "mapping_destination", "mapping_version"})
"""The columns that `_rows` makes as dictionaries."""


@dataclass(frozen=True, slots=True)
class Done:
    """The result of a task.

    Attributes:
        written: the file.
        fates: the number of messages of each fate.
        digest: the digest of the rows; empty if it is not computed.
        archive: the same of the columns of messages.
        sequences: the ascending runs of the sequences.
    """

    written: Written
    fates: Counter[str]
    digest: Digest
    archive: Digest
    sequences: Runs


@dataclass(frozen=True)
class TransformTask:
    """The function of a task, with all that the task needs.

    Attributes:
        storage: the file systems of the table.
        folder: the folder for the new files.
        reader: reads messages.
        rows: the columns of transformed messages as jobs use them.
        stored: the columns to write, with their Iceberg numbers.
        program: the compiled mappings.
        version: the version of the mappings and the seed.
        is_digested: whether nobody else computes the digests.
    """

    storage: Storage
    folder: str
    reader: Reader
    rows: tuple[str, ...]
    stored: pa.Schema
    program: Program
    version: str
    is_digested: bool

    def __call__(self, task: Task) -> Done:
        """The file that the task wrote, and what it counted on the way.

        Raises:
            WarehouseError: a file cannot be read or written.
        """
        fates: Counter[str] = Counter()
        sequences, digest, archive = Runs(), Digest(), Digest()
        name = f"{task.day.isoformat()}-{task.number:05}"
        with Writer(self.storage, self.folder, name, self.stored) as writer:
            for messages in self.reader(task):
                end_if_told()
                sequences.add(messages.column("seq"))
                rows = self._rows(messages)
                if self.is_digested:
                    # Of the new rows, so that it also shows whether mapping has changed a message.
                    archive += Digest(*digest_batch(rows, self.reader.columns))
                    digest += Digest(*digest_batch(rows))
                fates += _counts(rows.column("fate"))
                writer.write(stored_rows(rows, self.stored))
            written = writer.close()
        return Done(written, fates, digest, archive, sequences)

    def _rows(self, messages: pa.RecordBatch) -> pa.RecordBatch:
        """The transformed messages, with the columns of `rows`."""
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
        return pa.RecordBatch.from_pydict({name: columns[name] for name in self.rows})


def _counts(words: pa.DictionaryArray) -> Counter[str]:
    """The number of rows of each word, for a column without nulls."""
    numbers = np.bincount(words.indices.to_numpy(), minlength=len(words.dictionary))
    pairs = zip(words.dictionary.to_pylist(), numbers.tolist(), strict=True)
    return Counter({word: number for word, number in pairs if number})
