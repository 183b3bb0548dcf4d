"""Whether a split agrees with the weights of a mapping: verdicts on plain counts.

No Spark and no I/O: `jobs.audit` counts, this module judges. Percentages are 0 to 100, times UTC.

The verdict on a share rests on its Clopper-Pearson interval, at a confidence that is corrected for
every comparison of the audit (Bonferroni), so that all intervals hold together:

    within      the interval lies inside weight ± tolerance
    outside     the interval lies outside it
    undecided   neither: too few messages, or the share is on the edge

Where a message could have come from more than one destination, the interval spans what the shares
would be under every assignment (worst-case bounds: Manski, "Partial Identification of Probability
Distributions", 2003), so a verdict never rests on a guess.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import groupby, pairwise
from typing import Annotated, Literal, TypeAlias

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from nats_transform import statistics
from nats_transform.mapping import AccountMappings
from nats_transform.mapping import Mapping as SubjectMapping
from nats_transform.statistics import Counts

HOUR = timedelta(hours=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


_BLIND = (
    "the archive holds one destination alone, so no share can be told: "
    "give the source archive or how many messages were published"
)


class Verdict(StrEnum):
    """What an audit says of a share, a rule or everything."""

    WITHIN = "within"
    OUTSIDE = "outside"
    UNDECIDED = "undecided"
    NOTHING = "nothing to audit"
    """No weights, or no message."""


@dataclass(frozen=True, slots=True, order=True)
class End:
    """One possible end of a mapping.

    Attributes:
        source: of the mapping.
        destination: as in `Outcome.mapping_destination`; "" for the part that is lost.
    """

    source: str
    destination: str


@dataclass(frozen=True, slots=True)
class Tally:
    """How many messages of one cluster and hour came to one end.

    Attributes:
        cluster: where they were published; None if unknown.
        start: of the hour, or of the period if that began later.
        ends: the ends they can have come to; more than one if that cannot be told.
        count: of messages.
        period: index of the mapping version in force.
    """

    cluster: str | None
    start: datetime
    ends: tuple[End, ...]
    count: int
    period: int = 0


@dataclass(frozen=True, slots=True)
class Period:
    """A mapping version and from when to when it was in force; None is open."""

    mappings: AccountMappings
    version: str = ""
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Criteria:
    """What a split is held against.

    Attributes:
        tolerance: percentage points that a share may be off.
        confidence: that none of the intervals misses, and no change is seen where none was.
        by: the buckets that get a verdict of their own.
    """

    tolerance: float = 1.0
    confidence: float = 0.99
    by: Literal["hour", "day"] = "day"

    def __post_init__(self) -> None:
        if not 0 < self.tolerance <= 100:
            raise ValueError(
                f"a tolerance of {self.tolerance:g} can never be shown to hold: "
                "give percentage points above 0 and up to 100"
            )
        if not 0 < self.confidence < 1:
            raise ValueError(f"a confidence of {self.confidence:g}: give one between 0 and 1")


Kind: TypeAlias = Literal["destination", "remainder", "lost", "unlisted", "uncaptured"]


class _Result(BaseModel):
    model_config = ConfigDict(frozen=True, serialize_by_alias=True, validate_by_name=True)


class DestinationAudit(_Result):
    """One destination's share against its weight.

    Attributes:
        destination: as configured; null for messages that are lost or not captured.
        end: `destination`; `remainder`, the part that keeps its subject; `lost`; `unlisted`, a
            destination of another cluster; `uncaptured`, several ends that the archive cannot hold.
        weight: percent configured.
        expected: percent of the messages counted; differs from the weight where the archive cannot
            hold every end.
        count: messages that can only have ended here.
        ambiguous: further messages that may have.
        inferred: the count is what the source archive has more than the observed one.
        share, low, high: percent; the interval holds whatever the ambiguous messages are.
        verdict: on the interval.
        messages_to_decide: how many messages would decide it; null if no number would.
    """

    destination: str | None
    end: Kind = "destination"
    weight: float
    expected: float
    count: int
    ambiguous: int = 0
    inferred: bool = False
    share: float | None
    low: float
    high: float
    verdict: Verdict
    messages_to_decide: int | None


class Goodness(_Result):
    """A test of exactly these weights, without tolerance.

    Attributes:
        method: which one.
        p_value: by itself.
        p_adjusted: corrected for the number of such tests in the audit (Bonferroni).
    """

    method: str
    p_value: float
    p_adjusted: float


class Split(_Result):
    """How the messages of one mapping and cluster were split over some time.

    Attributes:
        from_, to: the time, the end excluded; null where there is no message.
        verdict: of its destinations: outside if one is, within if all are.
        messages: that came to a known end of the mapping.
        ambiguous: further messages that may have.
        destinations: in ascending order of weight, as nats-server tries them.
        test: of the exact weights; null where the counts are not certain.
    """

    from_: Annotated[datetime | None, Field(alias="from")]
    to: datetime | None
    verdict: Verdict
    messages: int
    ambiguous: int = 0
    destinations: tuple[DestinationAudit, ...]
    test: Goodness | None = None


class Timeline(_Result):
    """Counts by hour.

    Attributes:
        starts: of the hours that have messages.
        counts: for each hour, one for each destination of the rule.
    """

    starts: tuple[datetime, ...]
    counts: tuple[tuple[int, ...], ...]


class RuleAudit(Split):
    """The verdict on one mapping in one cluster under one mapping version.

    Its verdict is outside also if the whole looks right but a bucket or a regime does not.

    Attributes:
        source: of the mapping.
        cluster: where the messages were published; null if the archive does not say.
        mapping_version: in force.
        reason: the verdict in a few words.
        buckets: the same by hour or day; empty if there is only one.
        regimes: the same for each stretch of time with one split; empty if it never changed.
        timeline: the counts behind it.
    """

    source: str
    cluster: str | None
    mapping_version: str
    reason: str
    buckets: tuple[Split, ...] = ()
    regimes: tuple[Split, ...] = ()
    timeline: Timeline


class ClustersAudit(_Result):
    """One mapping over all clusters: whether a total that looks right hides clusters that differ.

    Attributes:
        source: of the mapping.
        mapping_version: in force.
        total: the split of all clusters together, expected as their messages weigh.
        same_split: p-value that clusters with the same weights share one split; null where the
            clusters have weights of their own.
        hides: the total is within the tolerance and a cluster is outside.
        message: that, in a sentence.
    """

    source: str
    mapping_version: str
    total: Split
    same_split: Goodness | None
    hides: bool
    message: str


@dataclass(frozen=True, slots=True)
class Assessment:
    """The verdicts of an audit.

    Attributes:
        comparisons: how many intervals and changes share the error that `confidence` allows.
    """

    verdict: Verdict
    rules: tuple[RuleAudit, ...]
    clusters: tuple[ClustersAudit, ...]
    comparisons: int


Scope: TypeAlias = tuple[int, str, str | None]
"""Of a rule: index of the period, source of the mapping, cluster."""

Hours: TypeAlias = Mapping[datetime, int] | int
"""Messages by hour, or all together."""


def is_audited(mapping: SubjectMapping) -> bool:
    """Whether a mapping has weights or cluster scopes that a split can be held against."""
    return bool(mapping.clusters) or mapping.is_drawn()


@dataclass(frozen=True, slots=True)
class _Target:
    """An end that a rule expects, with its share of the messages counted (a fraction)."""

    end: End
    kind: Kind
    weight: int
    expected: float
    inferred: bool = False


@dataclass(frozen=True, slots=True)
class _Sample:
    """Counts of some time, one for each target of a rule.

    Attributes:
        certain: messages that can only have come to this target.
        possible: further messages that may have.
        elsewhere: ambiguous messages that may have come to another target of the rule.
        ambiguous: one number: messages that may have come to any of them.
    """

    start: datetime | None
    end: datetime | None
    certain: Counts
    possible: Counts
    elsewhere: Counts
    ambiguous: Counts


@dataclass(frozen=True, slots=True)
class _Rule:
    """A rule with its counts, before any verdict.

    Attributes:
        blind: of all it expects the archive can hold one end alone: no share can be told.
    """

    scope: Scope
    targets: tuple[_Target, ...]
    blind: bool
    hours: tuple[_Sample, ...]
    whole: _Sample
    buckets: tuple[_Sample, ...]
    regimes: tuple[_Sample, ...]

    @property
    def samples(self) -> tuple[_Sample, ...]:
        return (self.whole, *self.buckets, *self.regimes)


def assess(
    periods: Sequence[Period],
    tallies: Iterable[Tally],
    criteria: Criteria,
    *,
    hidden: frozenset[End] = frozenset(),
    published: Mapping[Scope, Hours] | None = None,
) -> Assessment:
    """The verdicts on some counts.

    Args:
        periods: the mapping versions in force; their index is the tallies' `period`.
        tallies: the counts.
        criteria: tolerance, confidence and buckets.
        hidden: ends that the archive cannot hold; the weights of the others are then shares of
            what it holds.
        published: how many messages were published, by rule, from which the hidden ends are
            inferred. Without hours a rule is judged as a whole only.
    """
    found = _by_rule(periods, tallies)
    steady = 1 - (1 - criteria.confidence) / max(1, len(found))
    rules = []
    for scope, entries in found.items():
        index, source, cluster = scope
        mapping = next(m for m in periods[index].mappings.mappings if m.source == source)
        sent = published.get(scope) if published is not None else None
        seen = {end for tally in entries for end in tally.ends if end.source == source}
        targets = _targets(mapping, cluster, seen, hidden, infer=sent is not None)
        hours = _hours(targets, entries, sent, periods[index])
        expected = sum(share.weight > 0 for share in mapping.shares(cluster))
        blind = expected > 1 and sum(target.weight > 0 for target in targets) < 2
        rules.append(_rule(scope, targets, blind, hours, criteria, steady))
    totals = _totals(rules)
    comparisons = sum(_intervals(len(rule.targets)) * len(rule.samples) for rule in rules)
    comparisons += sum(_intervals(len(_ends(members))) for members in totals)
    level = 1 - (1 - criteria.confidence) / max(1, comparisons)
    tests = max(1, sum(len(rule.samples) for rule in rules))
    audits = {rule.scope: _judged_rule(rule, periods, criteria, level, tests) for rule in rules}
    return Assessment(
        verdict=_of_all([audit.verdict for audit in audits.values()]),
        rules=tuple(audits.values()),
        clusters=tuple(
            _total(
                periods[members[0].scope[0]].version,
                [(rule, audits[rule.scope]) for rule in members],
                criteria,
                level,
                len(totals),
            )
            for members in totals
        ),
        comparisons=comparisons,
    )


def _of_all(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict on several things together; those without messages have no say."""
    told = set(verdicts)
    for verdict in (Verdict.OUTSIDE, Verdict.UNDECIDED, Verdict.WITHIN):
        if verdict in told:
            return verdict
    return Verdict.NOTHING


