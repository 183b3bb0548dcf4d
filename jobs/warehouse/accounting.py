"""The accounts of the archive: what the table has of a stream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import date, datetime
from itertools import chain
from typing import Any

from pydantic import BaseModel, ConfigDict
from pyiceberg.table import Table

from jobs.errors import ArchiveError
from jobs.warehouse.rows import Total
from jobs.warehouse.tables import PROPERTY, days_of
from nats_transform.digest import Digest
from nats_transform.errors import did_you_mean
from nats_transform.kernel.coverage import Coverage
from nats_transform.words import plural


class Tombstone(BaseModel):
    """What stays of messages that were erased. It is written first, and names only sequences.

    Attributes:
        name: a random name.
        sequences: no message with one of these sequences is ever archived again.
        messages, bytes, digest: the sums over the rows that left the table `messages`.
        days: how many left each day.
        by, reason: who erased them, and why.
        at: when the erasure began.
        is_finished: whether no file of the warehouse has them any more.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    sequences: str
    messages: int = 0
    days: dict[date, int] = {}
    bytes: int = 0
    digest: str = str(Digest())
    by: str
    reason: str
    at: datetime
    is_finished: bool = False

    @property
    def coverage(self) -> Coverage:
        """The sequences."""
        return Coverage.parse(self.sequences)


