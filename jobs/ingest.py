"""The job `ingest`: messages of a stream, from wherever they are, into the table `messages`.

A message that has been archived is never replaced: each run adds the sequences that the table
does not have yet. So a second run changes nothing, a run after a crash goes on from the last
commit, a growing stream is followed, and what a stream's limits have deleted since stays.
Commits are made of whole days; only the day that is still being written grows by later runs.

What the table has of a stream is a property of the table, `nats-transform.stream.<stream>`
(`Archived`), which changes in the same commit as the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel, computed_field
from pyiceberg.table import Table
from pyiceberg.utils.config import Config

from expectations.expectation import report_on
from expectations.messages import measure_messages, messages_suite
from jobs import gate
from jobs.errors import AccountingError, ArchiveError, ConcurrentWrite, JobError
from jobs.files.commit import arrow_schema, staged
from jobs.files.engine import engine_of, run, session_for
from jobs.files.ingest import DayFile, IngestTask
from jobs.files.storage import Storage
from jobs.jetstream.account import fits, stream_origins
from jobs.jetstream.stream import JetStreamSettings
from jobs.progress import step
from jobs.session import Spark
from jobs.settings.ingest import IngestSettings
from jobs.sources.archive import ArchiveSource
from jobs.sources.backup import open_backup, restored
from jobs.sources.blocks import ReadOnce
from jobs.sources.dump import DumpSource
from jobs.sources.files import find_files
from jobs.sources.json_lines import open_json_lines
from jobs.sources.parquet import open_parquet
from jobs.sources.source import Source, Span, StreamSource
from jobs.warehouse.accounting import Archived
from jobs.warehouse.rows import WORDS, Total
from jobs.warehouse.specs import MESSAGES
from jobs.warehouse.staging import new_files
from jobs.warehouse.store import with_endpoint
from jobs.warehouse.tables import find_table, open_table, snapshot_id
from nats_transform.digest import Digest
from nats_transform.errors import did_you_mean
from nats_transform.kernel.coverage import NONE
from nats_transform.words import plural

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROCESS_BYTES = 2**30
"""This process reads up to this many bytes of a stream or a dump, unless a user asks for Spark.