def _by_rule(periods: Sequence[Period], tallies: Iterable[Tally]) -> dict[Scope, list[Tally]]:
    """The tallies of every rule, in the order of the config; a mapping without any has one rule."""
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
) -> list[_Target]:
    """What a mapping should do in a cluster, with shares of what can be counted.

    Hidden ends are left out, or stand together in one last target if they are to be inferred.
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
        _Target(end, kind, weight, weight / held if held else 0.0) for end, kind, weight in visible
    ]
    strays = sorted(seen - {end for end, _, _ in ends} - hidden)
    targets += [_Target(end, "unlisted", 0, 0.0) for end in strays]
    if infer and unseen:
        weight = sum(weight for _, _, weight in unseen)
        end, kind, _ = unseen[0]
        if len(unseen) > 1:
            end, kind = End(mapping.source, ""), "uncaptured"
        targets.append(_Target(end, kind, weight, weight / held, inferred=True))
    return targets


def _hours(
    targets: Sequence[_Target],
    entries: Sequence[Tally],
    published: Hours | None,
    period: Period,
) -> list[_Sample]:
    """The counts of a rule by hour, ascending."""
    place = {target.end: n for n, target in enumerate(targets) if not target.inferred}
    hours: dict[datetime, _Sample] = {}

    def hour(start: datetime) -> _Sample:
        if start not in hours:
            end = start.replace(minute=0, second=0, microsecond=0) + HOUR
            if period.until is not None:
                end = min(end, period.until)
            hours[start] = _empty(start, end, len(targets))
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
        # Two archives disagree by a few messages around a full hour: never below nothing.
        sample.certain[-1] = max(0, rest)
    return result


def _empty(start: datetime | None, end: datetime | None, targets: int) -> _Sample:
    certain, possible, elsewhere = (np.zeros(targets, np.int64) for _ in range(3))
    return _Sample(start, end, certain, possible, elsewhere, np.zeros(1, np.int64))


def _together(samples: Sequence[_Sample], targets: int) -> _Sample:
    """The counts of several hours in a row."""
    if not samples:
        return _empty(None, None, targets)
    result = _empty(samples[0].start, samples[-1].end, targets)
    for sample in samples:
        result.certain[:] += sample.certain
        result.possible[:] += sample.possible
        result.elsewhere[:] += sample.elsewhere
        result.ambiguous[:] += sample.ambiguous
    return result


def _rule(
    scope: Scope,
    targets: Sequence[_Target],
    blind: bool,
    hours: Sequence[_Sample],
    criteria: Criteria,
    steady: float,
) -> _Rule:
    """A rule with its counts by bucket and by regime."""

    def bucket(hour: _Sample) -> datetime:
        assert hour.start is not None  # noqa: S101 - only empty samples have none
        return _floor(hour.start, criteria.by)

    buckets = [_together(list(group), len(targets)) for _, group in groupby(hours, bucket)]
    changes = statistics.change_points([hour.certain for hour in hours], steady) if hours else []
    edges = [0, *changes, len(hours)]
    regimes = [_together(hours[first:last], len(targets)) for first, last in pairwise(edges)]
    return _Rule(
        scope,
        tuple(targets),
        blind,
        tuple(hours),
        _together(hours, len(targets)),
        tuple(buckets) if len(buckets) > 1 else (),
        tuple(regimes) if len(regimes) > 1 else (),
    )


def _floor(moment: datetime, by: Literal["hour", "day"]) -> datetime:
    hour = moment.replace(minute=0, second=0, microsecond=0)
    return hour.replace(hour=0) if by == "day" else hour


def _intervals(ends: int) -> int:
    """Comparisons in one sample: of two shares each says what the other does."""
    return 1 if ends == 2 else ends


def _judged_rule(
    rule: _Rule, periods: Sequence[Period], criteria: Criteria, level: float, tests: int
) -> RuleAudit:
    index, source, cluster = rule.scope
    judged = _judged(rule.samples, rule.targets, criteria, level, tests)
    if rule.blind:
        judged = [_undecided(split) if split.messages else split for split in judged]
    whole, *rest = judged
    buckets = tuple(rest[: len(rule.buckets)])
    regimes = tuple(rest[len(rule.buckets) :])
    verdict = whole.verdict
    if any(part.verdict is Verdict.OUTSIDE for part in rest):
        verdict = Verdict.OUTSIDE
    return RuleAudit(
        **{name: getattr(whole, name) for name in Split.model_fields if name != "verdict"},
        verdict=verdict,
        source=source,
        cluster=cluster,
        mapping_version=periods[index].version,
        reason=_BLIND if rule.blind else _reason(whole, buckets, regimes, criteria),
        buckets=buckets,
        regimes=regimes,
        timeline=Timeline(
            starts=tuple(hour.start for hour in rule.hours if hour.start is not None),
            counts=tuple(tuple(hour.certain.tolist()) for hour in rule.hours),
        ),
    )


def _undecided(split: Split) -> Split:
    """A split of which no verdict can be given."""
    ends = [
        end.model_copy(update={"verdict": Verdict.UNDECIDED, "messages_to_decide": None})
        for end in split.destinations
    ]
    return split.model_copy(
        update={"verdict": Verdict.UNDECIDED, "destinations": tuple(ends), "test": None}
    )


def _judged(
    samples: Sequence[_Sample],
    targets: Sequence[_Target],
    criteria: Criteria,
    level: float,
    tests: int,
) -> list[Split]:
    """The verdicts on some counts at an interval confidence of `level`."""
    certain = np.array([sample.certain for sample in samples])
    possible = np.array([sample.possible for sample in samples])
    elsewhere = np.array([sample.elsewhere for sample in samples])
    totals = certain.sum(axis=1, keepdims=True)
    low, _ = statistics.intervals(certain, totals + elsewhere, level)
    _, high = statistics.intervals(certain + possible, totals + possible, level)
    power = 1 - (1 - statistics.POWER) / max(1, _intervals(len(targets)))
    is_tested = [bool(s.certain.sum()) and not s.ambiguous[0] for s in samples]
    fits = iter(
        statistics.fits(certain[is_tested].tolist(), [target.expected for target in targets])
    )
    splits = []
    for sample, tested, lows, highs in zip(samples, is_tested, low, high, strict=True):
        messages, ambiguous = int(sample.certain.sum()), int(sample.ambiguous[0])
        destinations = tuple(
            _judged_destination(target, n, sample, (lows[n], highs[n]), criteria, level, power)
            for n, target in enumerate(targets)
        )
        verdict = _of_all(destination.verdict for destination in destinations)
        test = None
        if tested:
            fit = next(fits)
            test = Goodness(
                method=fit.method,
                p_value=fit.p_value,
                p_adjusted=min(1.0, fit.p_value * tests),
            )
        splits.append(
            Split(
                from_=sample.start,
                to=sample.end,
                verdict=verdict if messages + ambiguous else Verdict.NOTHING,
                messages=messages,
                ambiguous=ambiguous,
                destinations=destinations,
                test=test,
            )
        )
    return splits


def _judged_destination(
    target: _Target,
    n: int,
    sample: _Sample,
    interval: tuple[float, float],
    criteria: Criteria,
    level: float,
    power: float,
) -> DestinationAudit:
    tolerance = criteria.tolerance / 100
    bottom, top = max(0.0, target.expected - tolerance), min(1.0, target.expected + tolerance)
    low, high = interval
    verdict = Verdict.UNDECIDED
    if bottom <= low and high <= top:
        verdict = Verdict.WITHIN
    elif high < bottom or low > top:
        verdict = Verdict.OUTSIDE
    count, messages = int(sample.certain[n]), int(sample.certain.sum())
    needed = statistics.messages_to_decide(target.expected, tolerance, level, power)
    if verdict is Verdict.UNDECIDED and needed is not None and messages >= needed:
        # There were enough, but the share is near an edge of the tolerance.
        needed = statistics.messages_to_settle(
            count / messages, target.expected, tolerance, level, power
        )
    return DestinationAudit(
        destination=target.end.destination or None,
        end=target.kind,
        weight=target.weight,
        expected=100 * target.expected,
        count=count,
        ambiguous=int(sample.possible[n]),
        inferred=target.inferred,
        share=100 * count / messages if messages else None,
        low=100 * float(low),
        high=100 * float(high),
        verdict=verdict,
        messages_to_decide=needed,
    )


def _reason(
    whole: Split, buckets: Sequence[Split], regimes: Sequence[Split], criteria: Criteria
) -> str:
    """Why a rule has its verdict, in a few words."""
    if whole.verdict is Verdict.NOTHING:
        return "no message"
    if whole.verdict is not Verdict.OUTSIDE:
        for name, parts in (("from", regimes), (criteria.by, buckets)):
            out = [part for part in parts if part.verdict is Verdict.OUTSIDE]
            if out:
                part = max(out, key=_distance)
                times = f"{_moment(part.from_)} to {_moment(part.to)}"
                return (
                    f"{whole.verdict} as a whole, outside {times}"
                    if name == "from"
                    else f"{whole.verdict} as a whole, outside in {len(out)} of {len(parts)} "
                    f"{name}s, worst {times}"
                )
    if whole.verdict is Verdict.UNDECIDED:
        needed = [d for d in whole.destinations if d.verdict is Verdict.UNDECIDED]
        if whole.ambiguous and any(d.ambiguous for d in needed):
            return f"{whole.ambiguous:,} messages may have come from more than one destination"
        sizes = [d.messages_to_decide for d in needed]
        if None in sizes:
            return "a share is on the edge of the tolerance: no number of messages would decide it"
        return f"about {max(s for s in sizes if s is not None):,} messages would decide it"
    # Of two that are as far off, the lighter one: the canary.
    worst = max(whole.destinations, key=lambda d: round(abs((d.share or 0.0) - d.expected), 6))
    off = (worst.share or 0.0) - worst.expected
    if whole.verdict is Verdict.WITHIN:
        return f"at most {abs(off):.2f} points off"
    changes = ", ".join(_moment(regime.from_) for regime in regimes[1:])
    return f"{worst.destination or worst.end} is {off:+.2f} points off" + (
        f"; the split changed at {changes}" if changes else ""
    )


def _distance(part: Split) -> float:
    return max(abs((d.share or 0.0) - d.expected) for d in part.destinations)


def _moment(moment: datetime | None) -> str:
    return f"{moment:%Y-%m-%d %H:%M}" if moment else "?"


def _totals(rules: Sequence[_Rule]) -> list[list[_Rule]]:
    """The rules of every mapping that has messages of more than one cluster."""
    mine: dict[tuple[int, str], list[_Rule]] = {}
    for rule in rules:
        if rule.whole.certain.sum() and not rule.blind:
            mine.setdefault(rule.scope[:2], []).append(rule)
    return [members for members in mine.values() if len(members) > 1]


def _ends(rules: Sequence[_Rule]) -> list[End]:
    return list(dict.fromkeys(target.end for rule in rules for target in rule.targets))


def _total(
    version: str,
    members: Sequence[tuple[_Rule, RuleAudit]],
    criteria: Criteria,
    level: float,
    tests: int,
) -> ClustersAudit:
    ends = _ends([rule for rule, _ in members])
    messages = sum(audit.messages for _, audit in members)
    total = _empty(
        min(audit.from_ for _, audit in members if audit.from_),
        max(audit.to for _, audit in members if audit.to),
        len(ends),
    )
    targets = {end: _Target(end, "unlisted", 0, 0.0) for end in ends}
    for rule, audit in members:
        part = _spread(rule.whole, rule.targets, ends)
        for name in ("certain", "possible", "elsewhere", "ambiguous"):
            getattr(total, name)[:] += getattr(part, name)
        for target in rule.targets:
            # The configured weights, as the messages of the clusters weigh them.
            expected = targets[target.end].expected + target.expected * audit.messages / messages
            targets[target.end] = replace(target, expected=expected)
    (split,) = _judged([total], list(targets.values()), criteria, level, 1)
    lists = {tuple((t.end, t.expected) for t in rule.targets if t.weight) for rule, _ in members}
    same = None
    if len(lists) == 1 and not split.ambiguous:
        found = statistics.homogeneity(
            [_spread(rule.whole, rule.targets, ends).certain.tolist() for rule, _ in members]
        )
        same = Goodness(
            method=found.method,
            p_value=found.p_value,
            p_adjusted=min(1.0, found.p_value * tests),
        )
    out = [audit for _, audit in members if audit.verdict is Verdict.OUTSIDE]
    hides = split.verdict is not Verdict.OUTSIDE and bool(out)
    names = ", ".join(_cluster_name(audit.cluster) for audit in out)
    message = (
        f"the total is {split.verdict}, but not so in {names}"
        if hides
        else f"{len(members)} clusters agree with the total"
        if not out
        else f"outside in total and in {names}"
    )
    return ClustersAudit(
        source=members[0][0].scope[1],
        mapping_version=version,
        total=split,
        same_split=same,
        hides=hides,
        message=message,
    )


def _spread(sample: _Sample, targets: Sequence[_Target], ends: Sequence[End]) -> _Sample:
    """A sample over a longer list of ends."""
    result = _empty(sample.start, sample.end, len(ends))
    places = [ends.index(target.end) for target in targets]
    result.certain[places] = sample.certain
    result.possible[places] = sample.possible
    result.elsewhere[:] = sample.ambiguous
    result.elsewhere[places] = sample.elsewhere
    result.ambiguous[:] = sample.ambiguous
    return result


def _cluster_name(cluster: str | None) -> str:
    return cluster if cluster is not None else "messages without a cluster"
