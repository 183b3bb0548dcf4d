"""The audit job: what split the weights of a mapping gave, into `weight_audit`.

Spark counts messages by mapping, destination, cluster and hour in one pass; `nats_transform.audit`
judges the counts, which are few whatever the size of the archive.

An expected audit counts `transformed_messages`, or replays `messages` where they have not been
transformed under this very mapping version.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any
from typing import Literal as OneOf

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from jobs import tables
from jobs.errors import ArchiveError
from jobs.transform import transformed
from nats_transform import AccountMappings, Fate, Mapping
from nats_transform.audit import (
    ClustersAudit,
    Criteria,
    End,
    Period,
    RuleAudit,
    Tally,
    Verdict,
    assess,
    is_audited,
)
from nats_transform.functions import Left, Literal, Partition, Random, Right, Token, Wildcard

WEIGHT_AUDIT = tables.table_spec(
    "weight_audit",
    {
        "stream": T.StringType(),
        "day": T.DateType(),
        "kind": T.StringType(),
        "mapping_version": T.StringType(),
        "mapping_source": T.StringType(),
        "cluster": T.StringType(),
        "from_ts": T.TimestampType(),
        "to_ts": T.TimestampType(),
        "mapping_destination": T.StringType(),
        "end": T.StringType(),
        "weight": T.DoubleType(),
        "expected": T.DoubleType(),
        "messages": T.LongType(),
        "count": T.LongType(),
        "ambiguous": T.LongType(),
        "share": T.DoubleType(),
        "low": T.DoubleType(),
        "high": T.DoubleType(),
        "verdict": T.StringType(),
        "messages_to_decide": T.LongType(),
        "method": T.StringType(),
        "p_value": T.DoubleType(),
        "tolerance": T.DoubleType(),
        "confidence": T.DoubleType(),
        "comparisons": T.LongType(),
        "run_id": T.StringType(),
    },
)
"""One row for each destination of a rule and bucket (hour or day)."""

MOST_PARTITIONS = 1024
"""The balance of more partitions is not worth a row each."""

_HOUR_MICROS = 3_600_000_000


class AuditError(ArchiveError):
    """Messages that cannot be audited."""


class AuditSettings(BaseModel):
    """What to audit.

    Attributes:
        stream: whose messages.
        mapping: the file with the weights.
        warehouse: where the tables are.
        account: whose mappings in the file, where it has several.
        first_day: the first day; with `last_day` None too, every day there is.
        last_day: the last day; None is `first_day` alone.
        seed: of the replay.
        cluster: count this cluster only; messages without a cluster are taken to be of it.
        by: the buckets that get a verdict of their own.
        tolerance: percentage points that a share may be off.
        confidence: of all intervals together.
        run_id: of whoever runs the job, kept with the snapshot; one is made up if None.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    stream: str
    mapping: Path
    warehouse: tables.Warehouse = tables.Warehouse()
    account: str = "$G"
    first_day: date | None = None
    last_day: date | None = None
    seed: int = 0
    cluster: str | None = None
    by: OneOf["hour", "day"] = "day"
    tolerance: float = 1.0
    confidence: float = 0.99
    run_id: str | None = None

    @model_validator(mode="after")
    def _checked(self) -> AuditSettings:
        if self.last_day is not None and (self.first_day is None or self.last_day < self.first_day):
            raise ValueError("the last day needs a first day that is not after it")
        _ = self.criteria
        return self

    @property
    def criteria(self) -> Criteria:
        """What splits are held against."""
        return Criteria(self.tolerance, self.confidence, self.by)

    @property
    def days(self) -> list[date] | None:
        """Every day of the range; None for all that the archive has."""
        if self.first_day is None:
            return None
        last = self.last_day or self.first_day
        return [self.first_day + timedelta(days=n) for n in range((last - self.first_day).days + 1)]


class PartitionBalance(BaseModel):
    """How `partition()` of one destination spread the messages.

    Attributes:
        source: of the mapping.
        destination: with the `partition()`.
        partitions: how many there are.
        counts: of messages for each partition number, from 0 on.
        busiest: messages of the busiest partition over the mean.
    """

    source: str
    destination: str
    partitions: int
    counts: tuple[int, ...]
    busiest: float


