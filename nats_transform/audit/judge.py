"""The verdicts on the counts of an audit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from nats_transform import statistics
from nats_transform.audit.reasons import clusters_in_words, reason_of
from nats_transform.audit.samples import MappingCounts, Sample, Target, counted, empty, spread
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
        published: how many messages were published to each mapping, from which the hidden ends
            are inferred. Without hours a mapping is judged over the whole time only.
    """
    rules = counted(periods, tallies, criteria, hidden, published)
    totals = _totals(rules)
    comparisons = sum(_intervals(len(rule.targets)) * len(rule.samples) for rule in rules)
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
    )


def _intervals(ends: int) -> int:
    """How many comparisons a sample makes: of two shares, one is known from the other."""
    return 1 if ends == 2 else ends


def _judged_rule(
    rule: MappingCounts, periods: Sequence[Period], criteria: Criteria, level: float, tests: int
) -> MappingAudit:
    index, source, cluster = rule.scope
    judged = _judged(rule.samples, rule.targets, criteria, level, tests)
    if rule.is_blind:
        judged = [_undecided(split) if split.messages else split for split in judged]
    whole, *rest = judged
    buckets = tuple(rest[: len(rule.buckets)])
    regimes = tuple(rest[len(rule.buckets) :])
    verdict = whole.verdict
    if any(part.verdict is Verdict.OUTSIDE for part in rest):
        verdict = Verdict.OUTSIDE
    return MappingAudit(
        **{name: getattr(whole, name) for name in Split.model_fields if name != "verdict"},
        verdict=verdict,
        source=source,
        cluster=cluster,
        mapping_version=periods[index].version,
        stage=index,
        reason=reason_of(whole, buckets, regimes, criteria, rule.is_blind),
        buckets=buckets,
        regimes=regimes,
        timeline=Timeline(
            starts=tuple(hour.start for hour in rule.hours if hour.start is not None),
            counts=tuple(tuple(hour.certain.tolist()) for hour in rule.hours),
        ),
    )


def _undecided(split: Split) -> Split:
    """The split without a verdict."""
    ends = [
        end.model_copy(update={"verdict": Verdict.UNDECIDED, "messages_to_decide": None})
        for end in split.destinations
    ]
    return split.model_copy(
        update={"verdict": Verdict.UNDECIDED, "destinations": tuple(ends), "test": None}
    )


def _judged(
    samples: Sequence[Sample],
    targets: Sequence[Target],
    criteria: Criteria,
    level: float,
    tests: int,
) -> list[Split]:
    """The verdicts on some samples; each interval has the confidence `level`."""
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
        verdict = worst_of(destination.verdict for destination in destinations)
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
    target: Target,
    n: int,
    sample: Sample,
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
    total = empty(
        min(audit.from_ for _, audit in members if audit.from_),
        max(audit.to for _, audit in members if audit.to),
        len(ends),
    )
    targets = {end: Target(end, "unlisted", 0, 0.0) for end in ends}
    for rule, audit in members:
        part = spread(rule.whole, rule.targets, ends)
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
