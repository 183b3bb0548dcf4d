"""The census of a stream in a warehouse as one file, for dry runs and plans elsewhere."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel

from jobs.census import CENSUS
from jobs.dry_run.portable import (
    CARRIES,
    COUNTS,
    TEXTS,
    About,
    PortableCensus,
    summed,
    write_census,
)
from jobs.dry_run.subjects import archived_days, counted_census
from jobs.files.intact import check_files
from jobs.files.output import refuse_unwritable
from jobs.files.scan import Scan
from jobs.session import Spark
from jobs.settings.base import utc
from jobs.settings.census import CensusExportSettings
from jobs.settings.days import StreamDays
from jobs.warehouse.raw import readable
from jobs.warehouse.tables import data_files

# These tokens make a subject illegal. They contain nothing that must be hidden.
_PLAIN = (b"", b"*", b">")


class CensusExportResult(BaseModel):
    """What was exported.

    Attributes:
        stream: the stream.
        subjects: the number of distinct subjects.
        rows: the number of rows: one for each subject, cluster and what headers hold on to.
        messages, bytes: the number of messages, and the size of their payloads.
        redacted: the positions of the tokens that became hashes.
        out: the file.
    """

    stream: str
    subjects: int
    rows: int
    messages: int
    bytes: int
    redacted: tuple[int, ...]
    out: Path


def export_census(spark: Spark, settings: CensusExportSettings) -> CensusExportResult:
    """Write the census of some days into a file.

    Raises:
        ArchiveError: the stream has no messages on these days.
        WarehouseError: tables that cannot be read or written.
        JobError, InvalidConfig: the file cannot be written.
    """
    refuse_unwritable("the census", settings.out)
    census = census_of_warehouse(spark, settings)
    if settings.redact:
        census = redacted(census, settings.redact, secrets.token_bytes(32))
    write_census(census, settings.out, readable)
    rows = census.rows
    return CensusExportResult(
        stream=settings.stream,
        subjects=pc.count_distinct(rows["subject"], mode="all").as_py(),
        rows=len(rows),
        messages=pc.sum(rows["messages"]).as_py(),
        bytes=pc.sum(rows["bytes"]).as_py(),
        redacted=census.about.redacted,
        out=settings.out,
    )


def census_of_warehouse(spark: Spark, settings: StreamDays) -> PortableCensus:
    """The census of a stream; days that are not counted yet are counted first.

    Raises:
        ArchiveError: the stream has no messages on these days.
        WarehouseError: tables that cannot be read or written.
    """
    messages, days = archived_days(settings)
    table = counted_census(spark, settings, messages, days)
    times = ["first_ts", "last_ts"]
    files = data_files(table, settings.stream, days)
    check_files(None, table, files)
    rows = pa.Table.from_batches(Scan.of(table, CENSUS, files, [*TEXTS, CARRIES, *COUNTS, *times]))

    about = About(
        stream=settings.stream,
        days=tuple(days),
        first=utc(pc.min(rows["first_ts"]).as_py()),
        last=utc(pc.max(rows["last_ts"]).as_py()),
    )
    return PortableCensus(about, summed(rows.select([*TEXTS, CARRIES, *COUNTS])))


def redacted(census: PortableCensus, positions: tuple[int, ...], key: bytes) -> PortableCensus:
    """The census with hashes in the place of some tokens; equal tokens have equal hashes.

    Args:
        positions: the positions of the tokens, from 1 on.
        key: a secret key. Without it nobody can guess tokens and compare their hashes.
    """
    known: dict[bytes, bytes] = {}

    def hidden(token: bytes) -> bytes:
        if token in _PLAIN:
            return token
        if token not in known:
            # Half of SHA-256: two of a billion tokens have the same hash with a chance of 1e-20.
            known[token] = hmac.new(key, token, hashlib.sha256).hexdigest()[:32].encode()
        return known[token]

    def hide(subject: bytes | None) -> bytes | None:
        if subject is None:
            return None
        tokens = subject.split(b".")
        for position in positions:
            if position <= len(tokens):
                tokens[position - 1] = hidden(tokens[position - 1])
        return b".".join(tokens)

    subjects = pa.array([hide(name) for name in census.rows["subject"].to_pylist()], pa.binary())
    rows = census.rows.set_column(0, "subject", subjects)
    about = census.about.model_copy(update={"redacted": tuple(sorted(set(positions)))})
    return PortableCensus(about, summed(rows))