class AuditResult(BaseModel):
    """What an audit found: the JSON of `nats-transform audit --json`.

    Attributes:
        verdict: `outside` if a rule is, else `undecided` if one is, else `within`;
            `nothing to audit` without weights or messages.
        kind: `expected` by replay, or `observed` after the mapping.
        basis: the table that was counted.
        stream: whose messages.
        from_, to: of the hours that have messages, the end excluded.
        by, tolerance, confidence: as asked for.
        comparisons: how many intervals share the error that the confidence allows.
        mapping_version: of the mapping file and the seed.
        messages: that were looked at.
        fates: how many of them for each fate.
        rules: one for each mapping with weights and each cluster.
        clusters: each mapping over all its clusters.
        partitions: the balance of every `partition()`.
        notes: what else the reader must know, in sentences.
        input_snapshot: the snapshot that was read.
        run_id: as kept with the snapshot.
        snapshot_id: of `weight_audit`; null if there was nothing to write.
    """

    model_config = ConfigDict(frozen=True, serialize_by_alias=True, validate_by_name=True)

    verdict: Verdict
    kind: OneOf["expected", "observed"]
    basis: str
    stream: str
    from_: Annotated[datetime | None, Field(alias="from")] = None
    to: datetime | None = None
    by: OneOf["hour", "day"]
    tolerance: float
    confidence: float
    comparisons: int
    mapping_version: str
    messages: int
    fates: dict[str, int]
    rules: tuple[RuleAudit, ...]
    clusters: tuple[ClustersAudit, ...] = ()
    partitions: tuple[PartitionBalance, ...] = ()
    notes: tuple[str, ...] = ()
    input_snapshot: int | None = None
    run_id: str
    snapshot_id: int | None = None


def audit(spark: SparkSession, settings: AuditSettings) -> AuditResult:
    """The verdict on the weights, also written to `weight_audit`.

    Raises:
        InvalidConfig: the mapping file.
        WarehouseError: tables that cannot be read or written.
        AuditError: messages that cannot be audited.
    """
    from nats_transform.config import load_mappings, mapping_version

    mappings = load_mappings(settings.mapping, settings.account)
    if not isinstance(mappings, AccountMappings):
        raise AuditError(
            f"{settings.mapping} is a stream's configuration, which has no weights: "
            "give a file with the mappings of an account"
        )
    return run(spark, settings, mappings, mapping_version(mappings, settings.seed))


def run(
    spark: SparkSession, settings: AuditSettings, mappings: AccountMappings, version: str
) -> AuditResult:
    """`audit` with mappings that are loaded already."""
    run_id = settings.run_id or str(uuid.uuid4())
    audited = [mapping for mapping in mappings.mappings if is_audited(mapping)]
    if not audited:
        return AuditResult(
            verdict=Verdict.NOTHING,
            kind="expected",
            basis="",
            stream=settings.stream,
            by=settings.by,
            tolerance=settings.tolerance,
            confidence=settings.confidence,
            comparisons=0,
            mapping_version=version,
            messages=0,
            fates={},
            rules=(),
            notes=(f"no mapping in {settings.mapping} has weights: nothing to audit",),
            run_id=run_id,
        )
    counted = _expected(spark, settings, mappings, version)
    notes = _unlabelled(counted, audited)
    found = assess([Period(mappings, version)], counted.tallies, settings.criteria)
    result = AuditResult(
        verdict=found.verdict,
        kind="expected",
        basis=counted.basis,
        stream=settings.stream,
        from_=min((rule.from_ for rule in found.rules if rule.from_), default=None),
        to=max((rule.to for rule in found.rules if rule.to), default=None),
        by=settings.by,
        tolerance=settings.tolerance,
        confidence=settings.confidence,
        comparisons=found.comparisons,
        mapping_version=version,
        messages=sum(counted.fates.values()),
        fates=counted.fates,
        rules=found.rules,
        clusters=found.clusters,
        partitions=tuple(_partitions(counted.rows, audited)),
        notes=tuple(notes),
        input_snapshot=counted.snapshot,
        run_id=run_id,
    )
    return result.model_copy(update={"snapshot_id": _publish(spark, settings, result)})


