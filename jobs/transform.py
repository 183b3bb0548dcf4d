"""The transform job: messages of an archive under a mapping, into `transformed_messages`.

The work is cut into tasks on files (`jobs.files`): each reads some files of a day, maps the
messages with the compiled kernel, writes one file, counts the fates and computes the digest. Small
work is done in this process, large work by Spark; both run the same tasks. Then one commit replaces
the days.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from importlib import metadata
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table
from pyiceberg.types import IcebergType

from jobs.errors import AccountingError, ArchiveError, Refused
from jobs.files.commit import arrow_schema, staged
from jobs.files.plan import plan
from jobs.files.run import engine_of, run, session_for
from jobs.files.sequences import SequencesOfFiles, find_repeated
from jobs.files.storage import Storage
from jobs.files.task import Task
from jobs.files.transform import WORDS, Done, TransformTask
from jobs.progress import step
from jobs.session import Spark
from jobs.settings.transform import TransformSettings
from jobs.warehouse import specs, staging, tables, versions
from jobs.warehouse.accounting import Archived
from nats_transform import AccountMappings, Fate
from nats_transform.digest import Digest
from nats_transform.kernel import compile_mappings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MESSAGE_COLUMNS = ("stream", "seq", "day", "subject", "cluster")
"""The columns of `messages` without which there is nothing to transform."""


@dataclass(frozen=True)
class TransformResult:
    """The result of a run.

    Attributes:
        stream: the name of the stream.
        days: the days that have messages, ascending.
        messages: the number of messages.
        fates: the number of messages of each fate.
        mapping_version: the version of the mappings and the seed.
        seed: the seed of the settings.
        digest: the digest of the rows in any order; see `nats_transform.digest`.
        archive_digest: the digest that the ingest computed for the messages; null if the table was
            not made by our ingest.
        input_snapshot: the snapshot of `messages` that was read.
        run_id: the id of the run, which is also kept with the snapshot.
        engine: what did the work: `process` (this process) or `spark`.
        snapshot_id: the new snapshot of `transformed_messages`; None before it is published.
    """

    stream: str
    days: tuple[date, ...]
    messages: int
    fates: dict[str, int]
    mapping_version: str
    seed: int
    digest: str
    archive_digest: str | None
    input_snapshot: int | None
    run_id: str
    engine: str
    snapshot_id: int | None = None

    def fails(self, level: str) -> bool:
        """Whether the days have no messages; `empty` is the only level."""
        return not self.days

    def properties(self) -> dict[str, str]:
        """The properties of the snapshot."""
        return {
            "job": "transform",
            "stream": self.stream,
            "messages": str(self.messages),
            **{fate: str(count) for fate, count in self.fates.items()},
            "mapping-version": self.mapping_version,
            "tool-version": metadata.version("nats-transform"),
            "seed": str(self.seed),
            "digest": self.digest,
            "archive-digest": self.archive_digest or "",
            "input-snapshot": "" if self.input_snapshot is None else str(self.input_snapshot),
            "run-id": self.run_id,
        }


@dataclass(frozen=True)
class StagedTransform:
    """Transformed messages in files that are not part of the table yet.

    Look at them, then `publish` them, or raise what `refused` returns.

    Attributes:
        settings: the settings of the run.
        table: `transformed_messages`, as it was before the run.
        files: the staged files.
        result: counts and digest of the rows.
        messages: how many messages these days have, as the table says.
        read: the digest of the messages that the tasks read.
        archive: the digest that the ingest computed for them; the same as `read` if the table was
            not made by our ingest.
        before: the digest that the last run over the same messages, mappings and seed published.
    """

    settings: TransformSettings
    table: Table
    files: staging.Staged
    result: TransformResult
    messages: int
    read: Digest
    archive: Digest
    before: str | None

    def refused(self, why: object) -> Refused:
        """The error of a run whose files must not be published. The files are kept for people."""
        return Refused(
            f"a check refused the transformed messages of {self.result.stream}: "
            f"{why}; nothing was published, the files are in {self.files.folder}"
        )


def transform(spark: Spark, settings: TransformSettings) -> TransformResult:
    """Apply the mappings to the messages of some days, and publish the result in one commit.

    The mappings are recorded in the warehouse, where later jobs find those of a row.

    Args:
        spark: a session, or a function that gives one, called only if the work is large.
        settings: what to transform.

    Raises:
        InvalidConfig: the mapping file.
        WarehouseError: tables that cannot be read or written.
        ArchiveError: messages that cannot be transformed; found before anything is written.
        AccountingError: not as many rows as messages, or not the messages that were ingested;
            nothing was published.
    """
    from nats_transform.config import load_mappings, mapping_version

    mappings = load_mappings(settings.mapping, settings.account)
    version = mapping_version(mappings, settings.seed)
    staged = stage(spark, settings, mappings, version)
    versions.record(settings.warehouse, mappings, account=settings.account, seed=settings.seed)
    return publish(staged)


def stage(
    spark: Spark, settings: TransformSettings, mappings: AccountMappings, version: str
) -> StagedTransform:
    """Apply the mappings to the messages of some days, and write files without publishing them.

    Args:
        spark: a session, or a function that gives one, called only if the work is large.
        settings: what to transform; the mapping file is not read.
        mappings: the mappings.
        version: the version of the mappings and the seed.

    Raises:
        WarehouseError, ArchiveError: as `transform`.
        KernelUnavailable: the compiled kernel is missing.
    """
    source = tables.open_table(settings.warehouse, specs.MESSAGES)
    check_table(source)
    there = tables.days_of(source, settings.stream)
    if not there:
        raise Archived.none(source, settings.stream)
    target = tables.open_table(settings.warehouse, specs.TRANSFORMED, create=True)
    files = tables.data_files(source, settings.stream, settings.days)
    tasks = plan(source, files)
    archived = Archived.of(source, settings.stream)
    session = session_for(spark, sum(task.size for task in tasks))
    with staging.new_files(target) as folder:
        work = TransformTask(
            storage=Storage.of(target),
            folder=folder,
            read=arrow_schema(specs.MESSAGES.schema),
            messages=tuple(specs.MESSAGES.rows.names),
            rows=tuple(specs.TRANSFORMED.rows.names),
            stored=arrow_schema(target.schema(), WORDS),
            program=compile_mappings(mappings, settings.seed),
            version=version,
        )
        with step(f"mapping {settings.stream}", sum(file.record_count for file in files)):
            done = run(work, tasks, session)
        check_sequences(source, settings.stream, tasks, done, session)
        new = staged(target, folder, (one.written for one in done))
    read = Digest(sum(one.written.rows for one in done), sum(one.archive for one in done) % 2**64)
    archive = archived.digest_of(settings.days) if archived.messages else read
    fates = sum((Counter(one.fates) for one in done), Counter[str]())
    result = TransformResult(
        stream=settings.stream,
        days=tuple(day for day in there if settings.days is None or day in settings.days),
        messages=read.rows,
        fates={fate.value: fates[fate.value] for fate in Fate},
        mapping_version=version,
        seed=settings.seed,
        digest=str(Digest(read.rows, sum(one.digest for one in done) % 2**64)),
        archive_digest=str(archive) if archived.messages else None,
        input_snapshot=tables.snapshot_id(source),
        run_id=settings.run_id or str(uuid.uuid4()),
        engine=engine_of(session),
    )
    return StagedTransform(
        settings=settings,
        table=target,
        files=new,
        result=result,
        messages=sum(file.record_count for file in files),
        read=read,
        archive=archive,
        before=_before(target, result),
    )


def check_sequences(
    table: Table,
    stream: str,
    tasks: Sequence[Task],
    done: Sequence[Done],
    session: SparkSession | None,
) -> None:
    """Refuses messages without a sequence, and a sequence that two messages have.

    Raises:
        ArchiveError: there is such a message; the text names the sequence.
    """
    repeated = find_repeated(
        SequencesOfFiles(Storage.of(table)),
        [(task, one.runs, one.written.rows) for task, one in zip(tasks, done, strict=True)],
        session,
    )
    what = None if repeated is None else f"sequence {repeated} more than once"
    if any(one.missing for one in done):
        what = "a message without a sequence"
    if what is not None:
        raise ArchiveError(
            f"{'.'.join(table.name())} has {what} in stream {stream!r}; "
            "nothing was published, ingest the stream again"
        )


def publish(staged: StagedTransform) -> TransformResult:
    """Replace the rows of the staged days by the staged files, in one commit.

    Nothing is published for days that have no messages, and had none before.

    Raises:
        AccountingError: not as many rows as messages, or not the messages that were ingested; the
            files are deleted.
        ConcurrentWrite: another job changed these days meanwhile; the files are deleted.
        WarehouseError: the table cannot be written.
    """
    settings, result = staged.settings, staged.result
    fault = None
    if result.messages != staged.messages:
        fault = f"{staged.messages} messages became {result.messages} rows"
    elif staged.read != staged.archive:
        fault = (
            f"{staged.archive.rows} messages with digest {staged.archive} were ingested, but "
            f"{staged.read.rows} rows with digest {staged.read} were read, so a file was changed"
        )
    if fault is not None:
        staging.drop(staged.files, staged.table)
        raise AccountingError(f"stream {settings.stream}: {fault}; nothing was published")
    if not result.days and not tables.data_files(staged.table, settings.stream, settings.days):
        staging.drop(staged.files, staged.table)
        return result
    published = staging.publish(
        staged.table,
        staged.files,
        settings.stream,
        settings.days,
        replace=True,
        properties=result.properties(),
    )
    return replace(result, snapshot_id=published)


def _before(target: Table, result: TransformResult) -> str | None:
    """The digest that the last run over the same messages, mappings and seed published."""
    # Another release may make other rows on purpose.
    same = ("stream", "mapping-version", "archive-digest", "tool-version")
    wanted = result.properties()
    for snapshot in reversed(target.metadata.snapshots if result.archive_digest else []):
        found = tables.properties_of(snapshot)
        if all(found.get(name) == wanted[name] for name in same):
            return found.get("digest")
    return None


def check_table(table: Table) -> None:
    """Refuses a `messages` table without the columns or partitions that a transform needs.

    Raises:
        ArchiveError: a column is missing or has another type, or files hold several days.
    """
    columns = {field.name: field.field_type for field in table.schema().fields}
    for field in specs.MESSAGES.schema.fields:
        found, wanted = columns.get(field.name), field.field_type
        if found is None and field.name not in MESSAGE_COLUMNS:
            continue
        if found is None or _arrow(found) != _arrow(wanted):
            is_what = "is missing" if found is None else f"is {found}"
            raise ArchiveError(
                f"{'.'.join(table.name())}: column {field.name} {is_what}, it must be {wanted}; "
                "ingest the stream again"
            )
    names = {field.field_id: field.name for field in table.schema().fields}
    partitions = [(names.get(f.source_id), str(f.transform)) for f in table.spec().fields]
    if partitions != [(name, "identity") for name in specs.MESSAGES.partitions]:
        those = ", ".join(f"{transform} of {name}" for name, transform in partitions) or "nothing"
        raise ArchiveError(
            f"{'.'.join(table.name())} is partitioned by {those}, it must be by the values of "
            f"{' and '.join(specs.MESSAGES.partitions)}; ingest the stream again"
        )


def _arrow(kind: IcebergType) -> pa.DataType:
    """A column's type without the numbers that Iceberg gives to what is nested in it."""
    return schema_to_pyarrow(kind, include_field_ids=False)
