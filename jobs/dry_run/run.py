"""The dry run job: what a candidate mapping would do to the subjects a stream really had.

Spark adds the `subject_census` up by subject, wherever the archive is, and its workers look at the
sums with `nats_transform.migration`; the driver adds up what they count. A small census the driver
reads and looks at by itself. Days whose census is missing, or counts other than `messages` has, are
counted first.
"""

from __future__ import annotations

import json
import pickle
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import model_validator
from pyiceberg.table import Table
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.census import CENSUS, CensusSettings, census
from jobs.days import StreamDays
from jobs.dry_run.simulate import SimulatedStream, simulate
from jobs.errors import ArchiveError, JobError
from jobs.session import Spark, started
from jobs.warehouse import tables
from nats_transform import spark as spark_mappings
from nats_transform.config import load, load_mappings, mapping_version, parse_server_config
from nats_transform.errors import NatsTransformError
from nats_transform.findings import Severity
from nats_transform.mapping import AccountMappings
from nats_transform.migration import (
    CensusRow,
    Consumer,
    DryRun,
    Question,
    User,
    dry_run_of_parts,
    parse_consumer,
    users_of,
)
from nats_transform.stream import StreamConfig
from nats_transform.subject import decode

_ROWS_AT_ONCE = 50_000
"""Rows of a census in a part; the driver has what was counted of a few parts in memory."""

_ROWS_HERE = 200_000
"""A census of no more rows is looked at by the driver: Spark's first query takes as long."""

MOST_FLOWS = 200
"""So many are told; a picture shows fewer."""


class DryRunError(JobError):
    """Files that a dry run cannot take."""


class DryRunSettings(StreamDays):
    """What to try on which subjects, which are taken to be as they were published.

    Attributes:
        candidate: the file with the mappings to try.
        current: the file with the mappings there are; None leaves every subject as it is.
        account: whose mappings and permissions, where a file has several accounts.
        streams: folder with the `nats stream info --json` of the account's streams, or one file.
        consumers: the same of `nats consumer info --json`.
        exact: replay every message with its own draw, instead of shares over the census.
        simulate: write what the streams would hold into `simulated_streams`.
        seed: of the draws of both.
        permissions: server configuration whose authorization blocks are held against the change.
    """

    candidate: Path
    current: Path | None = None
    account: str = "$G"
    streams: Path | None = None
    consumers: Path | None = None
    permissions: Path | None = None
    exact: bool = False
    simulate: bool = False
    seed: int = 0

    @model_validator(mode="after")
    def _with_streams(self) -> DryRunSettings:
        if self.consumers is not None and self.streams is None:
            raise ValueError("consumers need the streams that they consume")
        if self.simulate and self.streams is None:
            raise ValueError("to simulate streams, give their configurations")
        return self


@dataclass(frozen=True, slots=True)
class Inputs:
    """What the files of the settings hold."""

    candidate: AccountMappings
    current: AccountMappings
    streams: tuple[StreamConfig, ...]
    consumers: tuple[Consumer, ...]
    users: tuple[User, ...]


