"""The counts of each mapping by destination: for each hour, bucket and regime, and as a whole.

A bucket is an hour or a day. A regime is a stretch of time in which the split did not change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import reduce
from itertools import groupby, pairwise
from operator import add

import numpy as np

from nats_transform.audit import statistics
from nats_transform.audit.account import Account, Balance, Doubled, balance
from nats_transform.audit.levels import steady
from nats_transform.audit.statistics import Counts
from nats_transform.audit.tallies import End, Hours, Period, Scope, Tally, is_audited
from nats_transform.audit.verdicts import Criteria, Kind
from nats_transform.mappings.mapping import Mapping as SubjectMapping

HOUR = timedelta(hours=1)


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
        foreign: those of them that may not be of the mapping at all, in the same form.
        balance: what the number of published messages says of these counts.
    """

    start: datetime | None
    end: datetime | None
    certain: Counts
    possible: Counts
    elsewhere: Counts
    ambiguous: Counts
    foreign: Counts
    balance: Balance

    @property
    def stored(self) -> int:
        """How many messages were stored."""
        return int(self.certain.sum() + self.ambiguous[0])

    @property
    def bounds(self) -> tuple[Counts, Counts, Counts, Counts]:
        """The fewest messages that can have come to each target, and the most, as four arrays.

        Each of the two is followed by how many messages came to all other targets then. This holds
        wherever the ambiguous and missing messages came from or went.
        """
        balance = self.balance
        anywhere = balance.missing + balance.open
        others = self.certain.sum() - self.certain
        least = np.maximum(self.certain - balance.excess, 0)
        rest_least = np.maximum(others - balance.excess, 0)
        most = self.certain + self.possible + anywhere
        rest_most = others + self.elsewhere + anywhere
        if balance.published is not None:
            most = np.minimum(most, balance.published - rest_least)
            least = np.minimum(np.maximum(least, balance.published - rest_most), most)
            rest_most, rest_least = balance.published - least, balance.published - most
        return least, rest_most, most, rest_least

    @property
    def is_empty(self) -> bool:
        """Whether no message was stored or missed."""
        return not self.stored and not self.balance.missing


@dataclass(frozen=True, slots=True)
class MappingCounts:
    """The counts of one mapping in one cluster and period, before any verdict.

    Attributes:
        scope: the period, the mapping and the cluster.
        account: where the messages are.
        targets: the ends of the mapping; each sample has a number for each of them.
        is_blind: whether the archive can hold only one end of the mapping, or none, so it shows no
            share.
        hours: the counts of each hour, ascending.
        whole: the counts of all hours together.
        buckets: the counts by hour or day; empty if there is only one hour or day.
        regimes: the counts of each regime; empty if the split never changed.
    """

    scope: Scope
    account: Account
    targets: tuple[Target, ...]
    is_blind: bool
    hours: tuple[Sample, ...]
    whole: Sample
    buckets: tuple[Sample, ...]
    regimes: tuple[Sample, ...]


def counted(
    periods: Sequence[Period],
    tallies: Iterable[Tally],
    criteria: Criteria,
    hidden: frozenset[End],
    published: Mapping[Scope, Hours] | None,
    doubled: Mapping[Scope, Doubled] | None,
) -> list[MappingCounts]:
    """The counts of every mapping, cluster and period; `assess` explains the arguments."""
    audited = {
        (index, mapping.source): mapping
        for index, period in enumerate(periods)
        for mapping in period.mappings.mappings
        if is_audited(mapping)
    }
    by_scope = _by_scope(audited, tallies, published or {})
    unchanged = steady(criteria.confidence, len(by_scope))
    result = []
    for scope, entries in by_scope.items():
        index, source, cluster = scope
        mapping = audited[index, source]
        sent = published.get(scope) if published is not None else None
        seen = {end for tally in entries for end in tally.ends if end.source == source}
        targets = _targets(mapping, cluster, seen, hidden, infer=sent is not None)
        hours = _hours(targets, entries, sent, periods[index])
        repeats = None if doubled is None else doubled.get(scope, Doubled(0, 0))
        hours, whole = _balanced(hours, targets, sent, repeats)
        expected = sum(share.weight > 0 for share in mapping.shares(cluster))
        is_blind = expected > 1 and sum(target.weight > 0 for target in targets) < 2
        is_blind |= all(target.inferred for target in targets)
        total = whole or together(hours, len(targets))
        account = _account(scope, targets, total, repeats, sent)
        if End(source, source) in hidden and account.unmapped == 0:
            account = account.model_copy(update={"unmapped": None})
        groups = _grouped(hours, whole, len(targets), criteria.by, unchanged)
        result.append(
            MappingCounts(scope, account, tuple(targets), is_blind, tuple(hours), total, *groups)
        )
    return result


