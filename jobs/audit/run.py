"""The audit job: what split the weights of a mapping gave, into `weight_audit`.

Spark counts messages by mapping, destination, cluster and hour in one pass; `nats_transform.audit`
judges the counts, which are few whatever the size of the archive.

An expected audit counts `transformed_messages`, or replays `messages` where they have not been
transformed under this very mapping version. An observed audit counts `messages` that were stored
after the mapping, and reads their destination back from their subject (`jobs.audit.attribution`).
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession

from jobs.audit.attribution import Attribution, attribute, with_keys
from jobs.audit.counts import (
    Counted,
    expected_counts,
    messages_of,
    nothing_there,
    snapshot_id,
)
from jobs.audit.settings import AuditError, AuditResult, AuditSettings, MappingInForce
from jobs.audit.spread import expected_keys, keys_of, partition_balances
from jobs.audit.table import publish
from jobs.session import Spark, started
from jobs.warehouse import specs, tables
from nats_transform.audit import (
    Assessment,
    Hours,
    Period,
    Scope,
    Verdict,
    assess,
    is_audited,
)
from nats_transform.config import load_mappings, mapping_version


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
            notes=(f"no mapping in {settings.mapping} has weights, so there is nothing to audit",),
        )
    session = started(spark)
    if settings.observed:
        result = _observed(session, settings, periods)
    else:
        result = _expected(session, settings, periods)
    if settings.key and not result.keys:
        note = f"no message of a mapping with weights has a wildcard number {settings.key}: no keys"
        result = result.model_copy(update={"notes": (*result.notes, note)})
    return result.model_copy(update={"snapshot_id": publish(settings, result)})


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
    counted = expected_counts(spark, settings, periods)
    notes = tuple(_unlabelled(counted, periods))
    keys = expected_keys(counted.rows, periods, settings.key) if settings.key else ()
    return _result(
        settings,
        periods,
        assess(periods, counted.tallies, settings.criteria),
        basis=counted.basis,
        messages=sum(counted.fates.values()),
        fates=counted.fates,
        partitions=tuple(partition_balances(counted.rows, periods)),
        keys=tuple(keys),
        notes=notes,
        input_snapshot=counted.snapshot,
    )


def _observed(
    spark: SparkSession, settings: AuditSettings, periods: Sequence[Period]
) -> AuditResult:
    """The audit of an archive that was stored after the mappings."""
    table = tables.open_table(settings.warehouse, specs.MESSAGES)
    rows = messages_of(spark, table, settings, settings.stream)
    source = None
    if settings.source_stream is not None:
        source = messages_of(spark, table, settings, settings.source_stream)
    attribution = attribute(
        rows,
        periods,
        source=source,
        captured=settings.captured,
        publishers=settings.publishers,
    )
    total = attribution.attributed + attribution.ambiguous + attribution.other
    if not total:
        raise nothing_there(settings)
    if source is not None and not attribution.published:
        raise AuditError(
            f"stream {settings.source_stream} has no messages on {settings.range} that a mapping "
            "applies to, so nothing can be inferred from it: name the stream that holds the "
            "messages as they were published"
        )
    published: dict[Scope, Hours] | None = attribution.published
    if settings.published:
        published = {(0, p.source, p.cluster): p.messages for p in settings.published}
    keys = keys_of(with_keys(rows, periods, settings.key), settings.key) if settings.key else ()
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
        basis=specs.MESSAGES.name,
        messages=total,
        fates={
            "attributed": attribution.attributed,
            "ambiguous": attribution.ambiguous,
            "other": attribution.other,
        },
        keys=tuple(keys),
        notes=tuple(_observed_notes(settings, periods, attribution, published)),
        input_snapshot=snapshot_id(table),
    )


def _no_cluster(source: str, messages: int) -> AuditError:
    return AuditError(
        f"mapping {source} has weights for clusters, but none of its {messages:,} messages has a "
        "cluster name: give --cluster NAME, or ingest again with --cluster or --cluster-header"
    )


def _unlabelled(counted: Counted, periods: Sequence[Period]) -> Iterator[str]:
    """What to say of messages without a cluster where a mapping has clusters.

    Raises:
        AuditError: no message of such a mapping has one.
    """
    for mapping in (m for period in periods for m in period.mappings.mappings):
        mine = [count for count in counted.counts if count.source == mapping.source]
        if not mapping.clusters or not mine:
            continue
        total = sum(count.messages for count in mine)
        without = sum(count.messages for count in mine if count.cluster is None)
        if without == total:
            raise _no_cluster(mapping.source, total)
        if without:
            yield (
                f"{without:,} of {total:,} messages of {mapping.source} have no cluster name; they "
                "are compared with the weights for all clusters"
            )


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
            f"{count:,} messages of {source} have no cluster name, which its weights need; they "
            "are not counted"
        )
    for ends, count in attribution.mixed.items():
        yield f"{count:,} messages fit each of these, and count for none alone: {'; '.join(ends)}"
    for one, other in attribution.alike:
        yield (
            f"the destinations {one.destination} and {other.destination} of {one.source} make the "
            "same subjects, so no archive shows which of them made a message"
        )
    for end in sorted(attribution.hidden):
        if end.destination and published is None:
            yield (
                f"the archive holds no message of destination {end.destination} of {end.source}; "
                "the other weights are compared with shares of what it holds"
            )
    for scope, sent in (published or {}).items():
        sent = sent if isinstance(sent, int) else sum(sent.values())
        if seen[scope] > sent:
            where = f" in cluster {scope[2]}" if scope[2] else ""
            yield (
                f"{seen[scope]:,} messages of {scope[1]} came out{where}, but only {sent:,} were "
                "published: something else publishes to its destinations, or the two streams do "
                "not cover the same time"
            )
    if not settings.publishers and published is None:
        yield (
            "a message that something else published to a destination counts as made by the "
            "mapping: name such subjects (--publisher), or give the stream of what was published "
            "(--source-stream)"
        )
