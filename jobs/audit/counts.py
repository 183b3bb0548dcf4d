"""How many messages came to each end of each mapping, by cluster and hour: one pass of Spark.

An expected audit counts what the mappings make of an archive: the transformed messages where every
day has them under this very mapping version, else the messages, transformed on the fly.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import reduce

from pyiceberg.table import Table
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.audit.settings import AuditError, AuditSettings
from jobs.errors import NoTable
from jobs.transform import transformed
from jobs.warehouse import specs, tables
from nats_transform import Fate
from nats_transform.audit import End, Period, Tally
from nats_transform.spark.digest import hash_of

_HOUR_MICROS = 3_600_000_000


@dataclass(frozen=True, slots=True)
class Count:
    """Messages of one cluster and hour with one outcome.

    Attributes:
        source, destination, fate: of the outcome; None as in `Outcome`.
        cluster: the cluster that they were published in.
        hour: its start, or that of the period if it began later.
        messages: how many.
        period: index of the mapping version in force.
    """

    source: str | None
    destination: str | None
    fate: str
    cluster: str | None
    hour: datetime
    messages: int
    period: int = 0


@dataclass(frozen=True)
class Counted:
    """The counts of an archive, and where they are from.

    Attributes:
        rows: the transformed messages.
        basis: what was counted.
        snapshot: the snapshot of the table that was read.
        counts: the counts of its messages.
    """

    rows: DataFrame
    basis: str
    snapshot: int | None
    counts: Sequence[Count]

    @property
    def fates(self) -> dict[str, int]:
        """How many messages there are of each fate."""
        fates = {fate.value: 0 for fate in Fate}
        for count in self.counts:
            fates[count.fate] += count.messages
        return fates

    @property
    def tallies(self) -> list[Tally]:
        """The counts of what mappings made, for the verdict."""
        return [
            Tally(c.cluster, c.hour, (End(c.source, c.destination or ""),), c.messages, c.period)
            for c in self.counts
            if c.source is not None
        ]


def expected_counts(
    spark: SparkSession, settings: AuditSettings, periods: Sequence[Period]
) -> Counted:
    """The counts of what the mappings make of the archive.

    Raises:
        AuditError: there is no message to count.
    """
    return _of_table(spark, settings, periods) or _of_replay(spark, settings, periods)


def _of_table(
    spark: SparkSession, settings: AuditSettings, periods: Sequence[Period]
) -> Counted | None:
    """The counts of the transformed messages; None unless every day has them, in this version."""
    if len(periods) > 1 or settings.since or settings.ends:
        return None
    try:
        table = tables.open_table(settings.warehouse, specs.TRANSFORMED)
    except NoTable:
        return None
    days: set[date] = set()
    with contextlib.suppress(NoTable):
        messages = tables.open_table(settings.warehouse, specs.MESSAGES)
        there = tables.days_of(messages, settings.stream)
        days = {day for day in there if settings.days is None or day in settings.days}
    rows = _of_version(spark, table, settings, periods[0].version)
    counts = _counts(rows, periods)
    if not counts or not days <= {count.hour.date() for count in counts}:
        return None
    if settings.cluster is not None:
        if any(count.cluster is None for count in counts):
            return None  # they were transformed as of no cluster
        rows = rows.where(F.col("cluster") == settings.cluster)
        counts = [count for count in counts if count.cluster == settings.cluster]
        if not counts:
            raise nothing_there(settings)
    return Counted(rows, specs.TRANSFORMED.name, snapshot_id(table), counts)


def _of_version(
    spark: SparkSession, table: Table, settings: AuditSettings, version: str
) -> DataFrame:
    """The transformed messages of one mapping version, by whole files where their bounds tell."""
    files = tables.data_files(table, settings.stream, settings.days)
    column = table.schema().find_field("mapping_version").field_id
    bounds = [(f.lower_bounds or {}).get(column) for f in files]
    if None not in bounds and bounds == [(f.upper_bounds or {}).get(column) for f in files]:
        chosen = [f for f, bound in zip(files, bounds, strict=True) if bound == version.encode()]
        return tables.read_files(spark, tables.paths_of(table, chosen), specs.TRANSFORMED)
    rows = tables.read_files(spark, tables.paths_of(table, files), specs.TRANSFORMED)
    return rows.where(F.col("mapping_version") == version)


def _of_replay(spark: SparkSession, settings: AuditSettings, periods: Sequence[Period]) -> Counted:
    """The counts of the messages, transformed on the fly."""
    table = tables.open_table(settings.warehouse, specs.MESSAGES)
    messages = messages_of(spark, table, settings, settings.stream)
    parts: list[DataFrame] = []
    counts: list[Count] = []
    for index, period in enumerate(periods):
        part = messages
        if period.since is not None:
            part = part.where(F.col("ts") >= F.lit(period.since))
        if period.until is not None:
            part = part.where(F.col("ts") < F.lit(period.until))
        parts.append(transformed(part, period.mappings, period.version, settings.seed))
        for count in _counts(parts[-1], periods):
            start = max(count.hour, period.since) if period.since else count.hour
            counts.append(replace(count, hour=start, period=index))
    if not counts:
        raise nothing_there(settings)
    basis = f"{specs.MESSAGES.name}, replayed"
    return Counted(reduce(DataFrame.unionByName, parts), basis, snapshot_id(table), counts)


def messages_of(
    spark: SparkSession, table: Table, settings: AuditSettings, stream: str
) -> DataFrame:
    """The messages of a stream that the settings ask for."""
    rows = tables.read(spark, table, specs.MESSAGES, stream, settings.days)
    if settings.since is not None:
        rows = rows.where(F.col("ts") >= F.lit(settings.since))
    if settings.ends is not None:
        rows = rows.where(F.col("ts") < F.lit(settings.ends))
    if settings.cluster is not None:
        rows = rows.withColumn("cluster", F.coalesce("cluster", F.lit(settings.cluster)))
        rows = rows.where(F.col("cluster") == settings.cluster)
    return rows


def _counts(rows: DataFrame, periods: Sequence[Period]) -> list[Count]:
    """How many of some transformed messages had each outcome, by cluster and hour."""
    # The texts as hashes: Spark is far quicker at grouping by numbers, and few texts are possible.
    possible = list(dict.fromkeys(_possible_outcomes(periods)))
    outcomes = {
        hash_of(destination or source, fate): (source, destination, fate)
        for source, destination, fate in possible
    }
    outcome = F.xxhash64(F.coalesce("mapping_destination", "mapping_source"), "fate")
    if len(outcomes) < len(possible):  # a destination of two mappings: the source must count too
        outcomes = {hash_of(*texts): texts for texts in possible}
        outcome = F.xxhash64("mapping_source", "mapping_destination", "fate")
    cluster = F.xxhash64("cluster").alias("cluster")
    groups = rows.groupBy(hour_number(), outcome.alias("outcome"), cluster).count().collect()
    if {row["outcome"] for row in groups} - outcomes.keys():
        raise AuditError(
            "the transformed messages have destinations that the mapping does not have: "
            "transform them again"
        )
    clusters = cluster_names(rows, {row["cluster"] for row in groups}, periods)
    return [
        Count(
            *outcomes[row["outcome"]],
            cluster=clusters[row["cluster"]],
            hour=hour_of(row["hour"]),
            messages=row["count"],
        )
        for row in groups
    ]


def _possible_outcomes(
    periods: Sequence[Period],
) -> Iterator[tuple[str | None, str | None, str]]:
    """Every mapping, destination and fate that a transformed message can have."""
    yield None, None, Fate.UNMATCHED.value
    yield None, None, Fate.INVALID.value
    for period in periods:
        for mapping in period.mappings.mappings:
            for _, share in mapping.ends():
                if share.destination is None:
                    yield mapping.source, None, Fate.LOST.value
                else:
                    yield mapping.source, share.destination, Fate.MAPPED.value
                    yield mapping.source, share.destination, Fate.INVALID.value


def hour_number() -> Column:
    """The hour of a message as a whole number, for `hour_of`, in column `hour`."""
    # Truncating a timestamp goes through a calendar for every row.
    return F.call_function("div", F.unix_micros("ts"), F.lit(_HOUR_MICROS)).alias("hour")


def hour_of(number: int) -> datetime:
    """The start of an hour."""
    return datetime.fromtimestamp(number * 3600, UTC)


def cluster_names(
    messages: DataFrame, hashes: Iterable[int], periods: Sequence[Period]
) -> dict[int, str | None]:
    """The cluster of each hash: from the mappings, the first messages, or any that has it."""
    hashes = set(hashes)
    mappings = [mapping for period in periods for mapping in period.mappings.mappings]
    names = {hash_of(cluster): cluster for m in mappings for cluster in m.scopes}
    names[hash_of(None)] = None
    if hashes - names.keys():
        for row in messages.select("cluster").limit(1000).collect():
            names[hash_of(row["cluster"])] = row["cluster"]
    for value in hashes - names.keys():
        found = messages.where(F.xxhash64("cluster") == value).select("cluster").first()
        assert found is not None  # noqa: S101 - it was just counted
        names[value] = found["cluster"]
    return names


def snapshot_id(table: Table) -> int | None:
    """The snapshot of the table as it was loaded."""
    snapshot = table.current_snapshot()
    return None if snapshot is None else snapshot.snapshot_id


def nothing_there(settings: AuditSettings) -> AuditError:
    """The error that there is no message to count."""
    of_cluster = f" of cluster {settings.cluster}" if settings.cluster else ""
    return AuditError(
        f"no messages of stream {settings.stream}{of_cluster} on {settings.range}; "
        "ingest them, or check the stream, the cluster and the days"
    )
