"""The verdicts on the counts of an audit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from nats_transform import statistics
from nats_transform.audit import sequential
from nats_transform.audit.account import Doubled, cause_of
from nats_transform.audit.reasons import clusters_in_words, reason_of
from nats_transform.audit.samples import (
    HOUR,
    MappingCounts,
    Sample,
    Target,
    counted,
    spread,
    together,
)
from nats_transform.audit.tallies import End, Hours, Period, Scope, Tally
from nats_transform.audit.verdicts import (
    Assessment,
    ClustersAudit,
    Criteria,
    DestinationAudit,
    Goodness,
    MappingAudit,
    Split,
    Timeline,
    Verdict,
    worst_of,
)
from nats_transform.statistics import Counts, Floats


def assess(
    periods: Sequence[Period],
    tallies: Iterable[Tally],
    criteria: Criteria,
    *,
    hidden: frozenset[End] = frozenset(),
    published: Mapping[Scope, Hours] | None = None,
    doubled: Mapping[Scope, Doubled] | None = None,
) -> Assessment:
    """The verdicts on some counts.

    Args:
        periods: the mapping versions in force; their index is the tallies' `period`.
        tallies: the counts.
        criteria: tolerance, confidence and buckets.
        hidden: ends that the archive cannot hold. The weights of the other ends are then taken as
            shares of what it holds.
        published: how many messages were published to each mapping, retries left out. The counts
            of hidden ends follow from it; then a mapping with one number for all hours is judged
            as a whole only. Without hidden ends it shows what is missing.
        doubled: how many messages of each mapping were stored again, which the tallies leave out;
            None if nobody knows.
    """
    rules = counted(periods, tallies, criteria, hidden, published, doubled)
    totals = _totals(rules)
    # A sequential audit divides the allowed error among the hours, not among the samples.
    comparisons = sum(
        _intervals(len(rule.targets)) * (1 if criteria.sequential else len(rule.samples))
        for rule in rules
    )
    comparisons += sum(_intervals(len(_ends(members))) for members in totals)
    level = 1 - (1 - criteria.confidence) / max(1, comparisons)
    tests = max(1, sum(len(rule.samples) for rule in rules))
    audits = {rule.scope: _judged_rule(rule, periods, criteria, level, tests) for rule in rules}
    return Assessment(
        verdict=worst_of([audit.verdict for audit in audits.values()]),
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
        accounts=tuple(rule.account for rule in rules),
    )


def _intervals(ends: int) -> int:
    """How many comparisons a sample needs. Of two shares, one follows from the other."""
    return 1 if ends == 2 else ends


def _judged_rule(
    rule: MappingCounts, periods: Sequence[Period], criteria: Criteria, level: float, tests: int
) -> MappingAudit:
    index, source, cluster = rule.scope
    samples = (rule.whole, *rule.buckets) if criteria.sequential else rule.samples
    judged = _judged(samples, rule.targets, criteria, level, tests)
    alarm = None if rule.is_blind or not criteria.sequential else _alarm(rule, criteria, level)
    if rule.is_blind:
        judged = [_undecided(split) if split.messages else split for split in judged]
    whole, *rest = judged
    buckets = tuple(rest[: len(rule.buckets)])
    regimes = tuple(rest[len(rule.buckets) :])
    verdict = whole.verdict
    if alarm is not None or any(part.verdict is Verdict.OUTSIDE for part in rest):
        verdict = Verdict.OUTSIDE
    return MappingAudit(
        **{name: getattr(whole, name) for name in Split.model_fields if name != "verdict"},
        verdict=verdict,
        source=source,
        cluster=cluster,
        mapping_version=periods[index].version,
        stage=index,
        alarm=alarm,
        reason=reason_of(whole, buckets, regimes, criteria, rule.is_blind, alarm),
        buckets=buckets,
        regimes=regimes,
        timeline=Timeline(
            starts=tuple(hour.start for hour in rule.hours if hour.start is not None),
            counts=tuple(tuple(hour.certain.tolist()) for hour in rule.hours),
        ),
    )


def _undecided(split: Split) -> Split:
    """The same split, with the verdict `undecided`."""
    ends = [
        end.model_copy(update={"verdict": Verdict.UNDECIDED, "messages_to_decide": None})
        for end in split.destinations
    ]
    return split.model_copy(
        update={
            "verdict": Verdict.UNDECIDED,
            "destinations": tuple(ends),
            "test": None,
            "cause": None,
        }
    )


def _hour(sample: Sample, first: Sample) -> int:
    """How many hours a sample starts after the first one."""
    assert sample.start is not None and first.start is not None  # noqa: S101, PT018 - not empty
    return int((sample.start - first.start) / HOUR)


def _alarm(rule: MappingCounts, criteria: Criteria, level: float) -> datetime | None:
    """The end of the first hour after which the evidence that a share is off was too strong."""
    hours = [_hour(hour, rule.hours[0]) for hour in rule.hours]
    crossed = np.zeros(len(hours), bool)
    for n, target in enumerate(rule.targets):
        tolerance = criteria.tolerance_of(target.expected)
        found = [
            sequential.evidence(hits, misses, hours, edge, tolerance)
            for hits, misses, edge in _sides(rule.hours, n, target, tolerance)
        ]
        # One half of the stake is on “too many”, the other on “too few”.
        crossed |= np.logaddexp(*found) - np.log(2) >= -np.log1p(-level)
    return rule.hours[int(crossed.argmax())].end if crossed.any() else None


def _sides(
    samples: Sequence[Sample], n: int, target: Target, tolerance: float
) -> Iterator[tuple[Counts, Counts, float]]:
    """Hits, misses and the edge for two questions: are there too many, and are there too few?

    For the second question hits and misses are exchanged. Messages of unknown destination are
    counted where they make an alarm less likely.
    """
    found = [sample.bounds for sample in samples]
    least, rest_most = (np.array([getattr(b, x)[n] for b in found]) for x in ("least", "rest_most"))
    most, rest_least = (np.array([getattr(b, x)[n] for b in found]) for x in ("most", "rest_least"))
    yield least, rest_most, target.expected + tolerance
    yield rest_least, most, 1 - (target.expected - tolerance)


def _judged_at_any_look(
    samples: Sequence[Sample], targets: Sequence[Target], criteria: Criteria, level: float
) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """The low and high ends of the shares in a sequential audit, and which shares are outside.

    The first sample is the whole time. Each result has a row for each sample and a column for each
    target.
    """
    whole, *rest = samples
    if whole.start is None:
        shape = (len(samples), len(targets))
        return np.zeros(shape), np.ones(shape), np.zeros(shape, bool)
    error = (1 - level) * sequential.weight([0, *(_hour(sample, whole) for sample in rest)])
    low, high, outside = [], [], []
    for n, target in enumerate(targets):
        found, ends = list[Floats](), list[Floats]()
        tolerance = criteria.tolerance_of(target.expected)
        for hits, misses, edge in _sides(samples, n, target, tolerance):
            found.append(sequential.above(hits, misses, edge, tolerance))
            share = target.expected if not ends else 1 - target.expected
            ends.append(sequential.interval(hits, hits + misses, share, tolerance, 1 - error)[0])
        low.append(ends[0])
        high.append(1 - ends[1])
        outside.append(np.logaddexp(*found) - np.log(2) >= -np.log(error))
    return np.array(low).T, np.array(high).T, np.array(outside).T


def _judged(
    samples: Sequence[Sample],
    targets: Sequence[Target],
    criteria: Criteria,
    level: float,
    tests: int,
) -> list[Split]:
    """The verdicts on some samples; each interval has the confidence `level`."""
    certain = np.array([sample.certain for sample in samples])
    bounds = [sample.bounds for sample in samples]
    if criteria.sequential:
        low, high, outside = _judged_at_any_look(samples, targets, criteria, level)
    else:
        least, most = np.array([b.least for b in bounds]), np.array([b.most for b in bounds])
        rest_most = np.array([b.rest_most for b in bounds])
        rest_least = np.array([b.rest_least for b in bounds])
        low, _ = statistics.intervals(least, least + rest_most, level)
        _, high = statistics.intervals(most, most + rest_least, level)
        expected = np.array([target.expected for target in targets])
        tolerance = np.array([criteria.tolerance_of(share) for share in expected.tolist()])
        outside = (high < np.maximum(expected - tolerance, 0)) | (
            low > np.minimum(expected + tolerance, 1)
        )
    power = 1 - (1 - statistics.POWER) / max(1, _intervals(len(targets)))
    # A p-value is right at one look only.
    is_tested = [
        bool(s.certain.sum()) and (b.least == b.most).all() and not criteria.sequential
        for s, b in zip(samples, bounds, strict=True)
    ]
    fits = iter(
        statistics.fits(certain[is_tested].tolist(), [target.expected for target in targets])
    )
    smallest = min(
        (criteria.tolerance_of(target.expected) for target in targets if target.weight),
        default=criteria.tolerance / 100,
    )
    splits = []
    for sample, tested, lows, highs, out in zip(
        samples, is_tested, low, high, outside, strict=True
    ):
        messages, ambiguous = int(sample.certain.sum()), int(sample.ambiguous[0])
        destinations = tuple(
            _judged_destination(
                target, n, sample, (lows[n], highs[n], out[n]), criteria, level, power
            )
            for n, target in enumerate(targets)
        )
        verdict = worst_of(destination.verdict for destination in destinations)
        unmapped = [d for d in destinations if d.end == "unmapped" and d.verdict is Verdict.OUTSIDE]
        cause = cause_of(
            sample.balance, sample.stored, sum(d.count for d in unmapped), smallest, level
        )
        if cause is not None and cause.is_outside:
            verdict = Verdict.OUTSIDE
        has_cause = verdict in (Verdict.OUTSIDE, Verdict.UNDECIDED)
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
                verdict=Verdict.NOTHING if sample.is_empty else verdict,
                messages=messages,
                ambiguous=ambiguous,
                destinations=destinations,
                test=test,
                cause=cause.text if cause is not None and has_cause else None,
            )
        )
    return splits


def _judged_destination(
    target: Target,
    n: int,
    sample: Sample,
    interval: tuple[float, float, bool],
    criteria: Criteria,
    level: float,
    power: float,
) -> DestinationAudit:
    tolerance = criteria.tolerance_of(target.expected)
    bottom, top = max(0.0, target.expected - tolerance), min(1.0, target.expected + tolerance)
    low, high, is_outside = interval
    verdict = Verdict.UNDECIDED
    if is_outside:
        verdict = Verdict.OUTSIDE
    elif bottom <= low and high <= top:
        verdict = Verdict.WITHIN
    count, messages = int(sample.certain[n]), int(sample.certain.sum())
    needed = statistics.messages_to_decide(target.expected, tolerance, level, power)
    if verdict is Verdict.UNDECIDED and needed is not None and messages >= needed:
        # There were enough messages, but the share is near an edge of the tolerance.
        needed = statistics.messages_to_settle(
            count / messages, target.expected, tolerance, level, power
        )
    return DestinationAudit(
        destination=target.end.destination or None,
        end=target.kind,
        weight=target.weight,
        expected=100 * target.expected,
        tolerance=100 * tolerance,
        count=count,
        ambiguous=int(sample.possible[n]),
        inferred=target.inferred,
        share=100 * count / messages if messages else None,
        low=100 * float(low),
        high=100 * float(high),
        verdict=verdict,
        messages_to_decide=needed,
    )


def _totals(rules: Sequence[MappingCounts]) -> list[list[MappingCounts]]:
    """The counts of every mapping that has messages of more than one cluster."""
    mine: dict[tuple[int, str], list[MappingCounts]] = {}
    for rule in rules:
        if rule.whole.certain.sum() and not rule.is_blind:
            mine.setdefault(rule.scope[:2], []).append(rule)
    return [members for members in mine.values() if len(members) > 1]


def _ends(rules: Sequence[MappingCounts]) -> list[End]:
    return list(dict.fromkeys(target.end for rule in rules for target in rule.targets))


def _total(
    version: str,
    members: Sequence[tuple[MappingCounts, MappingAudit]],
    criteria: Criteria,
    level: float,
    tests: int,
) -> ClustersAudit:
    ends = _ends([rule for rule, _ in members])
    messages = sum(audit.messages for _, audit in members)
    total = together([spread(rule.whole, rule.targets, ends) for rule, _ in members], len(ends))
    targets = {end: Target(end, "unlisted", 0, 0.0) for end in ends}
    for rule, audit in members:
        for target in rule.targets:
            # The mean of the clusters' weights, each weighted by its number of messages.
            expected = targets[target.end].expected + target.expected * audit.messages / messages
            targets[target.end] = replace(target, expected=expected)
    (split,) = _judged([total], list(targets.values()), criteria, level, 1)
    lists = {tuple((t.end, t.expected) for t in rule.targets if t.weight) for rule, _ in members}
    same = None
    if len(lists) == 1 and not split.ambiguous and not criteria.sequential:
        found = statistics.homogeneity(
            [spread(rule.whole, rule.targets, ends).certain.tolist() for rule, _ in members]
        )
        same = Goodness(
            method=found.method,
            p_value=found.p_value,
            p_adjusted=min(1.0, found.p_value * tests),
        )
    out = [audit for _, audit in members if audit.verdict is Verdict.OUTSIDE]
    hides = split.verdict is not Verdict.OUTSIDE and bool(out)
    return ClustersAudit(
        source=members[0][0].scope[1],
        mapping_version=version,
        total=split,
        same_split=same,
        hides=hides,
        message=clusters_in_words(split.verdict, len(members), [audit.cluster for audit in out]),
    )