@dataclass(frozen=True)
class _Counted:
    """The counts of an archive, and where they are from.

    Attributes:
        rows: transformed messages with their `hour`.
        basis: what was counted.
        snapshot: of the table that was read.
        counts: one row for each mapping, destination, fate, cluster and hour.
    """

    rows: DataFrame
    basis: str
    snapshot: int | None
    counts: list[dict[str, Any]]

    @property
    def fates(self) -> dict[str, int]:
        fates = {fate.value: 0 for fate in Fate}
        for row in self.counts:
            fates[row["fate"]] += row["count"]
        return fates

    @property
    def tallies(self) -> list[Tally]:
        return [
            Tally(
                row["cluster"],
                row["hour"],
                (End(row["mapping_source"], row["mapping_destination"] or ""),),
                row["count"],
            )
            for row in self.counts
            if row["mapping_source"] is not None
        ]

    def of_cluster(self, cluster: str | None) -> _Counted:
        """The counts of one cluster; None is all of them."""
        if cluster is None:
            return self
        return replace(
            self,
            rows=self.rows.where(F.col("cluster") == cluster),
            counts=[row for row in self.counts if row["cluster"] == cluster],
        )


def _expected(
    spark: SparkSession, settings: AuditSettings, mappings: AccountMappings, version: str
) -> _Counted:
    """The counts of what the mapping makes of the archive."""
    catalog = tables.open_catalog(settings.warehouse)
    days: set[date] = set()
    if catalog.table_exists((tables.NAMESPACE, tables.MESSAGES.name)):
        there = tables.days_of(
            tables.open_table(settings.warehouse, tables.MESSAGES), settings.stream
        )
        days = {day for day in there if settings.days is None or day in settings.days}
    spec = tables.TRANSFORMED
    if catalog.table_exists((tables.NAMESPACE, spec.name)):
        table = tables.open_table(settings.warehouse, spec)
        rows = tables.read(spark, table, spec, settings.stream, settings.days)
        counted = _count(rows.where(F.col("mapping_version") == version), spec.name, table)
        labelled = all(row["cluster"] is not None for row in counted.counts)
        complete = days <= {row["hour"].date() for row in counted.counts}
        if counted.counts and complete and (settings.cluster is None or labelled):
            return counted.of_cluster(settings.cluster)
    # Not transformed under this very mapping, or only in part: replay the messages.
    spec = tables.MESSAGES
    table = tables.open_table(settings.warehouse, spec)
    rows = tables.read(spark, table, spec, settings.stream, settings.days)
    if settings.cluster is not None:
        rows = rows.withColumn("cluster", F.coalesce("cluster", F.lit(settings.cluster)))
    replayed = transformed(rows, mappings, version, settings.seed)
    counted = _count(replayed, f"{spec.name}, replayed", table).of_cluster(settings.cluster)
    if not counted.counts:
        of_cluster = f" of cluster {settings.cluster}" if settings.cluster else ""
        raise AuditError(
            f"no messages of stream {settings.stream}{of_cluster} on {_range(settings)}; "
            "ingest them, or check the stream, the cluster and the days"
        )
    return counted


def _count(rows: DataFrame, basis: str, table: Table) -> _Counted:
    # The hour as a whole number: truncating a timestamp goes through a calendar for every row.
    hours = rows.withColumn(
        "hour", F.call_function("div", F.unix_micros("ts"), F.lit(_HOUR_MICROS))
    )
    groups = hours.groupBy("mapping_source", "mapping_destination", "fate", "cluster", "hour")
    counts = [row.asDict() for row in groups.count().collect()]
    for row in counts:
        row["hour"] = datetime.fromtimestamp(row["hour"] * 3600, UTC)
    snapshot = table.current_snapshot()
    return _Counted(hours, basis, None if snapshot is None else snapshot.snapshot_id, counts)


def _range(settings: AuditSettings) -> str:
    if settings.first_day is None:
        return "any day"
    if settings.last_day in (None, settings.first_day):
        return str(settings.first_day)
    return f"{settings.first_day}..{settings.last_day}"


def _unlabelled(counted: _Counted, audited: Sequence[Mapping]) -> list[str]:
    """What to say of messages without a cluster where a mapping has clusters.

    Raises:
        AuditError: no message of such a mapping has one.
    """
    notes = []
    for mapping in audited:
        mine = [row for row in counted.counts if row["mapping_source"] == mapping.source]
        if not mapping.clusters or not mine:
            continue
        total = sum(row["count"] for row in mine)
        without = sum(row["count"] for row in mine if row["cluster"] is None)
        if without == total:
            raise AuditError(
                f"mapping {mapping.source} has weights for clusters, but none of its "
                f"{total:,} messages says its cluster: give --cluster NAME, or ingest again "
                "with --cluster or --cluster-header"
            )
        if without:
            notes.append(
                f"{without:,} of {total:,} messages of {mapping.source} do not say their cluster: "
                "they are held against the weights for all clusters"
            )
    return notes


