"""The books of the archive: what a set of messages comes to, and what the table has of a stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict
from pyiceberg.table import Table
from pyspark.sql import Column
from pyspark.sql import functions as F

from jobs import digest
from jobs.coverage import Coverage
from jobs.digest import Digest
from jobs.tables import MESSAGES, PROPERTY


@dataclass(frozen=True)
class Account:
    """What some messages come to.

    Attributes:
        first, last: sequences; None of no messages.
        bytes: of payloads.
        digest: with the number of rows.
    """

    first: int | None
    last: int | None
    bytes: int
    digest: Digest

    @staticmethod
    def aggregates() -> list[Column]:
        """The aggregate Columns that `of` reads the results of, for `agg` or `observe`."""
        return [
            F.min("seq").alias("first"),
            F.max("seq").alias("last"),
            F.coalesce(F.sum(F.octet_length("data").cast("long")), F.lit(0)).alias("bytes"),
            *digest.aggregates(MESSAGES.spark_schema),
        ]

    @classmethod
    def of(cls, results: Mapping[str, Any]) -> Account:
        """From the results of `aggregates`, by name; an empty mapping is no messages."""
        if not results:
            return cls(None, None, 0, Digest())
        return cls(
            results["first"], results["last"], results["bytes"] or 0, digest.from_row(results)
        )

    def __str__(self) -> str:
        return (
            f"{self.digest.rows} messages, sequences {self.first} to {self.last}, "
            f"{self.bytes} bytes, digest {self.digest}"
        )


class Archived(BaseModel):
    """What the table has of a stream, kept as a property of the table.

    Attributes:
        covered: the sequences that are archived, with those that no longer existed then.
        messages, first_seq, last_seq, bytes, digest: of the rows; bytes are of the payloads.
        subject: the filter that the stream is archived with.
    """

    model_config = ConfigDict(frozen=True)

    covered: str = ""
    messages: int = 0
    first_seq: int | None = None
    last_seq: int | None = None
    bytes: int = 0
    digest: str = str(Digest())
    subject: str | None = None

    @classmethod
    def of(cls, table: Table, stream: str) -> Archived:
        """What a table has of a stream."""
        text = table.properties.get(PROPERTY + cls.key(stream))
        return cls.model_validate_json(text) if text else cls()

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

    def add(self, first: int, last: int, account: Account, subject: str | None) -> Archived:
        """This, and what the sequences first..last came to."""
        total = Digest.parse(self.messages, self.digest) + account.digest
        firsts = [seq for seq in (self.first_seq, account.first) if seq is not None]
        lasts = [seq for seq in (self.last_seq, account.last) if seq is not None]
        return Archived(
            covered=str(self.coverage | Coverage.of([(first, last)])),
            messages=total.rows,
            first_seq=min(firsts, default=None),
            last_seq=max(lasts, default=None),
            bytes=self.bytes + account.bytes,
            digest=str(total),
            subject=subject,
        )
