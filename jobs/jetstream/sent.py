"""Which archived messages a target has, and when they were stored, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from jobs.jetstream.target import NO_TIME, Replayed
from nats_transform.kernel.coverage import Range, Sequences

FOLDED = 2**16
"""After so many messages of the target, their sequences become ranges."""
TIMES = 2**22
"""Of a target with more messages, the times of only a part are compared, evenly spread."""


class Sent:
    """The messages of one archive and mapping version that a target has."""

    def __init__(self) -> None:
        self._new, self._folded = list[tuple[int, int]](), list[Sequences]()
        self._times, self._every = np.empty((0, 2), np.int64), 1  # of every so many messages

    def add(self, replayed: Replayed) -> None:
        """Adds a message of the target."""
        self._new.append((replayed.seq, replayed.ts_ns))
        if len(self._new) >= FOLDED:
            self._fold()

    def _fold(self) -> None:
        new = np.array(self._new, np.int64)
        self._new = []
        self._folded = [Sequences.together([*self._folded, Sequences.of(new[:, 0])])]
        timed = new[new[:, 1] != NO_TIME][:: self._every]
        self._times = np.concatenate([self._times, timed])
        if len(self._times) > TIMES:
            self._times, self._every = self._times[::2], 2 * self._every

    def close(self) -> tuple[Range, ...]:
        """The archived sequences, when all messages have been added."""
        if self._new:
            self._fold()
        self._times = self._times[np.argsort(self._times[:, 0], kind="stable")]
        return self._folded[0].ranges if self._folded else ()

    def replaced(self, rows: pa.RecordBatch) -> Iterator[tuple[int, int, int]]:
        """Sequence, sent time and archived time of rows that are not the messages of the target."""
        if not len(self._times):
            return
        known, sent = self._times.T
        seqs, times = (rows.column(name).to_numpy() for name in ("seq", "ts_ns"))
        at = np.searchsorted(known, seqs).clip(max=len(known) - 1)
        differs = (known[at] == seqs) & (sent[at] != times)
        columns = (seqs[differs], sent[at][differs], times[differs])
        yield from zip(*(column.tolist() for column in columns), strict=True)