@dataclass(frozen=True, slots=True)
class DryRunResult:
    """What a dry run found, and of what, so that it can be had again.

    Attributes:
        found: the findings.
        stream: whose subjects.
        days: that have any.
        candidate, current: names of the mapping files; None: no current mappings.
        candidate_version, current_version: SHA-256 of what they say.
        streams, consumers, users: how many were held against the change.
        seed: of the draws, if messages were replayed; None: weights count as shares.
        census_snapshot, input_snapshot: of `subject_census` and `messages`.
        run_id: of this run.
        simulated: what became of the messages in each stream, if that was asked for.
        simulated_snapshot: of `simulated_streams`.
        simulated_seed: of the draws of that.
    """

    found: DryRun
    stream: str
    days: tuple[date, ...]
    candidate: str
    current: str | None
    candidate_version: str
    current_version: str
    streams: int
    consumers: int
    users: int
    seed: int | None
    census_snapshot: int | None
    input_snapshot: int | None
    run_id: str
    simulated: tuple[SimulatedStream, ...] = ()
    simulated_snapshot: int | None = None
    simulated_seed: int | None = None

    @property
    def counts(self) -> dict[Severity, int]:
        """How many findings of each severity."""
        counts = Counter(finding.severity for finding in self.found.findings)
        return {severity: counts[severity] for severity in Severity}

    def fails(self, mildest: str) -> bool:
        """Whether a finding is at least as bad as this severity."""
        return any(f.severity.rank <= Severity(mildest).rank for f in self.found.findings)

    def as_json(self) -> dict[str, Any]:
        """One document: `summary`, `findings`, and what they rest on."""
        found = asdict(self.found)
        told = {name: found.pop(name) for name in ("findings", "changes", "partitions", "levels")}
        flows = found.pop("flows")[:MOST_FLOWS]
        reverse = [
            {"source": m.source, "destination": m.destinations[0].subject}
            for m in self.found.reverse
        ]
        found.pop("reverse")
        about = {
            name: getattr(self, name)
            for name in self.__dataclass_fields__
            if name not in ("found", "days")
        }
        summary = {
            **about,
            "simulated": [asdict(stream) for stream in self.simulated],
            "days": [day.isoformat() for day in self.days],
            **found,
            **{severity.value: count for severity, count in self.counts.items()},
        }
        return {"summary": summary, **told, "flows": flows, "reverse": reverse}


def read_inputs(settings: DryRunSettings) -> Inputs:
    """What the files hold; quick, and nothing but the files is needed.

    Raises:
        InvalidConfig: a configuration that nats-server refuses, with its line and column.
        DryRunError: a file that is not what it should be.
    """
    streams: dict[str, StreamConfig] = {}
    for path in _json_files(settings.streams, "nats stream info NAME --json"):
        config = load(path)
        if not isinstance(config, StreamConfig):
            raise DryRunError(f"{path}: mappings, where a stream configuration is wanted")
        if config.name in streams:
            raise DryRunError(f"{path}: stream {config.name} is in another file too")
        streams[config.name] = config
    consumers = []
    for path in _json_files(settings.consumers, "nats consumer info STREAM NAME --json"):
        consumer = _consumer(path)
        if consumer.stream not in streams:
            raise DryRunError(
                f"{path}: its stream {consumer.stream} is not among the streams; save that too"
            )
        consumers.append(consumer)
    current = settings.current
    return Inputs(
        candidate=load_mappings(settings.candidate, settings.account),
        current=load_mappings(current, settings.account) if current else AccountMappings(()),
        streams=tuple(streams.values()),
        consumers=tuple(consumers),
        users=tuple(
            users_of(parse_server_config(settings.permissions), settings.account)
            if settings.permissions
            else ()
        ),
    )


def dry_run(spark: Spark, settings: DryRunSettings) -> DryRunResult:
    """What the candidate would do.

    Args:
        spark: a session, or what gives one; it is asked only where Spark has work to do.
        settings: what to try on which subjects.

    Raises:
        InvalidConfig, DryRunError: as `read_inputs`.
        ArchiveError: the stream has no messages on these days.
        WarehouseError: tables that cannot be read or written.
    """
    inputs = read_inputs(settings)
    question = Question(
        inputs.candidate, inputs.current, inputs.streams, inputs.consumers, inputs.users
    )
    messages, days = _days(settings)
    census_snapshot = None
    if settings.exact:
        archived = tables.read(started(spark), messages, tables.MESSAGES, settings.stream, days)
        rows = replayed(archived, inputs, settings.seed)
        found = _looked_at(rows, _rows(messages, settings.stream, days), question)
    else:
        table = _census(spark, settings, messages, days)
        census_snapshot = _snapshot(table)
        most = _rows(table, settings.stream, days)
        if most <= _ROWS_HERE:
            found = dry_run_of_parts(_Here(added_up_here(table, settings.stream, days)), question)
        else:
            rows = tables.read(started(spark), table, CENSUS, settings.stream, days)
            found = _looked_at(rows, most, question)
    run_id = settings.run_id or str(uuid.uuid4())
    candidate_version = mapping_version(inputs.candidate)
    simulated: tuple[SimulatedStream, ...] = ()
    simulated_snapshot = None
    if settings.simulate:
        simulated, simulated_snapshot = simulate(
            settings.warehouse,
            settings.stream,
            tables.read(started(spark), messages, tables.MESSAGES, settings.stream, days),
            inputs.candidate,
            inputs.streams,
            seed=settings.seed,
            properties={
                "job": "simulate",
                "stream": settings.stream,
                "days": f"{days[0]}..{days[-1]}",
                "mapping-version": candidate_version,
                "seed": str(settings.seed),
                "input-snapshot": str(_snapshot(messages)),
                "run-id": run_id,
            },
        )
    return DryRunResult(
        found=found,
        stream=settings.stream,
        days=tuple(days),
        candidate=settings.candidate.name,
        current=settings.current.name if settings.current else None,
        candidate_version=candidate_version,
        current_version=mapping_version(inputs.current),
        streams=len(inputs.streams),
        consumers=len(inputs.consumers),
        users=len(inputs.users),
        seed=settings.seed if settings.exact else None,
        census_snapshot=census_snapshot,
        input_snapshot=_snapshot(messages),
        run_id=run_id,
        simulated=simulated,
        simulated_snapshot=simulated_snapshot,
        simulated_seed=settings.seed if settings.simulate else None,
    )


