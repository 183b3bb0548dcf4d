"""The audit job: what split the weights of a mapping gave, into `weight_audit`.

Spark counts messages by mapping, destination, cluster and hour in one pass; `nats_transform.audit`
judges the counts, which are few whatever the size of the archive.

An expected audit counts `transformed_messages`, or replays `messages` where they have not been
transformed under this very mapping version. An observed audit counts `messages` that were stored
after the mapping, and reads their destination back from their subject (`jobs.audit.attribution`).
"""

from __future__ import annotations

import contextlib
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import reduce
from pathlib import Path
from typing import Annotated, Any
from typing import Literal as OneOf

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from jobs.audit.attribution import (
    HOUR_MICROS,
    Attribution,
    attribute,
    cluster_names,
    with_keys,
)
from jobs.days import StreamDays
from jobs.errors import ArchiveError, NoTable
from jobs.session import Spark, started
from jobs.transform import transformed
from jobs.warehouse import tables
from nats_transform import Fate
from nats_transform import Mapping as SubjectMapping
from nats_transform.audit import (
    Assessment,
    ClustersAudit,
    Criteria,
    End,
    Hours,
    Period,
    RuleAudit,
    Scope,
    Tally,
    Verdict,
    assess,
    is_audited,
)
from nats_transform.config import load_mappings, mapping_version
from nats_transform.errors import printable
from nats_transform.functions import Left, Literal, Partition, Random, Right, Token, Wildcard
from nats_transform.spark.digest import hash_of
from nats_transform.subject import Filter, is_valid_filter

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

MOST_BALANCES = 50
"""Destinations whose partitions are counted: each is one more case of a column."""


class AuditError(ArchiveError):
    """Messages that cannot be audited."""


class InForce(BaseModel):
    """A mapping file that came into force at some time."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    since: AwareDatetime
    mapping: Path


class Published(BaseModel):
    """How many messages were published to the source of a mapping, from a counter.

    Attributes:
        source: of the mapping.
        messages: how many.
        cluster: where; None if the messages of the archive say no cluster.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: str
    messages: int = Field(ge=0)
    cluster: str | None = None


class AuditSettings(StreamDays):
    """What to audit.

    Attributes:
        mapping: the file with the weights.
        account: whose mappings in the file, where it has several.
        seed: of the replay.
        cluster: count this cluster only; messages without a cluster are taken to be of it.
        by: the buckets that get a verdict of their own.
        tolerance: percentage points that a share may be off.
        confidence: of all intervals together.
        key: number of a wildcard of the source: report how many of its values saw more than one
            destination.
        in_force: mapping files that took over from `mapping`, each held against its own time.
        observed: the messages were stored after the mapping.
        source_stream: observed only: the same messages as they were published; what was lost or
            is not captured is inferred from them.
        published: observed only: the same from counters.
        captured: observed only: filters of the subjects that the archive holds.
        publishers: observed only: filters of subjects that something else publishes to as well.
    """

    mapping: Path
    account: str = "$G"
    seed: int = 0
    cluster: str | None = None
    by: OneOf["hour", "day"] = "day"
    tolerance: float = 1.0
    confidence: float = 0.99
    key: int | None = Field(default=None, ge=1)
    in_force: tuple[InForce, ...] = ()
    observed: bool = False
    source_stream: str | None = None
    published: tuple[Published, ...] = ()
    captured: tuple[str, ...] = ()
    publishers: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _checked(self) -> AuditSettings:
        times = [version.since for version in self.in_force]
        if times != sorted(set(times)):
            raise ValueError("the mapping files in force must be given in the order of their times")
        if not self.observed and (
            self.source_stream or self.published or self.captured or self.publishers
        ):
            raise ValueError(
                "a source stream, counters, captured subjects and publishers are of an observed "
                "audit only"
            )
        if self.source_stream and self.published:
            raise ValueError("give a source stream or counters of what was published, not both")
        for filter in (*self.captured, *self.publishers):
            if not is_valid_filter(filter):
                raise ValueError(f"{printable(filter)} is not a valid subject filter")
        _ = self.criteria
        return self

    @property
    def criteria(self) -> Criteria:
        """What splits are held against."""
        return Criteria(self.tolerance, self.confidence, self.by)


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