class Archived(BaseModel):
    """The messages of a stream that the table has, kept as a property of the table.

    Attributes:
        covered: the archived sequences, including those whose messages no longer existed or were
            erased. A sequence that a dump lacks, or that was below the first one of a stream, is
            not among them: it may come from elsewhere.
        searched: the ranges that ingests looked for messages in; older releases did not note them.
        messages, bytes, digest: the sums over all rows, as in `Total`.
        first_seq, last_seq: the first and the last sequence that a row has, or had until it was
            erased.
        days: the number of messages and the digest of each day.
        narrow: the digest of each day, of the columns in `NARROW`; older releases did not note it.
        subject: the filter that the stream is archived with.
        erased: what stays of messages that were erased.
    """

    model_config = ConfigDict(frozen=True)

    covered: str = ""
    searched: str = ""
    messages: int = 0
    first_seq: int | None = None
    last_seq: int | None = None
    bytes: int = 0
    digest: str = str(Digest())
    days: dict[date, tuple[int, str]] = {}
    narrow: dict[date, str] = {}
    subject: str | None = None
    erased: tuple[Tombstone, ...] = ()

    @classmethod
    def of(cls, table: Table | None, stream: str) -> Archived:
        """What a table has of a stream; nothing if there is no table."""
        text = None if table is None else table.properties.get(PROPERTY + cls.key(stream))
        return cls.model_validate_json(text) if text else cls()

    @classmethod
    def nearest(cls, table: Table, stream: str) -> str:
        """The end of an error about a stream that a table has not: the one that was meant."""
        prefix = PROPERTY + cls.key("")
        names = {name.removeprefix(prefix) for name in table.properties if name.startswith(prefix)}
        return "" if stream in names else did_you_mean(stream, names)

    @classmethod
    def none(cls, table: Table, stream: str) -> ArchiveError:
        """The error that a table has no messages of a stream, on some days or at all."""
        if there := days_of(table, stream):
            return ArchiveError(
                "no-messages-on-days", stream=stream, first=there[0], last=there[-1]
            )
        cure = cls.nearest(table, stream) or "; ingest the stream, or check its name"
        if erased := cls.of(table, stream).erased_on():
            cure = f": {plural(erased, 'message')} of it were erased"
        return ArchiveError(
            "no-messages-of-stream", table=".".join(table.name()), stream=stream, cure=cure
        )

    @staticmethod
    def key(stream: str) -> str:
        """The name of the table property, without the prefix."""
        return f"stream.{stream}"

    @property
    def coverage(self) -> Coverage:
        """The sequences that are archived."""
        return Coverage.parse(self.covered)

    @property
    def end(self) -> int:
        """The last sequence that it has, had or searched; 0 if there is none.

        An erasure can name later ones, which the stream need not have reached.
        """
        own = (self.coverage - self.erased_coverage) | Coverage.parse(self.searched)
        return max([self.last_seq or 0, *(last for _, last in own.ranges)])

    @property
    def explained(self) -> Coverage:
        """The sequences that may be missing."""
        return self.coverage | Coverage.parse(self.searched)

    @property
    def erased_coverage(self) -> Coverage:
        """The sequences that were erased."""
        return Coverage.of(chain.from_iterable(stone.coverage.ranges for stone in self.erased))

    @property
    def unfinished(self) -> list[Tombstone]:
        """Those of erasures that have been stopped, or are at work."""
        return [stone for stone in self.erased if not stone.is_finished]

    @property
    def gaps(self) -> int:
        """How many sequences between the first and the last it lacks, though nobody erased them."""
        if self.first_seq is None or self.last_seq is None:
            return 0
        between = Coverage.of([(self.first_seq, self.last_seq)])
        # A tombstone is written before its messages leave.
        gone = (its for its in self.erased if its.messages or its.is_finished)
        erased = Coverage.of(chain.from_iterable(stone.coverage.ranges for stone in gone))
        return (between - erased).count - self.messages

    def erased_on(self, days: Sequence[date] | None = None) -> int:
        """How many messages of some days were erased; None is all of them."""
        counts = chain.from_iterable(stone.days.items() for stone in self.erased)
        return sum(count for day, count in counts if days is None or day in days)

    def digest_of(self, days: Sequence[date] | None = None) -> Digest:
        """The digest of the messages of some days; None is all of them."""
        wanted = [day for day in self.days if days is None or day in days]
        return sum((Digest.parse(*self.days[day]) for day in wanted), Digest())

    def narrow_of(self, days: Sequence[date] | None = None) -> Digest | None:
        """The same of the columns in `NARROW`; None if that of a day is not known."""
        wanted = [day for day in self.days if days is None or day in days]
        if not self.narrow.keys() >= set(wanted):
            return None
        known = (Digest.parse(self.days[day][0], self.narrow[day]) for day in wanted)
        return sum(known, Digest())

    def add(
        self,
        covered: Coverage,
        searched: Coverage,
        accounts: Mapping[date, Total],
        subject: str | None,
    ) -> Archived:
        """The accounts with sequences and ranges added, whose sums are given for each day."""
        had = Total(
            self.first_seq, self.last_seq, self.bytes, Digest.parse(self.messages, self.digest)
        )
        total = sum(accounts.values(), start=had)
        days = {day: self.digest_of([day]) + account.digest for day, account in accounts.items()}
        narrow = {
            day: str(known + account.narrow)
            for day, account in accounts.items()
            if (known := self.narrow_of([day])) is not None
        }
        return self.model_copy(
            update={
                "covered": str(self.coverage | covered),
                "searched": str(Coverage.parse(self.searched) | searched),
                "messages": total.digest.rows,
                "first_seq": total.first,
                "last_seq": total.last,
                "bytes": total.bytes,
                "digest": str(total.digest),
                "days": self.days | {day: (bag.rows, str(bag)) for day, bag in days.items()},
                "narrow": self.narrow | narrow,
                "subject": subject,
            }
        )

    @property
    def buried(self) -> Archived:
        """The accounts of a stream that was removed: what was erased stays erased."""
        return Archived(covered=str(self.erased_coverage), erased=self.erased)

    def bury(self, stone: Tombstone) -> Archived:
        """The accounts with messages that are to be erased, whose sequences never come back."""
        covered = str(self.coverage | stone.coverage)
        return self.model_copy(update={"covered": covered, "erased": (*self.erased, stone)})

    def without(self, stone: Tombstone, left: Mapping[date, Total]) -> Archived:
        """The accounts once rows have left the table for a tombstone."""
        total = sum(left.values(), Total())
        digest = Digest.parse(stone.messages, stone.digest) + total.digest
        new = {
            "messages": digest.rows,
            "digest": str(digest),
            "bytes": stone.bytes + total.bytes,
            "days": Counter(stone.days) + Counter({d: left[d].digest.rows for d in left}),
        }
        known = {day: left[day] for day in left if day in self.days}  # of tables that we ingested
        days = {day: self.digest_of([day]) - known[day].digest for day in known}
        narrow = {day: digest for day, digest in self.narrow.items() if day not in known} | {
            day: str(its - known[day].narrow)
            for day, bag in days.items()
            if bag.rows and (its := self.narrow_of([day])) is not None
        }
        gone = sum(known.values(), Total())
        stay = Digest.parse(self.messages, self.digest) - gone.digest
        return self._changed([stone.name], new).model_copy(
            update={
                "messages": stay.rows,
                "digest": str(stay),
                "bytes": self.bytes - gone.bytes,
                "days": {day: self.days[day] for day in self.days.keys() - days}
                | {day: (bag.rows, str(bag)) for day, bag in days.items() if bag.rows},
                "narrow": narrow,
            }
        )

    def finished(self, names: Collection[str]) -> Archived:
        """The accounts when no file has the messages of some tombstones any more."""
        return self._changed(names, {"is_finished": True})

    def _changed(self, names: Collection[str], new: Mapping[str, Any]) -> Archived:
        erased = [s.model_copy(update=new) if s.name in names else s for s in self.erased]
        return self.model_copy(update={"erased": tuple(erased)})