def _looked_at(rows: DataFrame, most: int, question: Question) -> DryRun:
    """What Spark's workers find in at most so many rows of a census."""
    sums = added_up(rows, 1 + most // _ROWS_AT_ONCE).persist(StorageLevel.DISK_ONLY)
    try:
        with tempfile.TemporaryFile() as overflow:
            return dry_run_of_parts(_Parts(sums), question, overflow)
    finally:
        sums.unpersist()


def added_up(rows: DataFrame, parts: int) -> DataFrame:
    """One row for each subject and cluster of a census, over all days.

    Args:
        rows: of the census, or of messages.
        parts: how many to make; in each, the rows of a subject follow one another.
    """
    keys = [name for name in _KEYS if name in rows.columns]
    return (
        # As bytes, because Python would not take text that is not UTF-8.
        rows.withColumns({name: F.col(name).cast("binary") for name in ("subject", *keys)})
        .repartition(parts, "subject")
        .groupBy("subject", *keys)
        .agg(F.sum("messages").alias("messages"), F.sum("bytes").alias("bytes"))
        .sortWithinPartitions("subject", *keys)
    )


_KEYS = ("cluster", "before", "after")


def added_up_here(table: Table, stream: str, days: Sequence[date]) -> pa.Table:
    """One row for each subject and cluster of a small census, in order."""
    read = list(tables.batches(table, stream, days, ["subject", "cluster", "messages", "bytes"]))
    rows = pa.Table.from_batches(read)
    keys = ["subject", "cluster"]
    # As bytes, because Python would not take text that is not UTF-8.
    for position, name in enumerate(keys):
        rows = rows.set_column(position, name, rows[name].cast(pa.binary()))
    sums = (
        rows.group_by(keys)
        .aggregate([("messages", "sum"), ("bytes", "sum")])
        .select([*keys, "messages_sum", "bytes_sum"])
    )
    # Spark sorts null first.
    order = ["subject", "in a cluster", "cluster"]
    sums = sums.append_column(order[1], sums["cluster"].is_valid())
    return sums.sort_by([(key, "ascending") for key in order]).drop_columns(order[1])


def replayed(messages: DataFrame, inputs: Inputs, seed: int) -> DataFrame:
    """A census of the messages with the destinations that they draw."""
    for name, mappings in (("before", inputs.current), ("after", inputs.candidate)):
        messages = spark_mappings.apply(mappings, messages, seed=seed).select(
            *messages.columns, F.col("mapping_destination").alias(name)
        )
    return messages.groupBy("subject", *_KEYS).agg(
        F.count(F.lit(1)).alias("messages"),
        F.coalesce(F.sum(F.octet_length("data")), F.lit(0)).alias("bytes"),
    )


@dataclass(frozen=True, slots=True)
class _Here:
    """The sums of a small census, in this process."""

    sums: pa.Table

    def each(self, work: Callable[[Iterable[CensusRow]], Any]) -> Iterator[Any]:
        """What some work gives."""
        yield work(_rows_of(self.sums.to_batches(max_chunksize=10_000)))


class _Parts:
    """The sums of a census where Spark has them; work goes there, and what it finds comes here."""

    def __init__(self, sums: DataFrame) -> None:
        self._sums = sums

    def each(self, work: Callable[[Iterable[CensusRow]], Any]) -> Iterator[Any]:
        """What some work gives for each part, a few of them in memory at a time."""

        def found(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
            yield pa.RecordBatch.from_arrays(
                [pa.array([pickle.dumps(work(_rows_of(batches)))], pa.large_binary())], ["found"]
            )

        rows = self._sums.mapInArrow(found, "found binary").persist(StorageLevel.DISK_ONLY)
        try:
            rows.count()  # all workers at once: the iterator would have one part made at a time
            for row in rows.toLocalIterator():
                yield pickle.loads(row["found"])  # noqa: S301 - our own workers wrote it
        finally:
            rows.unpersist()


def _rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[CensusRow]:
    """The rows of a census that was added up."""
    for batch in batches:
        columns = [column.to_pylist() for column in batch.columns]
        for *names, messages, size in zip(*columns, strict=True):
            subject, cluster, *drawn = [None if n is None else decode(n) for n in names]
            chosen = (drawn[0], drawn[1]) if drawn else None
            yield CensusRow(subject, cluster, messages, size, chosen)


def _days(settings: DryRunSettings) -> tuple[Table, list[date]]:
    """The archive, and the days on which it has messages."""
    messages = tables.open_table(settings.warehouse, tables.MESSAGES)
    there = tables.days_of(messages, settings.stream)
    if not there:
        raise ArchiveError(
            f"{'.'.join(messages.name())} has no messages of stream {settings.stream!r}; "
            "ingest it or check the name"
        )
    days = [day for day in there if settings.days is None or day in settings.days]
    if not days:
        raise ArchiveError(
            f"stream {settings.stream!r} has no messages on these days; "
            f"it has them from {there[0]} to {there[-1]}"
        )
    return messages, days


def _census(
    spark: Spark,
    settings: DryRunSettings,
    messages: Table,
    days: Sequence[date],
) -> Table:
    """The census table, with all messages of these days counted."""
    table = tables.open_table(settings.warehouse, CENSUS, create=True)
    counted = _by_day(table, settings.stream, days)
    behind = [day for day in days if counted.get(day) != _rows(messages, settings.stream, [day])]
    for first, last in _runs(behind):
        census(
            started(spark),
            CensusSettings(
                stream=settings.stream,
                warehouse=settings.warehouse,
                first_day=first,
                last_day=last,
                run_id=settings.run_id,
            ),
        )
    return tables.open_table(settings.warehouse, CENSUS) if behind else table


def _snapshot(table: Table) -> int | None:
    snapshot = table.current_snapshot()
    return None if snapshot is None else snapshot.snapshot_id


def _rows(table: Table, stream: str, days: Sequence[date]) -> int:
    return sum(file.record_count for file in tables.data_files(table, stream, days))


def _by_day(table: Table, stream: str, days: Sequence[date]) -> Counter[date]:
    """The messages that the census has counted on each day."""
    found: Counter[date] = Counter()
    for batch in tables.batches(table, stream, days, ["day", "messages"]):
        # A file has rows of one day.
        found[batch["day"][0].as_py()] += pc.sum(batch["messages"]).as_py()
    return found


def _runs(days: Sequence[date]) -> Iterator[tuple[date, date]]:
    """First and last of the days that follow one another."""
    start = 0
    for n, day in enumerate(days, 1):
        if n == len(days) or days[n] - day != timedelta(days=1):
            yield days[start], day
            start = n


def _json_files(place: Path | None, command: str) -> list[Path]:
    if place is None:
        return []
    files = sorted(place.glob("*.json")) if place.is_dir() else [place]
    if not files:
        raise DryRunError(f"{place}: no *.json files; save each with `{command}`")
    return files


def _consumer(path: Path) -> Consumer:
    try:
        return parse_consumer(json.loads(path.read_text("utf-8")))
    except OSError as error:
        raise DryRunError(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        told = error if isinstance(error, NatsTransformError) else "this is no JSON"
        raise DryRunError(f"{path}: {told}") from error