class KeyStickiness(BaseModel):
    """How many keys saw more than one destination: weights are drawn per message, not per key.

    Attributes:
        source: of the mapping.
        wildcard: number of the source's wildcard that is the key.
        keys: how many values it had.
        split: how many of them saw more than one destination.
    """

    source: str
    wildcard: int
    keys: int
    split: int


class MappingInForce(BaseModel):
    """A mapping version, and from when to when it was in force; null is open."""

    mapping_version: str
    since: datetime | None
    until: datetime | None


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
        mapping_version: of the mapping file and the seed; the last one in force.
        in_force: all versions.
        messages: that were looked at.
        fates: how many of them for each fate; if observed, how many could be attributed to one
            destination, are ambiguous, and are none of a mapping with weights.
        rules: one for each mapping with weights, each cluster and mapping version.
        clusters: each mapping over all its clusters.
        partitions: the balance of every `partition()`; expected only.
        keys: who saw more than one destination, if asked for.
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
    in_force: tuple[MappingInForce, ...] = ()
    messages: int
    fates: dict[str, int]
    rules: tuple[RuleAudit, ...]
    clusters: tuple[ClustersAudit, ...] = ()
    partitions: tuple[PartitionBalance, ...] = ()
    keys: tuple[KeyStickiness, ...] = ()
    notes: tuple[str, ...] = ()
    input_snapshot: int | None = None
    run_id: str
    snapshot_id: int | None = None

    def fails(self, level: str) -> bool:
        """Whether the verdict is as bad as `outside`."""
        return self.verdict is Verdict(level)


def audit(spark: Spark, settings: AuditSettings) -> AuditResult:
    """The verdict on the weights, also written to `weight_audit`.

    Raises:
        InvalidConfig: a mapping file.
        WarehouseError: tables that cannot be read or written.
        AuditError: messages that cannot be audited.
    """
    return run(spark, settings, periods_of(settings))


def periods_of(settings: AuditSettings) -> list[Period]:
    """The mapping versions that the settings name, loaded."""
    files = [(None, settings.mapping), *((v.since, v.mapping) for v in settings.in_force)]
    ends = [since for since, _ in files[1:]] + [None]
    periods = []
    for (since, path), until in zip(files, ends, strict=True):
        mappings = load_mappings(path, settings.account)
        periods.append(Period(mappings, mapping_version(mappings, settings.seed), since, until))
    return periods


def run(spark: Spark, settings: AuditSettings, periods: Sequence[Period]) -> AuditResult:
    """`audit` with mappings that are loaded already."""
    audited = [m for period in periods for m in period.mappings.mappings if is_audited(m)]
    if not audited:
        return _result(
            settings,
            periods,
            Assessment(Verdict.NOTHING, (), (), 0),
            notes=(f"no mapping in {settings.mapping} has weights: nothing to audit",),
        )
    session = started(spark)
    if settings.observed:
        result = _observed(session, settings, periods)
    else:
        result = _expected(session, settings, periods)
    return result.model_copy(update={"snapshot_id": _publish(settings, result)})


def _result(
    settings: AuditSettings, periods: Sequence[Period], found: Assessment, **more: Any
) -> AuditResult:
    defaults: dict[str, Any] = {"basis": "", "messages": 0, "fates": {}}
    return AuditResult(
        verdict=found.verdict,
        kind="observed" if settings.observed else "expected",
        stream=settings.stream,
        from_=min((rule.from_ for rule in found.rules if rule.from_), default=None),
        to=max((rule.to for rule in found.rules if rule.to), default=None),
        by=settings.by,
        tolerance=settings.tolerance,
        confidence=settings.confidence,
        comparisons=found.comparisons,
        mapping_version=periods[-1].version,
        in_force=tuple(
            MappingInForce(mapping_version=p.version, since=p.since, until=p.until) for p in periods
        ),
        rules=found.rules,
        clusters=found.clusters,
        run_id=settings.run_id or str(uuid.uuid4()),
        **(defaults | more),
    )