def _by_scope(
    audited: Iterable[tuple[int, str]], tallies: Iterable[Tally], published: Iterable[Scope]
) -> dict[Scope, list[Tally]]:
    """The tallies of every audited mapping and cluster, in the order of the configuration.

    A mapping without a tally has one entry, whose cluster is None, unless something was published
    to it: then each cluster has one where that was.
    """
    by_source: dict[tuple[int, str], dict[str | None, list[Tally]]] = {of: {} for of in audited}
    for tally in tallies:
        for source in {end.source for end in tally.ends}:
            clusters = by_source.get((tally.period, source))
            if clusters is not None:
                clusters.setdefault(tally.cluster, []).append(tally)
    for index, source, cluster in published:
        by_source.get((index, source), {}).setdefault(cluster, [])
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
        elif share.destination == mapping.source and not share.weight:
            kind = "unmapped"
        ends.append((End(mapping.source, share.destination or ""), kind, share.weight))
    visible = [entry for entry in ends if entry[0] not in hidden]
    unseen = [entry for entry in ends if entry[0] in hidden and entry[2]]
    held = sum(weight for _, _, weight in (ends if infer else visible))
    targets = [
        Target(end, kind, weight, weight / held if held else 0.0) for end, kind, weight in visible
    ]
    for end in sorted(seen - {end for end, _, _ in ends} - hidden):
        stray: Kind = "unmapped" if end.destination == end.source else "unlisted"
        targets.append(Target(end, stray, 0, 0.0))
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

    for start in published if isinstance(published, Mapping) else ():
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
            if any(end not in place for end in tally.ends):
                sample.foreign[:] += tally.count
    return [hours[start] for start in sorted(hours)]


def _balanced(
    hours: list[Sample],
    targets: Sequence[Target],
    published: Hours | None,
    doubled: Doubled | None,
) -> tuple[list[Sample], Sample | None]:
    """The hours with what the number of published messages leaves open in each.

    If there is one number for all hours, the whole time is known better than its hours: it is the
    second result.
    """
    if published is None:
        return hours, None
    infers = bool(targets) and targets[-1].inferred
    whole = None
    if isinstance(published, int):
        whole = together(hours, len(targets))
        # A counter may have counted retries, and may not.
        retries = doubled.stored if doubled else 0
        retries = min(retries, max(0, published - whole.stored))
        (left,) = balance([published - retries], [whole.stored], [int(whole.foreign[0])], [None])
        whole = replace(whole, balance=replace(left, open=left.open + retries))
        if not infers:
            part = whole.balance.of_part()
            return [replace(hour, balance=part) for hour in hours], whole
        hours = [whole]
    else:
        starts = [hour.start for hour in hours]
        left_open = balance(
            [published.get(start, 0) if start else 0 for start in starts],
            [hour.stored for hour in hours],
            [int(hour.foreign[0]) for hour in hours],
            starts,
        )
        hours = [replace(h, balance=left) for h, left in zip(hours, left_open, strict=True)]
    if infers:
        for sample in hours:
            sample.certain[-1] = sample.balance.missing
        hours = [replace(hour, balance=replace(hour.balance, missing=0)) for hour in hours]
    has_times = all(hour.start for hour in hours)
    return (hours, None) if has_times else ([], hours[0])


