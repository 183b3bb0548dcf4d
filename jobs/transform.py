"""The transform job: messages of an archive under a mapping, into `transformed_messages`.

The work is cut into tasks on files (`jobs.files`): each reads some files of a day, maps the
messages with the compiled kernel, writes one file, counts the fates and computes the digest. Small
work is done in this process, large work by Spark; both run the same tasks. Then one commit replaces
the days.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import date
from functools import partial
from importlib import metadata
from typing import TYPE_CHECKING

import pyarrow as pa
from pydantic import Field
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table
from pyiceberg.types import IcebergType

from expectations.transformed import transformed_messages_suite
from jobs import gate
from jobs.errors import AccountingError, ArchiveError, JobError
from jobs.files.commit import arrow_schema, staged
from jobs.files.engine import engine_of, run
from jobs.files.read import MANY_ROWS
from jobs.files.scan import Scan
from jobs.files.sequences import find_repeated
from jobs.files.storage import Storage
from jobs.files.transform import WORDS, Done, Quarantine, Sift, TransformTask
from jobs.progress import step
from jobs.session import Spark
from jobs.settings.transform import TransformSettings
from jobs.warehouse import branches, specs, staging, tables, versions
from jobs.warehouse.accounting import Archived
from jobs.warehouse.staging import Staged
from jobs.warehouse.tables import data_files
from nats_transform import AccountMappings, Fate
from nats_transform.digest import Digest
from nats_transform.kernel import compile_mappings
from nats_transform.kernel.messages import NARROW, WIDE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MESSAGE_COLUMNS = ("stream", "seq", "day", "subject", "cluster")
"""The columns of `messages` without which there is nothing to transform."""


class TransformResult(gate.GatedResult):
    """The result of a run.

    Attributes:
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
        erased: how many messages of these days were erased before.
        columns: `outcomes` if the rows leave times, headers and payloads to `messages`.
        quarantined: how many messages went to `quarantined_messages` instead, by the reason.
    """

    days: tuple[date, ...]
    messages: int
    fates: dict[str, int]
    mapping_version: str
    seed: int
    digest: str
    archive_digest: str | None
    input_snapshot: int | None
    run_id: str
    erased: int = 0
    columns: str = "all"
    quarantined: dict[str, int] = Field(default_factory=dict)

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
            "quarantined": str(sum(self.quarantined.values())),
            "columns": self.columns,
        }


def transform(
    spark: Spark,
    settings: TransformSettings,
    mappings: AccountMappings | None = None,
    *,
    also: gate.Also | None = None,
    sift: Sift | None = None,
) -> TransformResult:
    """Apply the mappings to the messages of some days, and publish the result in one commit.

    The mappings are recorded in the warehouse, where later jobs find those of a row. Rows that the
    checks refuse are not published; the result says why.

    Args:
        mappings: the mappings, if they are known; else they are read from the file.
        also: what must hold of the rows besides.
        sift: finds the rows that go to `quarantined_messages` instead, whose digest adds up with
            that of the others to the digest of the archive.

    Raises:
        InvalidConfig: the mapping file.
        WarehouseError: tables that cannot be read or written.
        ArchiveError: messages that cannot be transformed; found before anything is written.
        AccountingError: not as many rows as messages, or not the messages that were ingested, in a
            run without checks; nothing was published.
        ConcurrentWrite: another job changed these days meanwhile; nothing was published.
        KernelUnavailable: the compiled kernel is missing.
    """
    from nats_transform.config import load_mappings, mapping_version

    if sift is not None and settings.columns == "outcomes":
        raise JobError("quarantine-needs-all-columns")
    if mappings is None:
        mappings = load_mappings(settings.mapping, settings.account)
    version = mapping_version(mappings, settings.seed)
    source = tables.open_table(settings.warehouse, specs.MESSAGES)
    check_table(source)
    there = tables.days_of(source, settings.stream)
    if not there:
        raise Archived.none(source, settings.stream)
    branches.fork(settings.warehouse)
    target = tables.open_table(settings.warehouse, specs.TRANSFORMED, create=True)
    files = tables.data_files(source, settings.stream, settings.days)
    scan = Scan.of(source, specs.MESSAGES, files, most=MANY_ROWS)
    tasks, count = scan.tasks, scan.count
    archived = Archived.of(source, settings.stream)
    session = scan.session(spark)
    aside_table = tables.find_table(settings.warehouse, specs.QUARANTINED)
    if sift is not None:
        aside_table = tables.open_table(settings.warehouse, specs.QUARANTINED, create=True)
    # Listed now, because an erasure meanwhile would delete the lists.
    aside_files = data_files(aside_table, settings.stream, settings.days) if aside_table else []
    with ExitStack() as folders:
        folder = folders.enter_context(staging.new_files(target))
        quarantine = None
        if sift is not None and aside_table is not None:
            apart = folders.enter_context(staging.new_files(aside_table))
            quarantine = Quarantine(sift, apart, arrow_schema(aside_table.schema(), WORDS))
        is_narrow = settings.columns == "outcomes"
        narrow = archived.narrow_of(settings.days) if archived.messages and is_narrow else None
        is_known = archived.messages > 0 and (narrow is not None or not is_narrow)
        reader, stored = scan.reader, arrow_schema(target.schema(), WORDS)
        if is_narrow:
            reader = reader.only(NARROW)
            stored = pa.schema([field for field in stored if field.name not in WIDE])
        work = TransformTask(
            storage=Storage.of(target),
            folder=folder,
            reader=reader,
            stored=stored,
            program=compile_mappings(mappings, settings.seed),
            version=version,
            # The gate computes them of what it reads back, if it knows what the archive's must be.
            is_digested=settings.no_checks or not is_known,
            quarantine=quarantine,
        )
        with step(f"mapping {settings.stream}", count):
            done = run(work, tasks, session)
        check_sequences(scan, source, settings.stream, done, session)
        new = staged(target, folder, filter(None, (result.written for result in done)))
        rows = sum(result.rows for result in done)
        aside = sum((result.aside_digest for result in done), Digest())
        read = Digest(rows, sum((result.archive for result in done), Digest()).total)
        archive = Digest(count - aside.rows, read.total)
        ingested = archived.digest_of(settings.days) - aside
        if is_known:
            archive = ingested if narrow is None else narrow
        if settings.no_checks:
            _check_accounts(settings.stream, count - aside.rows, read, archive)
    fates = sum((result.fates for result in done), Counter[str]())
    result = TransformResult(
        stream=settings.stream,
        days=tuple(day for day in there if settings.days is None or day in settings.days),
        messages=rows,
        fates={fate.value: fates[fate.value] for fate in Fate},
        mapping_version=version,
        seed=settings.seed,
        digest=str(sum((result.digest for result in done), Digest())),
        archive_digest=str(ingested) if archived.messages else None,
        input_snapshot=tables.snapshot_id(source),
        run_id=settings.run_id or str(uuid.uuid4()),
        engine=engine_of(session),
        erased=archived.erased_on(settings.days),
        columns=settings.columns,
        quarantined=dict(sum((task.reasons for task in done), Counter[str]())),
    )
    if result.days:
        versions.record(settings.warehouse, mappings, account=settings.account, seed=settings.seed)

    def set_aside() -> Callable[[], object]:
        """Publishes the rows for the quarantine; gives what puts back those that were there."""
        rejected = [task.aside for task in done if task.aside is not None]
        if aside_table is None or not (aside_files or rejected):
            return lambda: None
        apart = folder if quarantine is None else quarantine.folder

        def put(files: Staged) -> None:
            properties = {
                "job": "transform",
                "stream": settings.stream,
                "messages": str(sum(file.record_count for file in files.data_files)),
                "mapping-version": version,
                "run-id": result.run_id,
            }
            which = (settings.stream, settings.days)
            staging.publish(aside_table, files, *which, replace=True, properties=properties)

        put(staged(aside_table, apart, rejected))
        # A failure must not delete what is there.
        return partial(put, Staged("", tuple(aside_files)))

    check = None
    if not settings.no_checks:
        suite = transformed_messages_suite(
            mappings,
            archive=archive,
            seed=settings.seed,
            version=version,
            before=_before(target, result),
            tolerance=settings.tolerance,
            confidence=settings.confidence,
        )
        check = gate.Check(specs.TRANSFORMED, suite, also)
    passage = gate.publish(
        spark,
        target,
        new,
        settings.stream,
        settings.days,
        check=check,
        replace=True,
        properties=result.properties(),
        source=(source, files),
        before=set_aside,
    )
    report = passage.report
    digest = result.digest if report is None else str(report.measures.digest)
    return result.model_copy(update={"digest": digest, **passage._asdict()})


def _check_accounts(stream: str, messages: int, read: Digest, archive: Digest) -> None:
    """Refuses rows that were not made of the messages that were ingested.

    Raises:
        AccountingError: they were not.
    """
    if read.rows != messages:
        fault = f"{messages} messages became {read.rows} rows"
    elif read != archive:
        fault = (
            f"{archive.rows} messages with digest {archive} were ingested, but "
            f"{read.rows} rows with digest {read} were read, so a file was changed"
        )
    else:
        return
    raise AccountingError("transform-differs", stream=stream, fault=fault)


def check_sequences(
    scan: Scan,
    table: Table,
    stream: str,
    done: Sequence[Done],
    session: SparkSession | None,
) -> None:
    """Refuses messages without a sequence, and a sequence that two messages have.

    Raises:
        ArchiveError: there is such a message; the text names the sequence.
    """
    tasks = zip(scan.tasks, done, strict=True)
    repeated = find_repeated(
        scan.reader.only(["seq"]),
        [
            (task, result.sequences.runs, result.rows + result.aside_digest.rows)
            for task, result in tasks
        ],
        session,
    )
    what = None if repeated is None else f"sequence {repeated} more than once"
    if any(result.sequences.missing for result in done):
        what = "a message without a sequence"
    if what is not None:
        raise ArchiveError(
            "table-has-broken-rows", table=".".join(table.name()), what=what, stream=stream
        )


def _before(target: Table, result: TransformResult) -> str | None:
    """The digest that the last run over the same messages, mappings and seed published."""
    # Another release may make other rows on purpose.
    # The digest of the archive is that of the rows which are not in quarantine.
    same = ("stream", "mapping-version", "archive-digest", "tool-version", "columns")
    wanted = result.properties()
    for snapshot in reversed(target.metadata.snapshots if result.archive_digest else []):
        properties = tables.properties_of(snapshot)
        if all(properties.get(name) == wanted[name] for name in same):
            return properties.get("digest")
    return None


def check_table(table: Table) -> None:
    """Refuses a `messages` table without the columns or partitions that a transform needs.

    Raises:
        ArchiveError: a column is missing or has another type, or files hold several days.
    """
    columns = {field.name: field.field_type for field in table.schema().fields}
    for field in specs.MESSAGES.schema.fields:
        kind, wanted = columns.get(field.name), field.field_type
        if kind is None and field.name not in MESSAGE_COLUMNS:
            continue
        if kind is None or _arrow(kind) != _arrow(wanted):
            is_what = "is missing" if kind is None else f"is {kind}"
            raise ArchiveError(
                "table-column-otherwise",
                table=".".join(table.name()),
                column=field.name,
                is_what=is_what,
                wanted=wanted,
            )
    names = {field.field_id: field.name for field in table.schema().fields}
    partitions = [(names.get(f.source_id), str(f.transform)) for f in table.spec().fields]
    if partitions != [(name, "identity") for name in specs.MESSAGES.partitions]:
        those = ", ".join(f"{transform} of {name}" for name, transform in partitions) or "nothing"
        raise ArchiveError(
            "table-partitioned-otherwise",
            table=".".join(table.name()),
            those=those,
            partitions=" and ".join(specs.MESSAGES.partitions),
        )


def _arrow(kind: IcebergType) -> pa.DataType:
    """A column's type without the numbers that Iceberg gives to what is nested in it."""
    return schema_to_pyarrow(kind, include_field_ids=False)