def _expected(
    spark: SparkSession, settings: AuditSettings, periods: Sequence[Period]
) -> AuditResult:
    """The audit of what the mappings make of the archive."""
    audited = [m for period in periods for m in period.mappings.mappings if is_audited(m)]
    counted = _transformed(spark, settings, periods) or _replayed(spark, settings, periods)
    notes = _unlabelled(counted, audited)
    keys = _keys(counted.rows, audited, settings.key) if settings.key else ()
    return _result(
        settings,
        periods,
        assess(periods, counted.tallies, settings.criteria),
        basis=counted.basis,
        messages=sum(counted.fates.values()),
        fates=counted.fates,
        partitions=tuple(
            _partitions(counted.rows, [m for p in periods for m in p.mappings.mappings])
        ),
        keys=tuple(keys),
        notes=tuple(notes),
        input_snapshot=counted.snapshot,
    )


def _observed(
    spark: SparkSession, settings: AuditSettings, periods: Sequence[Period]
) -> AuditResult:
    """The audit of an archive that was stored after the mappings."""
    table = tables.open_table(settings.warehouse, tables.MESSAGES)
    rows = _messages(spark, table, settings, settings.stream)
    source = None
    if settings.source_stream is not None:
        source = _messages(spark, table, settings, settings.source_stream)
    attribution = attribute(
        rows,
        periods,
        source=source,
        captured=settings.captured,
        publishers=settings.publishers,
    )
    total = attribution.attributed + attribution.ambiguous + attribution.other
    if not total:
        raise AuditError(_nothing_there(settings))
    if source is not None and not attribution.published:
        raise AuditError(
            f"stream {settings.source_stream} has no messages that a mapping applies to on "
            f"{_range(settings)}: nothing can be inferred from it"
        )
    published: dict[Scope, Hours] | None = attribution.published
    if settings.published:
        published = {(0, p.source, p.cluster): p.messages for p in settings.published}
    found = assess(
        periods,
        attribution.tallies,
        settings.criteria,
        hidden=attribution.hidden,
        published=published,
    )
    return _result(
        settings,
        periods,
        found,
        basis=tables.MESSAGES.name,
        messages=total,
        fates={
            "attributed": attribution.attributed,
            "ambiguous": attribution.ambiguous,
            "other": attribution.other,
        },
        keys=tuple(_observed_keys(rows, periods, settings.key)) if settings.key else (),
        notes=tuple(_observed_notes(settings, periods, attribution, published)),
        input_snapshot=_snapshot_id(table),
    )


