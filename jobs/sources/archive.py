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
class Stretch:
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


Section = tuple[Point, int, int]
"""What a task reads: from a place in the file on, the first and the last sequence."""


@dataclass(frozen=True)
class ArchiveReader:
    """Reads parts of an archive, in tasks. It has everything that a task needs.

    Attributes:
        settings: what to read; its range and times are ignored.
    """

    path: Path
    settings: JetStreamSettings

    def __call__(self, section: Section) -> Iterator[pa.RecordBatch]:
        """The messages of a section, in batches of rows.

        Raises:
            ArchiveError: the archive is damaged.
        """
        for batch in self.batches(section):
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

    def batches(self, section: Section) -> Iterator[Batch]:
        """The messages of a section, whatever their subjects."""
        with opened(self.path) as file:
            start, first, last = section
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
    def _stretches(self) -> list[Stretch]:
        """All messages of the archive, every byte of which was read for it."""
        stretches: list[Stretch] = []
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
                    stretches.append(
                        Stretch(
                            batch.start,
                            int(batch.sequences[start]),
                            int(batch.sequences[end - 1]),
                            int(wanted[start:end].sum()),
                            day,
                            int(batch.times[start:end].max()),
                        )
                    )
        self._check_count(read)
        return stretches

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
        for place, stretches in ((0, iter(self._stretches)), (-1, reversed(self._stretches))):
            known = next(filter(None, (self._known(stretch, have) for stretch in stretches)), None)
            if known is not None and times_of(table, label, known[place][0]) != [known[place][1]]:
                raise ArchiveError(
                    "backup-of-other-stream",
                    sequence=known[place][0],
                    folder=self.backup.folder,
                    label=label,
                )

    def _known(self, stretch: Stretch, have: Coverage) -> list[tuple[int, int]]:
        """(sequence, time) of the wanted messages of a stretch that the table must have."""
        known: list[tuple[int, int]] = []
        if not stretch.messages or not have & Coverage.of([(stretch.first, stretch.last)]):
            return known
        for batch in self._batches(stretch.first, stretch.last):
            is_known = have.has(pa.array(batch.sequences)) & self._reader.wanted(batch)
            both = batch.sequences[is_known], batch.times[is_known]
            known += zip(*(column.tolist() for column in both), strict=True)
        return known

    def plan(self, have: Coverage, erased: Coverage = NONE) -> list[Span]:
        """Spans that end at midnight (UTC), where the times of the messages let them."""
        if not self._stretches and not have:
            raise ArchiveError("backup-without-messages", folder=self.backup.folder)
        first, last = self._wanted_range()
        gone = Coverage.of([(first, min(last, self._head.messages.after))])
        first = max(first, self._head.messages.after + 1)
        spans = []
        for start, end in (Coverage.of([(first, last)]) - have).ranges:
            while start <= end:
                cut = self._end_of_span(start, end)
                messages = self._count(start, cut)
                stretches = self._stretches_of(start, cut)
                size = (
                    stretches[-1].start.position - stretches[0].start.position if stretches else 0
                )
                spans.append(Span(start, cut, messages, size, gone=gone))
                start = cut + 1
        return [span for span in spans if span.messages]

    def tasks(self, span: Span, have: Coverage) -> tuple[ReadTask, Sequence[Section]]:
        """Parts of the span; none of its messages is in the table."""
        stretches = self._stretches_of(span.first, span.last)
        size = stretches[-1].start.position - stretches[0].start.position
        count = max(1, min(self.settings.readers, size // TASK_BYTES))
        goals = [stretches[0].start.position + size * n // count for n in range(1, count)]
        places = [bisect_left(stretches, goal, key=lambda s: s.start.position) for goal in goals]
        starts = sorted({0, *places})
        firsts = [span.first, *(stretches[place].first for place in starts[1:])]
        lasts = [*(first - 1 for first in firsts[1:]), span.last]
        parts = [
            (stretches[place].start, first, last)
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
        return max(last, self._stretches[-1].last) if self._stretches else last

    def _wanted_range(self) -> tuple[int, int]:
        first, last = 1, self._last
        match self.settings.since:
            case int(since):
                first = max(first, since)
            case datetime() as since:
                first = self._first_since(since)
        match self.settings.until:
            case int(until):
                last = min(last, until)
            case datetime() as until:
                last = self._first_since(until) - 1
        return first, last

    def _first_since(self, moment: datetime) -> int:
        """The first sequence that was stored at or after a moment; one past the last if none."""
        since = moment - datetime(1970, 1, 1, tzinfo=UTC)
        ns = since // timedelta(microseconds=1) * 1000
        stretch = next((stretch for stretch in self._stretches if stretch.latest >= ns), None)
        if stretch is None:
            return self._last + 1
        batches = self._batches(stretch.first, stretch.last)
        return next(int(b.sequences[b.times >= ns][0]) for b in batches if (b.times >= ns).any())

    def _end_of_span(self, start: int, end: int) -> int:
        """Ahead of the first message of a day that starts when enough messages have come."""
        messages, day = 0, None
        for stretch in self._stretches_of(start, end):
            if day is not None and stretch.day > day:
                return stretch.first - 1
            messages += stretch.messages
            if messages >= self.publish_messages:
                day = stretch.day
        return end

    def _count(self, first: int, last: int) -> int:
        """How many wanted messages there are among these sequences."""
        count = 0
        for stretch in self._stretches_of(first, last):
            if first <= stretch.first and stretch.last <= last:
                count += stretch.messages
                continue
            for batch in self._batches(max(first, stretch.first), min(last, stretch.last)):
                count += int(self._reader.wanted(batch).sum())
        return count

    def _stretches_of(self, first: int, last: int) -> list[Stretch]:
        start = bisect_left(self._stretches, first, key=lambda stretch: stretch.last)
        end = bisect_left(self._stretches, last + 1, key=lambda stretch: stretch.first)
        return self._stretches[start:end]

    def _batches(self, first: int, last: int) -> Iterator[Batch]:
        stretches = self._stretches_of(first, last)
        return self._reader.batches((stretches[0].start, first, last)) if stretches else iter(())
