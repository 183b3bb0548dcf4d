"""Counts the messages that came to each end of each mapping, by cluster and hour.

A rehearsal counts the results of the mappings for an archive. If all messages of every day are
transformed with this mapping version, it counts those; otherwise it transforms the messages while
it counts them.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from pyiceberg.table import Table

from jobs.audit.result import AuditError
from jobs.audit.rows import Parts, Rows
from jobs.errors import NoTable
from jobs.files.narrow import is_narrow
from jobs.session import Spark
from jobs.settings.audit import AuditSettings
from jobs.warehouse import specs, tables
from jobs.warehouse.accounting import Archived
from nats_transform import Fate
from nats_transform.audit import End, Period, Tally
from nats_transform.kernel.counting import combinations, hours, texts


@dataclass(frozen=True, slots=True)
class Count:
    """Messages of one cluster and hour with one outcome.

    Attributes:
        source, destination, fate: those of the outcome; None as in `Outcome`.
        cluster: the cluster that the messages were published in.
        hour: the start of the hour, or of the period if that began later.
        messages: the number of messages.
        period: the index of the mapping version in force.
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
    """The counts of an archive, and the table that they come from.

    Attributes:
        rows: the transformed messages.
        basis: the table whose messages were counted.
    """

    rows: Rows
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


def expected_counts(spark: Spark, settings: AuditSettings, periods: Sequence[Period]) -> Counted:
    """The counts of what the mappings make of the archive.

    Raises:
        AuditError: there is no message to count.
    """
    return _of_table(spark, settings, periods) or _of_replay(spark, settings, periods)


def _of_table(spark: Spark, settings: AuditSettings, periods: Sequence[Period]) -> Counted | None:
    """The counts of the transformed messages; None unless they are all there, in this version."""
    if len(periods) > 1 or settings.since or settings.ends:
        return None
    try:
        table = tables.open_table(settings.warehouse, specs.TRANSFORMED)
    except NoTable:
        return None
    if is_narrow(table, tables.data_files(table, settings.stream, settings.days)):
        return None  # an audit is by hour, and narrow rows have no times
    archived = dict[date, int]()
    with contextlib.suppress(NoTable):
        messages = tables.open_table(settings.warehouse, specs.MESSAGES)
        files = tables.data_files(messages, settings.stream, settings.days)
        for (_, day), of_day in tables.by_day(messages, files).items():
            archived[day] = sum(file.record_count for file in of_day)
    rows = _of_version(spark, table, settings, periods[0].version)
    counts = _counts(rows, periods)
    transformed = Counter[date]()
    for count in counts:
        transformed[count.hour.date()] += count.messages
    if not counts or any(transformed[day] != number for day, number in archived.items()):
        return None
    if settings.cluster is not None:
        if any(count.cluster is None for count in counts):
            return None  # they were transformed as of no cluster
        rows = rows.only(cluster=settings.cluster)
        counts = [count for count in counts if count.cluster == settings.cluster]
        if not counts:
            raise nothing_there(settings)
    return Counted(rows, specs.TRANSFORMED.name, tables.snapshot_id(table), counts)


def _of_version(spark: Spark, table: Table, settings: AuditSettings, version: str) -> Rows:
    """The transformed messages of one mapping version, by whole files where their bounds tell."""
    files = tables.data_files(table, settings.stream, settings.days)
    column = table.schema().find_field("mapping_version").field_id
    bounds = [(f.lower_bounds or {}).get(column) for f in files]
    if None not in bounds and bounds == [(f.upper_bounds or {}).get(column) for f in files]:
        files = [f for f, bound in zip(files, bounds, strict=True) if bound == version.encode()]
        return Rows.of(spark, table, specs.TRANSFORMED, files, settings.stream)
    rows = Rows.of(spark, table, specs.TRANSFORMED, files, settings.stream)
    return rows.only(version=version)


def _of_replay(spark: Spark, settings: AuditSettings, periods: Sequence[Period]) -> Counted:
    """The counts of the messages, transformed on the fly."""
    table = tables.open_table(settings.warehouse, specs.MESSAGES)
    messages = messages_of(spark, table, settings, settings.stream)
    rows = messages.replayed(periods, settings.seed)
    counts = _counts(rows, periods)
    if not counts:
        raise nothing_there(settings)
    return Counted(rows, f"{specs.MESSAGES.name}, replayed", tables.snapshot_id(table), counts)


def messages_of(spark: Spark, table: Table, settings: AuditSettings, stream: str) -> Rows:
    """The messages of a stream that the settings ask for."""
    files = tables.data_files(table, stream, settings.days)
    rows = Rows.of(spark, table, specs.MESSAGES, files, stream)
    return rows.only(
        since=settings.since, until=settings.ends, cluster=settings.cluster, fills=True
    )


_OUTCOME = ("mapping_source", "mapping_destination", "fate")


def _counts(rows: Rows, periods: Sequence[Period]) -> list[Count]:
    """How many of some transformed messages had each outcome, by cluster and hour."""
    counts: Counter[Any] = sum(rows.each(_by_outcome, (*_OUTCOME, "cluster", "ts")), Counter())
    possible = set(_possible_outcomes(periods))
    if {outcome for _, outcome, _, _ in counts} - possible:
        raise AuditError("destinations-not-in-mapping")
    return [
        Count(source, destination, fate, cluster, start_of(hour, periods[index]), messages, index)
        for (index, (source, destination, fate), cluster, hour), messages in counts.items()
    ]


def _by_outcome(parts: Parts) -> Counter[Any]:
    """The work of a task: rows by mapping version, outcome, cluster and hour."""
    counts: Counter[Any] = Counter()
    for index, rows in parts:
        columns = [texts(rows.column(name)) for name in (*_OUTCOME, "cluster")]
        for (*outcome, cluster, hour), count in combinations(*columns, hours(rows.column("ts"))):
            counts[index, tuple(outcome), cluster, hour] += count
    return counts


def _possible_outcomes(
    periods: Sequence[Period],
) -> Iterator[tuple[str | None, str | None, str]]:
    """Every mapping, destination and fate that a transformed message can have."""
    yield None, None, Fate.UNMATCHED.value
    yield None, None, Fate.INVALID.value
    for period in periods:
        for mapping in period.mappings.mappings:
            for share in mapping.ends():
                if share.destination is None:
                    yield mapping.source, None, Fate.LOST.value
                else:
                    yield mapping.source, share.destination, Fate.MAPPED.value
                    yield mapping.source, share.destination, Fate.INVALID.value


def start_of(hour: int, period: Period) -> datetime:
    """The start of an hour, or of the time in which the mapping version was in force."""
    start = datetime.fromtimestamp(hour * 3600, UTC)
    return start if period.since is None else max(start, period.since)


def nothing_there(settings: AuditSettings) -> AuditError:
    """The error that there is no message to count."""
    of_cluster = f" of cluster {settings.cluster}" if settings.cluster else ""
    cure = "; ingest them, or check the stream, the cluster and the days"
    with contextlib.suppress(NoTable):
        messages = tables.open_table(settings.warehouse, specs.MESSAGES)
        cure = Archived.nearest(messages, settings.stream) or cure
    return AuditError(
        "audit-without-messages",
        stream=settings.stream,
        of_cluster=of_cluster,
        days=settings.range,
        cure=cure,
    )
