"""The transform job: messages of an archive under a mapping, into `transformed_messages`.

One pass reads the messages, maps them, writes Parquet files, counts the fates and computes the
digest. Then one commit replaces the days.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.types import IcebergType
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from jobs.days import StreamDays
from jobs.errors import (
    SPARK_ERRORS,
    AccountingError,
    ArchiveError,
    Refused,
    job_error,
)
from jobs.session import Spark, started
from jobs.warehouse import tables
from jobs.warehouse.accounting import Archived
from nats_transform import AccountMappings, Fate
from nats_transform import spark as compiled
from nats_transform.spark import digest
from nats_transform.spark.digest import Digest

MESSAGE_COLUMNS = ("stream", "seq", "day", "subject", "cluster")
"""The columns of `messages` without which there is nothing to transform."""


FILE_BYTES = 128 * 2**20
"""What a file of a day grows to where small ones are put together: what Spark reads in one task."""
_SMALL = 8  # files this many times too small are put together: it costs a shuffle
_DAY = tables.MESSAGES.partitions.index("day")


class TransformSettings(StreamDays):
    """What to transform.

    Attributes:
        mapping: the file with the mappings.
        account: whose mappings in the file, where it has several.
        seed: decides every draw, with the stream and the sequence of a message.
    """

    mapping: Path
    account: str = "$G"
    seed: int = 0


@dataclass(frozen=True)
class TransformResult:
    """What a run did.

    Attributes:
        stream: whose messages.
        days: those that have messages, ascending.
        messages: how many.
        fates: how many of them for each fate.
        mapping_version: of the mappings and the seed.
        seed: as given.
        digest: of the rows, order-independent; see `nats_transform.spark.digest`.
        archive_digest: of the messages they were made from, as the ingest counted them; None for
            a table that was not made by our ingest.
        input_snapshot: the snapshot of `messages` that was read.
        run_id: as kept with the snapshot.
        snapshot_id: of `transformed_messages`; None while nothing is published.
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
    snapshot_id: int | None = None

    def as_json(self) -> dict[str, Any]:
        """The fields as plain JSON values."""
        return {
            "stream": self.stream,
            "days": [day.isoformat() for day in self.days],
            "messages": self.messages,
            "fates": self.fates,
            "mapping_version": self.mapping_version,
            "seed": self.seed,
            "digest": self.digest,
            "archive_digest": self.archive_digest,
            "input_snapshot": self.input_snapshot,
            "run_id": self.run_id,
            "snapshot_id": self.snapshot_id,
        }

    def properties(self) -> dict[str, str]:
        """What the snapshot keeps."""
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
        settings: of the run.
        table: `transformed_messages`, as it was before the run.
        files: the staged files.
        result: counts and digest of the rows.
        messages: how many messages the archive has for these days.
        archive: the digest of these messages: as the ingest counted them, or, in a table that was
            not made by our ingest, as they are read now.
        before: the digest that the last run over the same messages, mappings and seed published.
    """

    settings: TransformSettings
    table: Table
    files: tables.Staged
    result: TransformResult
    messages: int
    archive: Digest
    before: str | None

    def rows(self, spark: Spark) -> DataFrame:
        """The transformed messages, read back from the files."""
        return tables.read_files(started(spark), self.files.paths, tables.TRANSFORMED)

    def refused(self, why: object) -> Refused:
        """The error of a run whose files must not be published; they are kept to look at."""
        return Refused(
            f"a check refused the transformed messages of {self.result.stream}: "
            f"{why}; nothing was published, the files are in {self.files.folder}"
        )


def transform(spark: Spark, settings: TransformSettings) -> TransformResult:
    """What was published: the days' messages as the mappings make them, in one commit.

    Args:
        spark: a session, or what gives one once the files and tables are found to be right.
        settings: what to transform.

    Raises:
        InvalidConfig: the mapping file.
        WarehouseError: tables that cannot be read or written.
        ArchiveError: messages that cannot be transformed; found before anything is written.
        AccountingError: not as many rows as messages; nothing was published.
    """
    from nats_transform.config import load_mappings, mapping_version

    mappings = load_mappings(settings.mapping, settings.account)
    version = mapping_version(mappings, settings.seed)
    return publish(stage(spark, settings, mappings, version))


def stage(
    spark: Spark, settings: TransformSettings, mappings: AccountMappings, version: str
) -> StagedTransform:
    """The days' messages as the mappings make them, in files that are not published yet.

    Args:
        spark: a session, or what gives one once the files and tables are found to be right.
        settings: what to transform; the mapping file is not read.
        mappings: the mappings.
        version: of the mappings and the seed.

    Raises:
        WarehouseError, ArchiveError: as `transform`.
    """
    source = tables.open_table(settings.warehouse, tables.MESSAGES)
    check_table(source)
    target = tables.open_table(settings.warehouse, tables.TRANSFORMED, create=True)
    session = started(spark)
    messages = tables.read(session, source, tables.MESSAGES, settings.stream, settings.days)
    try:
        days = check_messages(source, messages, settings)
    except SPARK_ERRORS as error:
        raise job_error(error) from error
    files = tables.data_files(source, settings.stream, settings.days)
    rows = transformed(gathered(messages, files), mappings, version, settings.seed)

    seen = Observation("transform")
    counts = [F.count_if(F.col("fate") == fate.value).alias(fate.value) for fate in Fate]
    sums = digest.aggregates(rows.schema)
    staged = tables.stage(rows.observe(seen, *counts, *sums), target, tables.TRANSFORMED)
    values = seen.get if days else {}
    snapshot = source.current_snapshot()
    archived = Archived.of(source, settings.stream)
    archive = archived.digest_of(settings.days) if archived.messages else None
    result = TransformResult(
        stream=settings.stream,
        days=days,
        messages=sum(int(values.get(fate.value, 0)) for fate in Fate),
        fates={fate.value: int(values.get(fate.value, 0)) for fate in Fate},
        mapping_version=version,
        seed=settings.seed,
        digest=str(digest.from_row(values) if values else Digest()),
        archive_digest=None if archive is None else str(archive),
        input_snapshot=None if snapshot is None else snapshot.snapshot_id,
        run_id=settings.run_id or str(uuid.uuid4()),
    )
    return StagedTransform(
        settings=settings,
        table=target,
        files=staged,
        result=result,
        messages=sum(file.record_count for file in files),
        archive=digest.digest(messages) if archive is None else archive,
        before=_before(target, result),
    )


def publish(staged: StagedTransform) -> TransformResult:
    """What the table has once the staged files take the place of those of their days.

    Raises:
        AccountingError: not as many rows as messages; the files are deleted.
        ConcurrentWrite: another job changed these days meanwhile; the files are deleted.
        WarehouseError: the table cannot be written.
    """
    settings, result = staged.settings, staged.result
    if result.messages != staged.messages:
        tables.drop(staged.files, staged.table)
        raise AccountingError(
            f"stream {settings.stream}: {staged.messages} messages became {result.messages} rows; "
            "nothing was published"
        )
    published = tables.publish(
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


def transformed(
    messages: DataFrame, mappings: AccountMappings, version: str, seed: int
) -> DataFrame:
    """The rows of `transformed_messages` for those of `messages`."""
    rows = compiled.apply(mappings, messages, seed=seed).withColumn(
        "mapping_version", F.lit(version)
    )
    return rows.select(*tables.TRANSFORMED.spark_schema.names)


def gathered(messages: DataFrame, files: Sequence[DataFile]) -> DataFrame:
    """The messages, those of a day in few tasks if they come from very many small files.

    A task writes a file for each day that it meets, and Spark packs small files of any days into
    one task: as many small files would come out. A single day is packed well as it is.

    Args:
        messages: of one stream.
        files: of the table, that they are read from.
    """
    sizes = Counter[int]()
    for file in files:
        sizes[file.partition[_DAY]] += file.file_size_in_bytes
    parts = {day: -(-size // FILE_BYTES) for day, size in sizes.items()}
    wanted = sum(parts.values())
    if len(parts) < 2 or len(files) <= _SMALL * wanted:
        return messages
    of_day = F.create_map(*[F.lit(one) for pair in parts.items() for one in pair])
    part = F.pmod(F.xxhash64("seq"), F.element_at(of_day, F.unix_date("day")))
    return messages.repartition(wanted, "day", part)


def check_table(table: Table) -> None:
    """Refuses a `messages` table without the columns or partitions that a transform needs.

    Raises:
        ArchiveError: a column is missing or has another type, or files hold several days.
    """
    columns = {field.name: field.field_type for field in table.schema().fields}
    for field in tables.MESSAGES.schema.fields:
        found, wanted = columns.get(field.name), field.field_type
        if found is None and field.name not in MESSAGE_COLUMNS:
            continue
        if found is None or _arrow(found) != _arrow(wanted):
            is_what = "is missing" if found is None else f"is {found}"
            raise ArchiveError(
                f"{'.'.join(table.name())}: column {field.name} {is_what}, must be {wanted}; "
                "ingest the stream again"
            )
    names = {field.field_id: field.name for field in table.schema().fields}
    partitions = [(names.get(f.source_id), str(f.transform)) for f in table.spec().fields]
    if partitions != [(name, "identity") for name in tables.MESSAGES.partitions]:
        those = ", ".join(f"{transform} of {name}" for name, transform in partitions) or "nothing"
        raise ArchiveError(
            f"{'.'.join(table.name())} is partitioned by {those}, must be by the values of "
            f"{' and '.join(tables.MESSAGES.partitions)}; ingest the stream again"
        )


def _arrow(kind: IcebergType) -> pa.DataType:
    """A column's type without the numbers that Iceberg gives to what is nested in it."""
    return schema_to_pyarrow(kind, include_field_ids=False)