Python code does most of the reading, and in one process only one thread runs Python at a time. With
four or more cores Spark's processes are faster, and above this size they also make up for the time
that Spark takes to start.
"""
_ATTEMPTS = 5  # at a stream that another ingest is busy with


class IngestResult(gate.GatedResult):
    """What the table has of the stream after an ingest, and what this run added to it.

    Attributes:
        messages: how many messages of the stream the table has.
        first_seq, last_seq: the first and the last of their sequences.
        gaps: how many sequences between the first and the last the table does not have.
        erased: how many messages were erased; neither they nor their sequences come back.
        bytes: the size of all payloads.
        digest: the digest of all rows of the stream.
        added: how many messages this run added.
        days: the days that this run added messages to.
        open_day: the last day, if it is not over yet (UTC), so that later runs can add messages to
            it; null if all days are over.
        presumed_lost: how many sequences that a dump lacks count as archived, so that no later
            ingest brings them; 0 unless it has more holes than the table can keep account of.
        files_read: the files of a dump that were read; empty for a stream.
        files_not_read: the files beside them that were not read: markers of Spark, links to
            files that were read, and empty folders of an object store.
    """

    messages: int
    first_seq: int | None
    last_seq: int | None
    gaps: int
    erased: int = 0
    bytes: int
    digest: str
    added: int
    days: list[date]
    open_day: date | None = None
    presumed_lost: int = 0
    files_read: list[str]
    files_not_read: list[str]

    @property
    def warning(self) -> str | None:
        """What a user must know of sequences that no later ingest brings."""
        if not self.presumed_lost:
            return None
        return (
            f"{plural(self.presumed_lost, 'sequence')} that the dump lacks count as archived, as "
            "it has too many holes: no later ingest brings them; ingest all files of a stream at "
            "once (a folder)"
        )


class AccountResult(BaseModel):
    """What came of an ingest of several streams.

    Attributes:
        streams: what the table has of each stream that was read.
        failed: why others were not read.
        refused: which streams lack messages, and why; null if none does.
    """

    streams: list[IngestResult]
    failed: dict[str, str]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def refused(self) -> str | None:
        refused = {result.stream: result.refused for result in self.streams if result.refused}
        reasons = [f"{stream}: {reason}" for stream, reason in (refused | self.failed).items()]
        total = len(self.streams) + len(self.failed)
        return f"{len(reasons)} of {total} streams: {'; '.join(reasons)}" if reasons else None


def ingest_streams(spark: Spark, settings: IngestSettings) -> IngestResult | AccountResult:
    """Ingests one stream, or each that fits a list or a pattern; none holds up the others.

    Raises:
        ArchiveError: the server cannot be reached, or has no such stream; or as `ingest` raises.
    """
    if settings.server is None or not settings.names_several:
        return ingest(spark, settings)
    patterns = [pattern for part in settings.stream.split(",") if (pattern := part.strip())]
    there = stream_origins(settings.server)
    names = sorted(name for name in there if fits(name, patterns))
    if not names:
        raise ArchiveError("no-stream-fits", where=settings.server.where, pattern=settings.stream)
    results = []
    failed = {
        pattern: f"no stream of {settings.server.where} fits it{did_you_mean(pattern, there)}"
        for pattern in patterns
        if not any(fits(name, [pattern]) for name in there)
    }
    for name in names:
        try:
            own = settings.model_copy(update={"stream": name, "may_be_empty": True})
            results.append(ingest(spark, own))
        except JobError as error:
            failed[name] = str(error)
    return AccountResult(streams=results, failed=failed)


def ingest(spark: Spark, settings: IngestSettings) -> IngestResult:
    """Add the messages that the table does not have yet, and return what it then has.

    If the checks refuse messages, no later ones are read; the result says why.

    Args:
        spark: a session, or a function that gives one, called after a server has been asked.

    Raises:
        ArchiveError: the source cannot be read, or is not what has been archived so far.
        AccountingError: what was written is not what was read; it was not published.
        ConcurrentWrite: other ingests of the same stream kept getting in first.
        WarehouseError: the tables cannot be opened or written.
    """
    with _source(spark, settings) as source:
        return _ingest(spark, settings, source)


def _ingest(spark: Spark, settings: IngestSettings, source: Source) -> IngestResult:
    total, days = Digest(), set[date]()
    refused, measures, manifest = None, measure_messages(()), list[Any]()
    added_rows = 0
    session = None
    dump = source if isinstance(source, DumpSource) else None
    for attempt in range(_ATTEMPTS):
        # The source is looked at first, so that its errors come before the warehouse is changed.
        before = Archived.of(find_table(settings.warehouse, MESSAGES), settings.stream)
        spans = source.plan(before.coverage, before.erased_coverage)
        table = open_table(settings.warehouse, MESSAGES, create=True)
        archived = Archived.of(table, settings.stream)
        there = archived.coverage - archived.erased_coverage
        if there and archived.subject != settings.subject:
            raise ArchiveError(
                "ingest-other-filter",
                stream=settings.stream,
                subject=archived.subject or "none",
                wanted=settings.subject or "none",
            )
        try:
            if archived != before:
                raise ConcurrentWrite("archive-changed-meanwhile", stream=settings.stream)
            source.check(table, there)
            if spans:
                session = session_for(spark, sum(span.size for span in spans), PROCESS_BYTES)
            for span in spans:
                what = f"archiving {settings.stream}, sequences {span.first:,} to {span.last:,}"
                with step(what, span.messages):
                    by_day, passage = _add(spark, session, source, span, table, settings)
                if passage.report is not None:
                    measures += passage.report.measures
                    manifest += passage.report.files
                read = sum((of_day.digest for of_day in by_day.values()), Digest())
                total += read
                refused = passage.refused
                if refused is not None:
                    break
                days |= by_day.keys()
                added_rows += read.rows
        except ConcurrentWrite:
            if attempt == _ATTEMPTS - 1:
                raise
            continue
        break
    archived = Archived.of(table, settings.stream)
    report = None
    if measures.days:
        suite = messages_suite(total, archived.explained.ranges)
        report = report_on(measures, suite, manifest)
    last_day = max(archived.days, default=None)
    return IngestResult(
        stream=settings.stream,
        messages=archived.messages,
        first_seq=archived.first_seq,
        last_seq=archived.last_seq,
        gaps=archived.gaps,
        erased=archived.erased_on(),
        bytes=archived.bytes,
        digest=archived.digest,
        snapshot_id=snapshot_id(table),
        added=added_rows,
        days=sorted(days),
        open_day=last_day if last_day and last_day >= datetime.now(UTC).date() else None,
        presumed_lost=dump.presumed_lost if dump else 0,
        files_read=[file.path for file in dump.files.read] if dump else [],
        files_not_read=list(dump.files.left_out) if dump else [],
        engine=engine_of(session),
        report=report,
        refused=refused,
    )


def _add(
    spark: Spark,
    session: SparkSession | None,
    source: Source,
    span: Span,
    table: Table,
    settings: IngestSettings,
) -> tuple[dict[date, Total], gate.Passage]:
    """What was read for one commit, by day, and what became of it at the gate."""
    archived = Archived.of(table, settings.stream)
    read, tasks = source.tasks(span, archived.coverage)
    stored = arrow_schema(table.schema(), frozenset(WORDS))
    with new_files(table) as folder:
        work = IngestTask(Storage.of(table), folder, stored, read)
        files = [file for of_task in run(work, tasks, session) for file in of_task]
        by_day = _totals(files, settings.stream)
        added = sum(by_day.values(), Total())
        least = source.count(span)
        if not least <= added.digest.rows <= span.messages:
            raise AccountingError(
                "ingest-count-differs",
                stream=settings.stream,
                first=span.first,
                last=span.last,
                least=least,
                messages=span.messages,
                rows=added.digest.rows,
            )
        has = (span.all if span.has is None else span.has) | span.lost
        now = archived.add(has, span.all | span.gone, by_day, settings.subject)
        new = staged(table, folder, (file.written for file in files))
    explained = archived.coverage | span.lost | (span.all - (span.has or NONE))
    suite = messages_suite(added.digest, explained.ranges)
    passage = gate.publish(
        spark,
        table,
        new,
        settings.stream,
        check=None if settings.no_checks else gate.Check(MESSAGES, suite),
        replace=False,
        properties={
            "job": "ingest",
            "run-id": settings.run_id,
            "source": source.kind,
            "stream": settings.stream,
            "messages": str(added.digest.rows),
            "first-seq": str(added.first),
            "last-seq": str(added.last),
            "bytes": str(added.bytes),
            "digest": str(added.digest),
        },
        table_properties={Archived.key(settings.stream): now.model_dump_json()},
    )
    return by_day, passage


def _totals(files: Iterable[DayFile], stream: str) -> dict[date, Total]:
    """What the files have of each day.

    Raises:
        AccountingError: a file does not have as many rows as were read for it.
    """
    totals: dict[date, Total] = {}
    for file in files:
        if file.written.rows != file.total.digest.rows:
            raise AccountingError(
                "ingest-file-differs",
                stream=stream,
                rows=file.total.digest.rows,
                path=file.written.path,
                written=file.written.rows,
            )
        totals[file.day] = totals.get(file.day, Total()) + file.total
    return totals


@contextmanager
def _source(spark: Spark, settings: IngestSettings) -> Iterator[Source]:
    stream = settings.stream
    if settings.server is not None:
        of_stream = _stream_settings(settings, settings.from_stream or stream)
        yield StreamSource(
            settings.server,
            of_stream,
            settings.publish_messages,
            may_be_empty=settings.may_be_empty,
        )
    elif settings.backup is not None:
        backup = open_backup(settings.backup)
        of_stream = _stream_settings(settings, backup.stream)
        if backup.is_archive():
            yield ArchiveSource(backup, of_stream, settings.publish_messages)
            return
        with restored(backup) as nats:
            yield StreamSource(nats, of_stream, settings.publish_messages, "backup")
    else:
        with _dump(spark, settings) as dump:
            yield dump


@contextmanager
def _dump(spark: Spark, settings: IngestSettings) -> Iterator[DumpSource]:
    path = settings.parquet or settings.jsonl or ""
    kind, opened = ("parquet", open_parquet) if settings.parquet else ("jsonl", open_json_lines)
    catalog = settings.warehouse.catalog
    # Keys of an object store are those of the warehouse.
    keys = Config().get_catalog_config(catalog) if catalog else None
    storage = Storage(with_endpoint(cast(dict[str, str], keys or {})))
    # Only Spark's workers may be able to see the files, if Spark was asked for.
    (files,) = run(partial(find_files, storage), [path], session_for(spark, 0))
    session = session_for(spark, files.size, PROCESS_BYTES)
    read, blocks = opened(storage, files, settings, session)
    with ReadOnce(read) as once:
        which = once if settings.jsonl else read  # Parquet is as quick to read again
        yield DumpSource(
            which, blocks, files, settings.stream, kind, session, settings.may_be_empty
        )


def _stream_settings(settings: IngestSettings, name: str) -> JetStreamSettings:
    shared = settings.model_dump(include=set(JetStreamSettings.model_fields))
    return JetStreamSettings.model_validate(shared | {"stream": name, "label": settings.stream})
