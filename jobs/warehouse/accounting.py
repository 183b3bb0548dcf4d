"""The accounts of the archive: what the table has of a stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date

from pydantic import BaseModel, ConfigDict
from pyiceberg.table import Table

from jobs.errors import ArchiveError
from jobs.warehouse.coverage import Coverage
from jobs.warehouse.rows import Total
from jobs.warehouse.tables import PROPERTY
from nats_transform.digest import Digest
from nats_transform.errors import did_you_mean


class Archived(BaseModel):
    """The messages of a stream that the table has, kept as a property of the table.

    Attributes:
        covered: the archived sequences, including those whose messages no longer existed.
        messages, first_seq, last_seq, bytes, digest: the sums over all rows, as in `Total`.
        days: the number of messages and the digest of each day.
        subject: the filter that the stream is archived with.
    """

    model_config = ConfigDict(frozen=True)

    covered: str = ""
    messages: int = 0
    first_seq: int | None = None
    last_seq: int | None = None
    bytes: int = 0
    digest: str = str(Digest())
    days: dict[date, tuple[int, str]] = {}
    subject: str | None = None

    @classmethod
    def of(cls, table: Table, stream: str) -> Archived:
        """What a table has of a stream."""
        text = table.properties.get(PROPERTY + cls.key(stream))
        return cls.model_validate_json(text) if text else cls()

    @classmethod
    def nearest(cls, table: Table, stream: str) -> str:
        """The end of an error about a stream that a table has not: the one that was meant."""
        prefix = PROPERTY + cls.key("")
        names = {name.removeprefix(prefix) for name in table.properties if name.startswith(prefix)}
        return "" if stream in names else did_you_mean(stream, names)

    @classmethod
    def none(cls, table: Table, stream: str) -> ArchiveError:
        """The error that a table has no messages of a stream."""
        cure = cls.nearest(table, stream) or "; ingest the stream, or check its name"
        return ArchiveError(f"{'.'.join(table.name())} has no messages of stream {stream!r}{cure}")

    @staticmethod
    def key(stream: str) -> str:
        """The name of the table property, without the prefix."""
        return f"stream.{stream}"

    @property
    def coverage(self) -> Coverage:
        """The sequences that are archived."""
        return Coverage.parse(self.covered)

    @property
    def gaps(self) -> int:
        """How many sequences between the first and the last the table does not have."""
        if self.first_seq is None or self.last_seq is None:
            return 0
        return self.last_seq - self.first_seq + 1 - self.messages

    def digest_of(self, days: Sequence[date] | None = None) -> Digest:
        """The digest of the messages of some days; None is all of them."""
        wanted = self.days.keys() if days is None else self.days.keys() & set(days)
        return sum((Digest.parse(*self.days[day]) for day in wanted), Digest())

    def add(
        self, first: int, last: int, accounts: Mapping[date, Total], subject: str | None
    ) -> Archived:
        """The accounts with the sequences first..last added, whose sums are given for each day."""
        had = Total(
            self.first_seq, self.last_seq, self.bytes, Digest.parse(self.messages, self.digest)
        )
        total = sum(accounts.values(), start=had)
        days = {day: self.digest_of([day]) + account.digest for day, account in accounts.items()}
        return Archived(
            covered=str(self.coverage | Coverage.of([(first, last)])),
            messages=total.digest.rows,
            first_seq=total.first,
            last_seq=total.last,
            bytes=total.bytes,
            digest=str(total.digest),
            days=self.days | {day: (bag.rows, str(bag)) for day, bag in days.items()},
            subject=subject,
        )