@dataclass(frozen=True)
class _Counted:
    """The counts of an archive, and where they are from.

    Attributes:
        rows: the transformed messages.
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
                row.get("period", 0),
            )
            for row in self.counts
            if row["mapping_source"] is not None
        ]


def _transformed(
    spark: SparkSession, settings: AuditSettings, periods: Sequence[Period]
) -> _Counted | None:
    """The counts of the transformed messages; None unless every day has them, in this version."""
    if len(periods) > 1:
        return None
    try:
        table = tables.open_table(settings.warehouse, tables.TRANSFORMED)
    except NoTable:
        return None
    days: set[date] = set()
    with contextlib.suppress(NoTable):
        messages = tables.open_table(settings.warehouse, tables.MESSAGES)
        there = tables.days_of(messages, settings.stream)
        days = {day for day in there if settings.days is None or day in settings.days}
    rows = _of_version(spark, table, settings, periods[0].version)
    counts = _count(rows, periods)
    if not counts or not days <= {row["hour"].date() for row in counts}:
        return None
    if settings.cluster is not None and any(row["cluster"] is None for row in counts):
        return None  # they were transformed as of no cluster
    if settings.cluster is not None:
        rows = rows.where(F.col("cluster") == settings.cluster)
        counts = [row for row in counts if row["cluster"] == settings.cluster]
        if not counts:
            raise AuditError(_nothing_there(settings))
    return _Counted(rows, tables.TRANSFORMED.name, _snapshot_id(table), counts)


def _of_version(
    spark: SparkSession, table: Table, settings: AuditSettings, version: str
) -> DataFrame:
    """The transformed messages of one mapping version, by whole files where their bounds tell."""
    files = tables.data_files(table, settings.stream, settings.days)
    column = table.schema().find_field("mapping_version").field_id
    bounds = [(f.lower_bounds or {}).get(column) for f in files]
    if None not in bounds and bounds == [(f.upper_bounds or {}).get(column) for f in files]:
        chosen = [f for f, bound in zip(files, bounds, strict=True) if bound == version.encode()]
        return tables.read_files(spark, [f.file_path for f in chosen], tables.TRANSFORMED)
    rows = tables.read_files(spark, [f.file_path for f in files], tables.TRANSFORMED)
    return rows.where(F.col("mapping_version") == version)


def _replayed(spark: SparkSession, settings: AuditSettings, periods: Sequence[Period]) -> _Counted:
    """The counts of the messages, transformed on the fly."""
    table = tables.open_table(settings.warehouse, tables.MESSAGES)
    messages = _messages(spark, table, settings, settings.stream)
    parts, counts = [], []
    for index, period in enumerate(periods):
        part = messages
        if period.since is not None:
            part = part.where(F.col("ts") >= F.lit(period.since))
        if period.until is not None:
            part = part.where(F.col("ts") < F.lit(period.until))
        parts.append(transformed(part, period.mappings, period.version, settings.seed))
        for row in _count(parts[-1], periods):
            row["period"] = index
            row["hour"] = max(row["hour"], period.since) if period.since else row["hour"]
            counts.append(row)
    if not counts:
        raise AuditError(_nothing_there(settings))
    basis = f"{tables.MESSAGES.name}, replayed"
    return _Counted(reduce(DataFrame.unionByName, parts), basis, _snapshot_id(table), counts)


def _messages(spark: SparkSession, table: Table, settings: AuditSettings, stream: str) -> DataFrame:
    """The messages of a stream that the settings ask for."""
    rows = tables.read(spark, table, tables.MESSAGES, stream, settings.days)
    if settings.cluster is not None:
        rows = rows.withColumn("cluster", F.coalesce("cluster", F.lit(settings.cluster)))
        rows = rows.where(F.col("cluster") == settings.cluster)
    return rows


def _count(rows: DataFrame, periods: Sequence[Period]) -> list[dict[str, Any]]:
    """Transformed messages by mapping, destination, fate, cluster and hour."""
    # The hour as a whole number: truncating a timestamp goes through a calendar for every row. The
    # texts as hashes: Spark is far quicker at grouping by numbers, and few texts are possible.
    hour = F.call_function("div", F.unix_micros("ts"), F.lit(HOUR_MICROS)).alias("hour")
    possible = list(dict.fromkeys(_possible_ends(periods)))
    ends = {
        hash_of(destination or source, fate): (source, destination, fate)
        for source, destination, fate in possible
    }
    end = F.xxhash64(F.coalesce("mapping_destination", "mapping_source"), "fate")
    if len(ends) < len(possible):  # a destination of two mappings: the source must count too
        ends = {hash_of(*names): names for names in possible}
        end = F.xxhash64(*_ENDS)
    groups = rows.groupBy(hour, end.alias("end"), F.xxhash64("cluster").alias("cluster"))
    counts = [row.asDict() for row in groups.count().collect()]
    unknown = {row["end"] for row in counts} - ends.keys()
    if unknown:
        raise AuditError(
            "the transformed messages have destinations that the mapping does not: "
            "transform them again"
        )
    clusters = cluster_names(rows, {row["cluster"] for row in counts}, periods)
    for row in counts:
        row |= dict(zip(_ENDS, ends[row["end"]], strict=True))
        row["cluster"] = clusters[row["cluster"]]
        row["hour"] = datetime.fromtimestamp(row["hour"] * 3600, UTC)
    return counts


_ENDS = ("mapping_source", "mapping_destination", "fate")


def _possible_ends(
    periods: Sequence[Period],
) -> Iterator[tuple[str | None, str | None, str]]:
    """Every mapping, destination and fate that a transformed message can have."""
    yield None, None, Fate.UNMATCHED.value
    yield None, None, Fate.INVALID.value
    for period in periods:
        for mapping in period.mappings.mappings:
            for cluster in (None, *mapping.clusters):
                for share in mapping.shares(cluster):
                    if share.destination is None:
                        yield mapping.source, None, Fate.LOST.value
                    else:
                        yield mapping.source, share.destination, Fate.MAPPED.value
                        yield mapping.source, share.destination, Fate.INVALID.value


def _snapshot_id(table: Table) -> int | None:
    snapshot = table.current_snapshot()
    return None if snapshot is None else snapshot.snapshot_id


def _nothing_there(settings: AuditSettings) -> str:
    of_cluster = f" of cluster {settings.cluster}" if settings.cluster else ""
    return (
        f"no messages of stream {settings.stream}{of_cluster} on {_range(settings)}; "
        "ingest them, or check the stream, the cluster and the days"
    )


def _range(settings: AuditSettings) -> str:
    if settings.first_day is None:
        return "any day"
    if settings.last_day in (None, settings.first_day):
        return str(settings.first_day)
    return f"{settings.first_day}..{settings.last_day}"


def _no_cluster(source: str, messages: int) -> AuditError:
    return AuditError(
        f"mapping {source} has weights for clusters, but none of its {messages:,} messages says "
        "its cluster: give --cluster NAME, or ingest again with --cluster or --cluster-header"
    )


def _unlabelled(counted: _Counted, audited: Sequence[SubjectMapping]) -> list[str]:
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
            raise _no_cluster(mapping.source, total)
        if without:
            notes.append(
                f"{without:,} of {total:,} messages of {mapping.source} do not say their cluster: "
                "they are held against the weights for all clusters"
            )
    return notes


def _observed_notes(
    settings: AuditSettings,
    periods: Sequence[Period],
    attribution: Attribution,
    published: Mapping[Scope, Hours] | None,
) -> Iterator[str]:
    """What to say of what the subjects of an archive cannot tell.

    Raises:
        AuditError: no message of a mapping with clusters says its cluster.
    """
    labelled = Counter[str]()
    seen = Counter[Scope]()
    for tally in attribution.tallies:
        for source in {end.source for end in tally.ends}:
            labelled[source] += tally.count
        if len(tally.ends) == 1:
            seen[tally.period, tally.ends[0].source, tally.cluster] += tally.count
    for source, count in attribution.unlabelled.items():
        if not labelled[source]:
            raise _no_cluster(source, count)
        yield (
            f"{count:,} messages of {source} do not say their cluster, which its weights need: "
            "they are left out"
        )
    for ends, count in attribution.mixed.items():
        yield f"{count:,} messages can have been made by any of {'; '.join(ends)}"
    for one, other in attribution.alike:
        yield (
            f"{one.source}: the destinations {one.destination} and {other.destination} make the "
            "same subjects and cannot be told apart in an archive"
        )
    for end in sorted(attribution.hidden):
        if end.destination and published is None:
            yield (
                f"{end.source}: the archive has nothing of {end.destination}; "
                "the weights are held against the shares of the rest"
            )
    for scope, sent in (published or {}).items():
        sent = sent if isinstance(sent, int) else sum(sent.values())
        if seen[scope] > sent:
            where = f" in cluster {scope[2]}" if scope[2] else ""
            yield (
                f"{scope[1]}: {seen[scope]:,} messages came out{where} but only {sent:,} were "
                "published: someone else publishes to its destinations, or the times differ"
            )
    if not settings.publishers and published is None:
        yield (
            "who else publishes to the destinations cannot be seen: name such subjects, or give "
            "the source archive"
        )


def _partitions(rows: DataFrame, mappings: Sequence[SubjectMapping]) -> Iterator[PartitionBalance]:
    """The balance of the first `partition()`s whose place in the mapped subject is fixed."""
    places = [
        (mapping.source, share.destination, place, token.count)
        for mapping in mappings
        for cluster in (None, *mapping.clusters)
        for share in mapping.shares(cluster)
        if share.destination is not None and share.transform is not None
        for place, token in _partition_token(share.transform.tokens)
    ]
    places = list(dict.fromkeys(places))[:MOST_BALANCES]
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


def _keys(
    rows: DataFrame, audited: Sequence[SubjectMapping], wildcard: int
) -> Iterator[KeyStickiness]:
    """How many keys of each mapping saw more than one end; the key is a wildcard of the source."""
    token = F.lit(None).cast("string")
    tokens = F.split("subject", r"\.")
    sources = dict.fromkeys(
        mapping.source for mapping in audited if len(mapping.filter.wildcards) >= wildcard
    )
    for source in sources:
        place = Filter(source).wildcards[wildcard - 1]
        is_source = F.col("mapping_source") == source
        token = F.when(is_source, F.try_element_at(tokens, F.lit(place + 1))).otherwise(token)
    end = F.xxhash64(F.coalesce("mapping_destination", F.lit("")))
    yield from keys_of(
        rows.select("mapping_source", token.alias("key"), end.alias("end")), wildcard
    )


def keys_of(rows: DataFrame, wildcard: int) -> Iterator[KeyStickiness]:
    """From rows of mapping_source, key and a number for the end; rows without a key are skipped."""
    each = rows.groupBy("mapping_source", "key").agg(
        F.min("end").alias("first"), F.max("end").alias("last")
    )
    sums = each.groupBy("mapping_source").agg(
        F.count("key").alias("keys"),
        F.count_if(F.col("key").isNotNull() & (F.col("first") != F.col("last"))).alias("split"),
    )
    for row in sorted(sums.collect(), key=lambda row: row["mapping_source"] or ""):
        if row["keys"]:
            yield KeyStickiness(
                source=row["mapping_source"],
                wildcard=wildcard,
                keys=row["keys"],
                split=row["split"],
            )


def _observed_keys(
    rows: DataFrame, periods: Sequence[Period], wildcard: int
) -> Iterator[KeyStickiness]:
    """The same for an archive after the mapping: only destinations that carry the key."""
    yield from keys_of(with_keys(rows, periods, wildcard), wildcard)


def _publish(settings: AuditSettings, result: AuditResult) -> int | None:
    """The snapshot of `weight_audit` that has the result.

    It takes the place of an earlier audit of the same days, kind and mapping version.
    """
    rows = list(_table_rows(result))
    if not rows:
        return None
    table = tables.open_table(settings.warehouse, WEIGHT_AUDIT, create=True)
    days = sorted({row[1] for row in rows})
    schema = schema_to_pyarrow(WEIGHT_AUDIT.schema, include_field_ids=False)
    new = pa.table([list(column) for column in zip(*rows, strict=True)], schema)
    there = table.scan(tables.slice_of(settings.stream, days)).to_arrow().cast(schema)
    same = pc.and_(
        pc.equal(there["kind"], result.kind),
        pc.equal(there["mapping_version"], result.mapping_version),
    )
    staged = _stage(pa.concat_tables([there.filter(pc.invert(same)), new]), table)
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


def _stage(rows: pa.Table, table: Table) -> tables.Staged:
    """Files with these rows, one for each day: they are too few to be worth a Spark job."""
    folder = f"{table.location()}/data/{uuid.uuid4()}"
    paths = []
    for day in pc.unique(rows["day"]).to_pylist():
        paths.append(f"{folder}/{day}.parquet")
        with table.io.new_output(paths[-1]).create() as output:
            pq.write_table(rows.filter(pc.equal(rows["day"], pa.scalar(day))), output)
    return tables.Staged(folder, tuple(paths))


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
