"""The messages of a backup in the format of nats-server 2.15, read without a server.

The whole archive is read once before anything is ingested. This finds an archive that is damaged,
cut off or out of order, and it finds the places from which tasks can read parts at the same time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyiceberg.table import Table

from jobs.errors import ArchiveError
from jobs.jetstream.reader import stored_messages
from jobs.jetstream.stream import JetStreamSettings
from jobs.progress import advance, step
from jobs.settings.base import utc
from jobs.sources.backup import Backup, opened
from jobs.sources.source import ReadTask, Span
from jobs.warehouse.rows import DAY_NS
from jobs.warehouse.tables import times_of
from nats_transform.backup.archive import Batch, Head, Point, read_head, read_messages
from nats_transform.kernel.coverage import NONE, Coverage
from nats_transform.kernel.covering import Covering

TASK_BYTES = 64 * 2**20  # unpacked; below, another task costs more than it brings
# Limits by which a server removes messages while it makes a backup.
_LIMITS = ("max_age", "max_msgs", "max_bytes", "max_msgs_per_subject")


@dataclass(frozen=True)
class Run:
    """Messages that follow each other, up to the first message of a later day.

    Attributes:
        start: the place where reading must start; other messages may come first.
        messages: how many of the messages are wanted.
        day: the latest day of these and all earlier messages, in days since 1970.
    """

    start: Point
    first: int
    last: int
    messages: int
    day: int
    latest: int


Part = tuple[Point, int, int]
"""What a task reads: from a place in the file on, the first and the last sequence."""


@dataclass(frozen=True)
class ArchiveReader:
    """Reads parts of an archive, in tasks. It has everything that a task needs.

    Attributes:
        settings: what to read; its range and times are ignored.
    """

    path: Path
    settings: JetStreamSettings

    def __call__(self, part: Part) -> Iterator[pa.RecordBatch]:
        """The messages of a part, in batches of rows.

        Raises:
            ArchiveError: the archive is damaged.
        """
        for batch in self.batches(part):
            rows = stored_messages(
                self.settings,
                batch.sequences,
                batch.times,
                batch.subjects(),
                batch.headers().to_pylist(),
                batch.data(),
            )
            if self.settings.subject is not None:
                rows = rows.filter(pa.array(self.wanted(batch)))
            yield rows

    def batches(self, part: Part) -> Iterator[Batch]:
        """The messages of a part, whatever their subjects."""
        with opened(self.path) as file:
            start, first, last = part
            for batch in read_messages(file, start):
                begin, end = np.searchsorted(batch.sequences, [first, last + 1])
                if begin < end:
                    yield from batch.cut(int(begin), int(end)).parts()
                if batch.sequences[-1] >= last:
                    return

    def wanted(self, batch: Batch) -> np.ndarray:
        """Which messages have a wanted subject."""
        if self.settings.subject is None:
            return np.ones(len(batch), bool)
        return _covering(self.settings.subject).stored(batch.subjects())


@cache
def _covering(subject: str) -> Covering:
    return Covering([subject])


@dataclass
class ArchiveSource:
    """A backup as a source of an ingest.

    Attributes:
        publish_messages: a span ends at the first midnight after this number of messages.
    """

    backup: Backup
    settings: JetStreamSettings
    publish_messages: int
    kind: str = "backup"

    @property
    def _reader(self) -> ArchiveReader:
        return ArchiveReader(self.backup.content, self.settings)

    @cached_property
    def _head(self) -> Head:
        with opened(self.backup.content) as file:
            head = read_head(file)
        for key in ("messages", "bytes", "first_seq", "last_seq"):
            if head.state[key] != self.backup.state[key]:
                raise ArchiveError(
                    "backup-state-differs",
                    folder=self.backup.folder,
                    key=key,
                    said=self.backup.state[key],
                    name=self.backup.content.name,
                    read=head.state[key],
                )
        return head

    @cached_property
    def _runs(self) -> list[Run]:
        """All messages of the archive, every byte of which was read for it."""
        runs: list[Run] = []
        read, day, reader = 0, -(2**63), self._reader
        what = f"checking {self.backup.folder}"
        with step(what, self._head.state["messages"]), opened(self.backup.content) as file:
            for batch in read_messages(file, self._head.messages):
                read += len(batch)
                advance(len(batch))
                wanted = reader.wanted(batch)
                days = np.maximum(np.maximum.accumulate(batch.times // DAY_NS), day)
                rises = np.flatnonzero(np.diff(days)) + 1
                for start, end in zip([0, *rises], [*rises, len(batch)], strict=True):
                    day = int(days[start])
                    runs.append(
                        Run(
                            batch.start,
                            int(batch.sequences[start]),
                            int(batch.sequences[end - 1]),
                            int(wanted[start:end].sum()),
                            day,
                            int(batch.times[start:end].max()),
                        )
                    )
        self._check_count(read)
        return runs

    def _check_count(self, read: int) -> None:
        """A server may write fewer messages than it said at first, if a limit removed some."""
        said, config = self._head.state["messages"], self.backup.config
        expires = any(int(config.get(limit) or -1) > 0 for limit in _LIMITS)
        expires |= bool(config.get("allow_msg_ttl")) or config.get("retention") != "limits"
        if read != said and not (expires and read < said):
            raise ArchiveError(
                "backup-count-differs",
                folder=self.backup.folder,
                said=said,
                name=self.backup.content.name,
                read=read,
            )

    def check(self, table: Table, have: Coverage) -> None:
        """Compares the first and last message that both have, by time."""
        label = self.settings.label or self.settings.stream
        for place, runs in ((0, iter(self._runs)), (-1, reversed(self._runs))):
            known = next(filter(None, (self._known(run, have) for run in runs)), None)
            if known is not None and times_of(table, label, known[place][0]) != [known[place][1]]:
                raise ArchiveError(
                    "backup-of-other-stream",
                    sequence=known[place][0],
                    folder=self.backup.folder,
                    label=label,
                )

    def _known(self, run: Run, have: Coverage) -> list[tuple[int, int]]:
        """(sequence, time) of the wanted messages of a run that the table must have."""
        known: list[tuple[int, int]] = []
        if not run.messages or not have & Coverage.of([(run.first, run.last)]):
            return known
        for batch in self._batches(run.first, run.last):
            is_known = have.has(pa.array(batch.sequences)) & self._reader.wanted(batch)
            both = batch.sequences[is_known], batch.times[is_known]
            known += zip(*(column.tolist() for column in both), strict=True)
        return known

    def plan(self, have: Coverage, erased: Coverage = NONE) -> list[Span]:
        """Spans that end at midnight (UTC), where the times of the messages let them."""
        if not self._runs and not have:
            raise ArchiveError("backup-without-messages", folder=self.backup.folder)
        first, last = self._wanted_range()
        gone = Coverage.of([(first, min(last, self._head.messages.after))])
        first = max(first, self._head.messages.after + 1)
        spans = []
        for start, end in (Coverage.of([(first, last)]) - have).ranges:
            while start <= end:
                cut = self._end_of_span(start, end)
                messages = self._count(start, cut)
                parts = self._runs_of(start, cut)
                size = parts[-1].start.position - parts[0].start.position if parts else 0
                spans.append(Span(start, cut, messages, size, gone=gone))
                start = cut + 1
        return [span for span in spans if span.messages]

    def tasks(self, span: Span, have: Coverage) -> tuple[ReadTask, Sequence[Part]]:
        """Parts of the span; none of its messages is in the table."""
        runs = self._runs_of(span.first, span.last)
        size = runs[-1].start.position - runs[0].start.position
        count = max(1, min(self.settings.readers, size // TASK_BYTES))
        goals = [runs[0].start.position + size * n // count for n in range(1, count)]
        places = [bisect_left(runs, goal, key=lambda run: run.start.position) for goal in goals]
        starts = sorted({0, *places})
        firsts = [span.first, *(runs[place].first for place in starts[1:])]
        lasts = [*(first - 1 for first in firsts[1:]), span.last]
        parts = [
            (runs[place].start, first, last)
            for place, first, last in zip(starts, firsts, lasts, strict=True)
        ]
        return self._reader, parts

    def count(self, span: Span) -> int:
        """The planned number, because a file does not change."""
        return span.messages

    @property
    def _last(self) -> int:
        """The last sequence that the stream had: of a message, or of one that was deleted."""
        last = int(self._head.state["last_seq"])
        return max(last, self._runs[-1].last) if self._runs else last

    def _wanted_range(self) -> tuple[int, int]:
        settings = self.settings
        first, last = settings.first or 1, self._last
        if settings.last is not None:
            last = min(last, settings.last)
        if settings.since:
            first = max(first, self._first_since(settings.since))
        if settings.until:
            last = min(last, self._first_since(settings.until) - 1)
        return first, last

    def _first_since(self, moment: datetime) -> int:
        """The first sequence that was stored at or after a moment; one past the last if none."""
        since = utc(moment) - datetime(1970, 1, 1, tzinfo=UTC)
        ns = since // timedelta(microseconds=1) * 1000
        run = next((run for run in self._runs if run.latest >= ns), None)
        if run is None:
            return self._last + 1
        batches = self._batches(run.first, run.last)
        return next(int(b.sequences[b.times >= ns][0]) for b in batches if (b.times >= ns).any())

    def _end_of_span(self, start: int, end: int) -> int:
        """Ahead of the first message of a day that starts when enough messages have come."""
        messages, day = 0, None
        for run in self._runs_of(start, end):
            if day is not None and run.day > day:
                return run.first - 1
            messages += run.messages
            if messages >= self.publish_messages:
                day = run.day
        return end

    def _count(self, first: int, last: int) -> int:
        """How many wanted messages there are among these sequences."""
        count = 0
        for run in self._runs_of(first, last):
            if first <= run.first and run.last <= last:
                count += run.messages
                continue
            for batch in self._batches(max(first, run.first), min(last, run.last)):
                count += int(self._reader.wanted(batch).sum())
        return count

    def _runs_of(self, first: int, last: int) -> list[Run]:
        start = bisect_left(self._runs, first, key=lambda run: run.last)
        end = bisect_left(self._runs, last + 1, key=lambda run: run.first)
        return self._runs[start:end]

    def _batches(self, first: int, last: int) -> Iterator[Batch]:
        runs = self._runs_of(first, last)
        return self._reader.batches((runs[0].start, first, last)) if runs else iter(())
