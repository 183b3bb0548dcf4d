"""The counts of each mapping by destination: for each hour, bucket and regime, and as a whole.

A bucket is an hour or a day. A regime is a stretch of time in which the split did not change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby, pairwise
from typing import Literal

import numpy as np

from nats_transform import statistics
from nats_transform.audit.tallies import End, Hours, Period, Scope, Tally, is_audited
from nats_transform.audit.verdicts import Criteria, Kind
from nats_transform.mapping import Mapping as SubjectMapping
from nats_transform.statistics import Counts

HOUR = timedelta(hours=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Target:
    """An end of a mapping, and the share of the counted messages it should get (a fraction)."""

    end: End
    kind: Kind
    weight: int
    expected: float
    inferred: bool = False


@dataclass(frozen=True, slots=True)
class Sample:
    """The counts of some time, one for each target of a mapping.

    Attributes:
        start, end: the time, the end excluded; None in a sample without messages.
        certain: messages that can only have come to this target.
        possible: further messages that may have come to this target.
        elsewhere: ambiguous messages that may have come to another target of the mapping.
        ambiguous: all ambiguous messages of the mapping, as an array with one number.
    """

    start: datetime | None
    end: datetime | None
    certain: Counts
    possible: Counts
    elsewhere: Counts
    ambiguous: Counts


@dataclass(frozen=True, slots=True)
class MappingCounts:
    """The counts of one mapping in one cluster and period, before any verdict.

    Attributes:
        scope: the period, the mapping and the cluster.
        targets: the ends of the mapping; each sample has a number for each of them.
        is_blind: whether the archive can hold only one end of the mapping, so it shows no share.
        hours: the counts of each hour, ascending.
        whole: the counts of all hours together.
        buckets: the counts by hour or day; empty if there is only one hour or day.
        regimes: the counts of each regime; empty if the split never changed.
    """

    scope: Scope
    targets: tuple[Target, ...]
    is_blind: bool
    hours: tuple[Sample, ...]
    whole: Sample
    buckets: tuple[Sample, ...]
    regimes: tuple[Sample, ...]

    @property
    def samples(self) -> tuple[Sample, ...]:
        """The samples that get a verdict."""
        return (self.whole, *self.buckets, *self.regimes)


def counted(
    periods: Sequence[Period],
    tallies: Iterable[Tally],
    criteria: Criteria,
    hidden: frozenset[End],
    published: Mapping[Scope, Hours] | None,
) -> list[MappingCounts]:
    """The counts of every mapping, cluster and period; `assess` explains the arguments."""
    found = _by_scope(periods, tallies)
    steady = 1 - (1 - criteria.confidence) / max(1, len(found))
    result = []
    for scope, entries in found.items():
        index, source, cluster = scope
        mapping = next(m for m in periods[index].mappings.mappings if m.source == source)
        sent = published.get(scope) if published is not None else None
        seen = {end for tally in entries for end in tally.ends if end.source == source}
        targets = _targets(mapping, cluster, seen, hidden, infer=sent is not None)
        hours = _hours(targets, entries, sent, periods[index])
        expected = sum(share.weight > 0 for share in mapping.shares(cluster))
        is_blind = expected > 1 and sum(target.weight > 0 for target in targets) < 2
        result.append(_counts(scope, targets, is_blind, hours, criteria, steady))
    return result


def _by_scope(periods: Sequence[Period], tallies: Iterable[Tally]) -> dict[Scope, list[Tally]]:
    """The tallies of every mapping and cluster, in the order of the configuration.

    A mapping without a tally has one entry, whose cluster is None.
    """
    by_source: dict[tuple[int, str], dict[str | None, list[Tally]]] = {
        (index, mapping.source): {}
        for index, period in enumerate(periods)
        for mapping in period.mappings.mappings
        if is_audited(mapping)
    }
    for tally in tallies:
        for source in {end.source for end in tally.ends}:
            clusters = by_source.get((tally.period, source))
            if clusters is not None:
                clusters.setdefault(tally.cluster, []).append(tally)
    result: dict[Scope, list[Tally]] = {}
    for (index, source), clusters in by_source.items():
        for cluster in sorted(clusters, key=lambda c: (c is None, c or "")) or [None]:
            result[index, source, cluster] = clusters.get(cluster, [])
    return result


def _targets(
    mapping: SubjectMapping,
    cluster: str | None,
    seen: set[End],
    hidden: frozenset[End],
    infer: bool,
) -> list[Target]:
    """The ends of a mapping in a cluster, with the expected share of each in the counted messages.

    Hidden ends are left out. If they are to be inferred, they are one target together, the last.
    """
    listed = {destination.subject for destination in mapping.destinations}
    ends: list[tuple[End, Kind, int]] = []
    for share in mapping.shares(cluster):
        kind: Kind = "destination"
        if share.destination is None:
            kind = "lost"
        elif share.destination not in listed:
            kind = "remainder"
        ends.append((End(mapping.source, share.destination or ""), kind, share.weight))
    visible = [entry for entry in ends if entry[0] not in hidden]
    unseen = [entry for entry in ends if entry[0] in hidden and entry[2]]
    held = sum(weight for _, _, weight in (ends if infer else visible))
    targets = [
        Target(end, kind, weight, weight / held if held else 0.0) for end, kind, weight in visible
    ]
    strays = sorted(seen - {end for end, _, _ in ends} - hidden)
    targets += [Target(end, "unlisted", 0, 0.0) for end in strays]
    if infer and unseen:
        weight = sum(weight for _, _, weight in unseen)
        end, kind, _ = unseen[0]
        if len(unseen) > 1:
            end, kind = End(mapping.source, ""), "uncaptured"
        targets.append(Target(end, kind, weight, weight / held, inferred=True))
    return targets


def _hours(
    targets: Sequence[Target],
    entries: Sequence[Tally],
    published: Hours | None,
    period: Period,
) -> list[Sample]:
    """The counts of a mapping by hour, ascending."""
    place = {target.end: n for n, target in enumerate(targets) if not target.inferred}
    hours: dict[datetime, Sample] = {}

    def hour(start: datetime) -> Sample:
        if start not in hours:
            end = start.replace(minute=0, second=0, microsecond=0) + HOUR
            if period.until is not None:
                end = min(end, period.until)
            hours[start] = empty(start, end, len(targets))
        return hours[start]

    by_hour = published if isinstance(published, Mapping) else {}
    for start in by_hour:
        hour(start)
    for tally in entries:
        sample = hour(tally.start)
        mine = [place[end] for end in tally.ends if end in place]
        if len(tally.ends) == 1:
            sample.certain[mine] += tally.count
        elif mine:
            sample.possible[mine] += tally.count
            elsewhere = np.full(len(targets), tally.count)
            if len(mine) == 1:
                elsewhere[mine] = 0
            sample.elsewhere[:] += elsewhere
            sample.ambiguous[:] += tally.count
    result = [hours[start] for start in sorted(hours)]
    if published is None or not targets or not targets[-1].inferred:
        return result
    if isinstance(published, int):
        result = [_together(result, len(targets))] if result else []
    for sample in result:
        sent = published if isinstance(published, int) else by_hour.get(sample.start or EPOCH, 0)
        rest = sent - int(sample.certain.sum()) - int(sample.ambiguous[0])
        # Around a full hour two archives can differ by a few messages, so this could be negative.
        sample.certain[-1] = max(0, rest)
    return result


def empty(start: datetime | None, end: datetime | None, targets: int) -> Sample:
    """A sample without messages."""
    certain, possible, elsewhere = (np.zeros(targets, np.int64) for _ in range(3))
    return Sample(start, end, certain, possible, elsewhere, np.zeros(1, np.int64))


def _together(samples: Sequence[Sample], targets: int) -> Sample:
    """The counts of several hours in a row."""
    if not samples:
        return empty(None, None, targets)
    result = empty(samples[0].start, samples[-1].end, targets)
    for sample in samples:
        result.certain[:] += sample.certain
        result.possible[:] += sample.possible
        result.elsewhere[:] += sample.elsewhere
        result.ambiguous[:] += sample.ambiguous
    return result


def _counts(
    scope: Scope,
    targets: Sequence[Target],
    is_blind: bool,
    hours: Sequence[Sample],
    criteria: Criteria,
    steady: float,
) -> MappingCounts:
    """The counts of a mapping by bucket and by regime."""

    def bucket(hour: Sample) -> datetime:
        assert hour.start is not None  # noqa: S101 - only empty samples have none
        return _floor(hour.start, criteria.by)

    buckets = [_together(list(group), len(targets)) for _, group in groupby(hours, bucket)]
    changes = statistics.change_points([hour.certain for hour in hours], steady) if hours else []
    edges = [0, *changes, len(hours)]
    regimes = [_together(hours[first:last], len(targets)) for first, last in pairwise(edges)]
    return MappingCounts(
        scope,
        tuple(targets),
        is_blind,
        tuple(hours),
        _together(hours, len(targets)),
        tuple(buckets) if len(buckets) > 1 else (),
        tuple(regimes) if len(regimes) > 1 else (),
    )


def _floor(moment: datetime, by: Literal["hour", "day"]) -> datetime:
    hour = moment.replace(minute=0, second=0, microsecond=0)
    return hour.replace(hour=0) if by == "day" else hour


def spread(sample: Sample, targets: Sequence[Target], ends: Sequence[End]) -> Sample:
    """The sample with a count of 0 for each end that it does not have."""
    result = empty(sample.start, sample.end, len(ends))
    places = [ends.index(target.end) for target in targets]
    result.certain[places] = sample.certain
    result.possible[places] = sample.possible
    result.elsewhere[:] = sample.ambiguous
    result.elsewhere[places] = sample.elsewhere
    result.ambiguous[:] = sample.ambiguous
    return result