def check_messages(
    table: Table, messages: DataFrame, settings: TransformSettings
) -> tuple[date, ...]:
    """The days that have messages.

    Raises:
        ArchiveError: the stream is not there, or a sequence is missing or there twice.
    """
    there = tables.days_of(table, settings.stream)
    if not there:
        raise ArchiveError(
            f"{'.'.join(table.name())} has no messages of stream {settings.stream!r}; "
            "ingest it or check the name"
        )
    wanted = settings.days
    # 64 sequences to a group, one bit each: the groups are few and no row is shuffled.
    group = F.shiftright("seq", 6)
    place = F.col("seq").bitwiseAND(F.lit(63)).cast("int")
    bit = F.call_function("shiftleft", F.lit(1).cast("long"), place)
    groups = messages.groupBy(group.alias("group")).agg(
        F.count(F.lit(1)).alias("rows"), F.bit_count(F.bit_or(bit)).alias("sequences")
    )
    bad = groups.where("group IS NULL OR rows > sequences").orderBy("group").first()
    if bad is not None:
        what = "a message without a sequence"
        if bad["group"] is not None:
            first = bad["group"] << 6
            what = f"a sequence between {first} and {first + 63} more than once"
        raise ArchiveError(
            f"{'.'.join(table.name())} has {what} in stream {settings.stream!r}; "
            "nothing was written, ingest the stream again"
        )
    return tuple(day for day in there if wanted is None or day in wanted)
