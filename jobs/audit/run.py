"""The audit job: what split the weights of a mapping gave, into `weight_audit`.

Tasks on files count messages by mapping, destination, cluster and hour; `nats_transform.audit`
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

from pyiceberg.table import Table

from jobs.audit.attribution import Attribution, attribute, in_clusters, observed_keys
from jobs.audit.candidates import candidates
from jobs.audit.counts import expected_counts, messages_of, nothing_there
from jobs.audit.in_force import check_times, periods_of
from jobs.audit.labels import cluster_notes
from jobs.audit.result import AuditError, AuditResult, MappingInForce
from jobs.audit.spread import expected_keys, partition_balances
from jobs.audit.table import publish
from jobs.files.engine import engine_of
from jobs.session import Spark
from jobs.settings.audit import AuditSettings
from jobs.warehouse import specs, tables, versions
from jobs.warehouse.accounting import Archived
from nats_transform.audit import (
    Assessment,
    Hours,
    Period,
    Scope,
    Verdict,
    assess,
    is_audited,
    worst_of,
)
from nats_transform.errors import did_you_mean, printable
from nats_transform.kernel.coverage import Coverage
from nats_transform.mappings.unseen import Unseen, unseen_line
from nats_transform.words import and_more, plural

_MOST_NAMED = 5
"""Mappings that are named in a note."""


def audit(spark: Spark, settings: AuditSettings) -> AuditResult:
    """The verdict on the weights, also written to `weight_audit`.

    Raises:
        InvalidConfig: a mapping file.
        WarehouseError: tables that cannot be read or written.
        AuditError: messages that cannot be audited.
    """
    if settings.mapping is None:
        version = versions.of_stream(settings.warehouse, settings.stream, settings.days)
        settings = settings.model_copy(update={"seed": version.seed})
        return run(spark, settings, [Period(version.mappings, version.mapping_version)])
    return run(spark, settings, periods_of(settings))


def run(spark: Spark, settings: AuditSettings, periods: Sequence[Period]) -> AuditResult:
    """`audit` with mappings that are loaded already."""
    audited = [m for period in periods for m in period.mappings.mappings if is_audited(m)]
    if not audited:
        where = f"in {settings.mapping}" if settings.mapping else "of the transform"
        return _result(
            settings,
            periods,
            Assessment(Verdict.NOTHING, (), (), 0),
            basis="",
            messages=0,
            fates={},
            notes=(f"no mapping {where} has weights, so there is nothing to audit",),
        )
    sources = {mapping.source for mapping in audited}
    for count in settings.published:
        if count.source not in sources:
            raise AuditError(
                "counted-source-unmapped",
                mapping=settings.mapping,
                source=printable(count.source),
                hint=did_you_mean(count.source, sources),
            )
    check_times(settings, periods)
    audited_rows = _observed if settings.observed else _expected
    result = audited_rows(spark, settings, periods)
    if settings.key and not result.keys:
        note = f"no message of a mapping with weights has a wildcard number {settings.key}: no keys"
        result = result.model_copy(update={"notes": (*result.notes, note)})
    if settings.sequential:  # a look at what still grows is no result to keep
        return result
    return result.model_copy(update={"snapshot_id": publish(settings, result)})


def _result(
    settings: AuditSettings,
    periods: Sequence[Period],
    assessment: Assessment,
    notes: Sequence[str],
    unseen: Sequence[Unseen] = (),
    **more: Any,
) -> AuditResult:
    unseen = [*unseen, *_unjudged(settings, periods, assessment)]
    return AuditResult(
        verdict=assessment.verdict,
        kind="observed" if settings.observed else "expected",
        stream=settings.stream,
        from_=min((rule.from_ for rule in assessment.rules if rule.from_), default=None),
        to=max((rule.to for rule in assessment.rules if rule.to), default=None),
        by=settings.by,
        tolerance=settings.tolerance,
        confidence=settings.confidence,
        sequential=settings.sequential,
        allow_nothing=settings.allow_nothing,
        comparisons=assessment.comparisons,
        mapping_version=periods[-1].version,
        in_force=tuple(_stage(n, period, assessment) for n, period in enumerate(periods)),
        rules=assessment.rules,
        clusters=assessment.clusters,
        run_id=settings.run_id or str(uuid.uuid4()),
        notes=(*notes, unseen_line(unseen)) if unseen else tuple(notes),
        **more,
    )


def _unjudged(
    settings: AuditSettings, periods: Sequence[Period], assessment: Assessment
) -> Iterator[Unseen]:
    """What no verdict is about, although there are weights."""
    rules = [rule for rule in assessment.rules if rule.verdict is not Verdict.NOTHING]
    heard = {(rule.source, cluster) for rule in rules for cluster in ("", rule.cluster)}
    mappings = [m for period in periods for m in period.mappings.mappings if is_audited(m)]
    silent = [m.source for m in mappings if (m.source, "") not in heard]
    for mapping in mappings if settings.cluster is None else ():
        if (mapping.source, "") in heard:
            clusters = (name for name in mapping.clusters if (mapping.source, name) not in heard)
            silent += (f"{mapping.source} in {name}" for name in clusters)
    unsure = [rule.source for rule in rules if rule.ambiguous and not settings.sequential]
    for what, names in (
        ("which got no message", silent),
        ("as to order and keys: some messages may come from elsewhere", unsure),
    ):
        if names := [*dict.fromkeys(names)]:
            some = f"{', '.join(names[:_MOST_NAMED])}{and_more(len(names[_MOST_NAMED:]))}"
            yield Unseen(f"{some}, {what}")


def _stage(index: int, period: Period, assessment: Assessment) -> MappingInForce:
    rules = [rule for rule in assessment.rules if rule.stage == index]
    return MappingInForce(
        mapping_version=period.version,
        since=period.since,
        until=period.until,
        verdict=worst_of(rule.verdict for rule in rules),
        messages=sum(rule.messages for rule in rules),
    )


def _expected(spark: Spark, settings: AuditSettings, periods: Sequence[Period]) -> AuditResult:
    """The audit of what the mappings make of the archive."""
    counted = expected_counts(spark, settings, periods)
    by_cluster = Counter[tuple[str, str | None]]()
    for count in counted.counts:
        if count.source is not None:
            by_cluster[count.source, count.cluster] += count.messages
    instead = "they are compared with the weights for all clusters"
    keys = expected_keys(counted.rows, periods, settings.key) if settings.key else ()
    return _result(
        settings,
        periods,
        assess(periods, counted.tallies, settings.criteria),
        basis=counted.basis,
        engine=engine_of(counted.rows.session),
        messages=sum(counted.fates.values()),
        fates=counted.fates,
        partitions=tuple(partition_balances(counted.rows, periods)),
        keys=tuple(keys),
        notes=tuple(cluster_notes(periods, by_cluster, instead)),
        unseen=counted.rows.not_looked_at,
        input_snapshot=counted.snapshot,
    )


def _not_ingested(table: Table, settings: AuditSettings, stream: str | None) -> Iterator[Unseen]:
    """What no ingest has looked for, between the first and the last message of the days."""
    if stream is None:
        return
    files = tables.data_files(table, stream, settings.days)
    ends = [ends for file in files if (ends := tables.sequence_ends(table, file))]
    archived = Archived.of(table, stream)
    if not (ends and archived.messages):  # another program may have written the table
        return
    if missing := Coverage.of([(min(ends)[0], max(last for _, last in ends))]) - archived.explained:
        first, last = missing.ranges[0][0], missing.ranges[-1][1]
        what = f"{plural(missing.count, 'sequence')} of {stream} between {first} and {last}"
        yield Unseen(what, "ingest the days between those that were ingested")


def _observed(spark: Spark, settings: AuditSettings, periods: Sequence[Period]) -> AuditResult:
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
    if not any(attribution.fates.values()):
        raise nothing_there(settings)
    if source is not None and not attribution.published:
        raise AuditError(
            "source-without-messages", stream=settings.source_stream, days=settings.range
        )
    published: dict[Scope, Hours] | None = attribution.published
    if settings.published:
        published = {(0, p.source, p.cluster): p.messages for p in settings.published}
    if published is not None:
        published = in_clusters(published, attribution.tallies)
    keys = observed_keys(rows, periods, settings.key) if settings.key else ()
    assessment = assess(
        periods,
        attribution.tallies,
        settings.criteria,
        hidden=attribution.hidden,
        published=published,
        doubled=attribution.doubled,
        draws=attribution.draws,
    )
    return _result(
        settings,
        periods,
        assessment,
        basis=specs.MESSAGES.name,
        engine=engine_of(rows.session),
        messages=sum(attribution.fates.values()),
        fates=attribution.fates,
        accounts=assessment.accounts,
        keys=tuple(keys),
        notes=tuple(_observed_notes(settings, periods, attribution, published)),
        unseen=[
            *rows.not_looked_at,
            *(source.not_looked_at if source is not None else ()),
            *_not_ingested(table, settings, settings.stream),
            *_not_ingested(table, settings, settings.source_stream),
        ],
        input_snapshot=tables.snapshot_id(table),
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
    labelled = Counter[tuple[str, str | None]]()
    for source, count in attribution.unlabelled.items():
        labelled[source, None] += count
    for tally in attribution.tallies:
        for source in {end.source for end in tally.ends}:
            labelled[source, tally.cluster] += tally.count
    yield from cluster_notes(periods, labelled, "they are not counted")
    for ends, count in attribution.mixed.items():
        fit = plural(count, "message fits", "messages fit")
        counts = "counts" if count == 1 else "count"
        yield f"{fit} each of these, and {counts} for none alone: {'; '.join(ends)}"
    if not attribution.ids_are_names:
        yield (
            "most Nats-Msg-Ids repeat an earlier one, so they can't show which messages were sent "
            "again: all messages count"
        )
    elif doubled := attribution.fates["doubled"]:
        repeated = plural(doubled, "message was", "messages were")
        yield (
            f"{repeated} stored again with the Nats-Msg-Id of an earlier one, as when a publisher "
            "gets no answer in time: only the first of each counts"
        )
    for first, second in attribution.alike:
        yield (
            f"the destinations {first.destination} and {second.destination} of {first.source} "
            "make the same subjects, so no archive can show which of them a message went to"
        )
    by_mappings = {candidate.end for candidate in candidates(periods)}
    for end in sorted(attribution.hidden):
        if end.destination and end not in by_mappings:
            yield (
                f"the archive doesn't hold the subjects of {end.source}, so it can't show where "
                "the mapping wasn't in force"
            )
        elif end.destination and published is None:
            yield (
                f"the archive holds no message of destination {end.destination} of {end.source}; "
                "the other weights are compared with shares of what it holds"
            )
    if not settings.publishers and published is None:
        yield (
            "if other programs publish to a destination, their messages count as mapped: list "
            "such subjects (--publisher), or give the stream with the messages as published "
            "(--source-stream)"
        )