def _account(
    scope: Scope,
    targets: Sequence[Target],
    whole: Sample,
    doubled: Doubled | None,
    published: Hours | None,
) -> Account:
    """The account of a mapping."""
    index, source, cluster = scope
    of_kind = Counter[Kind | None]()
    for target, count in zip(targets, whole.certain.tolist(), strict=True):
        of_kind[None if target.inferred else target.kind] += count
    unmapped, inferred = of_kind.pop("unmapped", 0), of_kind.pop(None, 0)
    attributed, ambiguous = sum(of_kind.values()), int(whole.ambiguous[0])
    repeats = doubled.stored if doubled else 0
    missing = unpublished = sent = None
    if published is not None:
        missing = whole.balance.missing
        sent = published if isinstance(published, int) else sum(published.values())
        if doubled and doubled.published:
            sent += min(repeats, doubled.published)
        unpublished = attributed + inferred + ambiguous + unmapped + repeats + missing - sent
    return Account(
        source=source,
        cluster=cluster,
        stage=index,
        published=sent,
        attributed=attributed,
        inferred=inferred,
        ambiguous=ambiguous,
        unmapped=unmapped,
        doubled=doubled and doubled.stored,
        missing=missing,
        unpublished=unpublished,
    )


def empty(start: datetime | None, end: datetime | None, targets: int) -> Sample:
    """A sample without messages."""
    certain, possible, elsewhere = (np.zeros(targets, np.int64) for _ in range(3))
    ambiguous, foreign = (np.zeros(1, np.int64) for _ in range(2))
    return Sample(start, end, certain, possible, elsewhere, ambiguous, foreign, Balance())


def together(samples: Sequence[Sample], targets: int) -> Sample:
    """The counts of several samples as one."""
    if len(samples) == 1:
        return samples[0]
    starts = [sample.start for sample in samples if sample.start]
    ends = [sample.end for sample in samples if sample.end]
    result = empty(min(starts, default=None), max(ends, default=None), targets)
    for sample in samples:
        for name in ("certain", "possible", "elsewhere", "ambiguous", "foreign"):
            getattr(result, name)[:] += getattr(sample, name)
    balances = [sample.balance for sample in samples]
    return replace(result, balance=reduce(add, balances)) if balances else result


def _grouped(
    hours: Sequence[Sample], whole: Sample | None, targets: int, by: str, unchanged: float
) -> Iterator[tuple[Sample, ...]]:
    """The buckets of a mapping, and then its regimes; none where there is only one."""

    def bucket(hour: Sample) -> datetime:
        assert hour.start is not None  # noqa: S101 - only empty samples have none
        start = hour.start.replace(minute=0, second=0, microsecond=0)
        return start.replace(hour=0) if by == "day" else start

    changes = statistics.change_points([hour.certain for hour in hours], unchanged) if hours else []
    edges = [0, *changes, len(hours)]
    for groups in (
        [list(group) for _, group in groupby(hours, bucket)],
        [hours[first:last] for first, last in pairwise(edges)],
    ):
        parts = [together(group, targets) for group in groups]
        if whole is not None:  # nobody knows in which part of the time something is missing
            parts = [replace(part, balance=whole.balance.of_part()) for part in parts]
        yield tuple(parts) if len(parts) > 1 else ()


def spread(sample: Sample, targets: Sequence[Target], ends: Sequence[End]) -> Sample:
    """The sample with a count of 0 for each end that it does not have."""
    result = replace(empty(sample.start, sample.end, len(ends)), balance=sample.balance)
    places = [ends.index(target.end) for target in targets]
    result.certain[places] = sample.certain
    result.possible[places] = sample.possible
    result.elsewhere[:] = sample.ambiguous
    result.elsewhere[places] = sample.elsewhere
    result.ambiguous[:] = sample.ambiguous
    result.foreign[:] = sample.foreign
    return result