def _partitions(rows: DataFrame, audited: Sequence[Mapping]) -> Iterator[PartitionBalance]:
    """The balance of every `partition()` whose place in the mapped subject is fixed."""
    places = [
        (mapping.source, share.destination, place, token.count)
        for mapping in audited
        for cluster in (None, *mapping.clusters)
        for share in mapping.shares(cluster)
        if share.destination is not None and share.transform is not None
        for place, token in _partition_token(share.transform.tokens)
    ]
    places = list(dict.fromkeys(places))
    if not places:
        return
    is_end = [
        (F.col("mapping_source") == source) & (F.col("mapping_destination") == destination)
        for source, destination, _, _ in places
    ]
    tokens = F.split("mapped_subject", r"\.")
    number = F.lit(None).cast("string")
    for condition, (_, _, place, _) in zip(is_end, places, strict=True):
        number = F.when(condition, F.try_element_at(tokens, F.lit(place))).otherwise(number)
    # Without a filter: of a replay Spark would push it down, and with it a copy of the replay.
    groups = rows.groupBy("mapping_source", "mapping_destination", number.alias("number"))
    found = {
        (row["mapping_source"], row["mapping_destination"], int(row["number"])): row["count"]
        for row in groups.count().collect()
        if row["number"] is not None
    }
    for source, destination, _, count in places:
        counts = tuple(found.get((source, destination, n), 0) for n in range(count))
        mean = sum(counts) / count
        yield PartitionBalance(
            source=source,
            destination=destination,
            partitions=count,
            counts=counts,
            busiest=max(counts) / mean if mean else 0.0,
        )


def _partition_token(tokens: Sequence[Token]) -> Iterator[tuple[int, Partition]]:
    """The first `partition()` of a destination, with its 1-based place in the mapped subject."""
    for place, token in enumerate(tokens, start=1):
        if isinstance(token, Partition):
            if 1 < token.count <= MOST_PARTITIONS:
                yield place, token
            return
        if not isinstance(token, Literal | Wildcard | Left | Right | Random):
            return  # how many tokens it makes depends on the subject


def _publish(spark: SparkSession, settings: AuditSettings, result: AuditResult) -> int | None:
    """The snapshot of `weight_audit` that has the result.

    It takes the place of an earlier audit of the same days, kind and mapping version.
    """
    rows = list(_table_rows(result))
    if not rows:
        return None
    days = sorted({row[1] for row in rows})
    table = tables.open_table(settings.warehouse, WEIGHT_AUDIT, create=True)
    new = spark.createDataFrame(rows, WEIGHT_AUDIT.spark_schema)
    others = tables.read(spark, table, WEIGHT_AUDIT, settings.stream, days).where(
        (F.col("kind") != result.kind) | (F.col("mapping_version") != result.mapping_version)
    )
    staged = tables.stage(others.unionByName(new).coalesce(1), table, WEIGHT_AUDIT)
    snapshot = result.input_snapshot
    return tables.publish(
        table,
        staged,
        settings.stream,
        days,
        replace=True,
        properties={
            "job": "audit",
            "stream": settings.stream,
            "kind": result.kind,
            "verdict": result.verdict.value,
            "messages": str(result.messages),
            **{fate: str(count) for fate, count in result.fates.items()},
            "mapping-version": result.mapping_version,
            "input-snapshot": "" if snapshot is None else str(snapshot),
            "run-id": result.run_id,
        },
    )


def _table_rows(result: AuditResult) -> Iterator[tuple[Any, ...]]:
    """The rows of `weight_audit` for a result."""
    for rule in result.rules:
        for split in rule.buckets or (rule,):
            if split.from_ is None:
                continue
            for end in split.destinations:
                yield (
                    result.stream,
                    split.from_.date(),
                    result.kind,
                    rule.mapping_version,
                    rule.source,
                    rule.cluster,
                    split.from_,
                    split.to,
                    end.destination,
                    end.end,
                    end.weight,
                    end.expected,
                    split.messages,
                    end.count,
                    end.ambiguous,
                    end.share,
                    end.low,
                    end.high,
                    end.verdict.value,
                    end.messages_to_decide,
                    split.test.method if split.test else None,
                    split.test.p_value if split.test else None,
                    result.tolerance,
                    result.confidence,
                    result.comparisons,
                    result.run_id,
                )
