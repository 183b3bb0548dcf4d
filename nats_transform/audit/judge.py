"""The verdicts on the counts of an audit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nats_transform.audit import sequential, statistics
from nats_transform.audit.account import Doubled, cause_of
from nats_transform.audit.chance import Draws, findings
from nats_transform.audit.levels import Design, Extent, enough, intervals_of
from nats_transform.audit.reasons import chance_in_words, clusters_in_words, reason_of
from nats_transform.audit.samples import (
    HOUR,
    MappingCounts,
    Sample,
    Target,
    counted,
    spread,
    together,
)
from nats_transform.audit.statistics import Counts, Floats
from nats_transform.audit.tallies import End, Hours, Period, Scope, Tally
from nats_transform.audit.verdicts import (
    Assessment,
    ChanceTest,
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
    doubled: Mapping[Scope, Doubled] | None = None,
    draws: Mapping[Scope, Draws] | None = None,
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
        draws: the order and the keys of the messages of each mapping, as servers have drawn them.
    """
    rules = counted(periods, tallies, criteria, hidden, published, doubled)
    totals = _totals(rules)
    # A mapping without messages gets no verdict; but at the next look it may.
    judged = [rule for rule in rules if criteria.sequential or not rule.whole.is_empty]
    design = Design(
        tuple(Extent(len(rule.targets), len(rule.hours), len(rule.buckets)) for rule in judged),
        tuple(len(_ends(members)) for members in totals),
        criteria.confidence,
        criteria.by,
        criteria.sequential,
    )
    audits = {
        rule.scope: _judged_rule(rule, periods, criteria, design, (draws or {}).get(rule.scope))
        for rule in rules
    }
    clusters = tuple(
        _total(
            periods[members[0].scope[0]].version,
            [(rule, audits[rule.scope]) for rule in members],
            criteria,
            design,
        )
        for members in totals
    )
    # Many clusters together can show what none shows by itself, such as a dead canary.
    outside = (c.total.verdict for c in clusters if c.total.verdict is Verdict.OUTSIDE)
    return Assessment(
        verdict=worst_of([*(audit.verdict for audit in audits.values()), *outside]),
        rules=tuple(audits.values()),
        clusters=clusters,
        comparisons=design.comparisons,
        accounts=tuple(rule.account for rule in rules),
    )


class _Error(NamedTuple):
    """The error of a sample.

    Attributes:
        level: the confidence of its intervals.
        tests: how many tests of exact weights share the error.
        level_of: the confidence that its intervals will have after so many messages.
    """

    level: float
    tests: int
    level_of: Callable[[int], float] | None = None


def _judged_rule(
    rule: MappingCounts,
    periods: Sequence[Period],
    criteria: Criteria,
    design: Design,
    draws: Draws | None,
) -> MappingAudit:
    index, source, cluster = rule.scope
    regimes_judged = () if criteria.sequential else rule.regimes
    messages = max(1, int(rule.whole.certain.sum()))
    errors = [
        _Error(design.sample, design.fits, lambda size: design.longer(size / messages).sample),
        *[_Error(design.sample, design.fits)] * len(rule.buckets),
        *[_Error(design.regime, design.segments)] * len(regimes_judged),
    ]
    samples = (rule.whole, *rule.buckets, *regimes_judged)
    judged = _judged(samples, rule.targets, criteria, errors)
    alarm = None
    if criteria.sequential and rule.hours and not rule.is_blind:
        alarm = _alarm(rule, criteria, design.sample)
    if rule.is_blind:
        judged = [
            split if _has_strays(split, error, criteria) else _undecided(split)
            for split, error in zip(judged, errors, strict=True)
        ]
    whole, *rest = judged
    buckets = tuple(rest[: len(rule.buckets)])
    regimes = tuple(rest[len(rule.buckets) :])
    verdict = whole.verdict
    if alarm is not None or any(part.verdict is Verdict.OUTSIDE for part in rest):
        verdict = Verdict.OUTSIDE
    # Which messages are certain may depend on their keys, which then looks like a pattern.
    is_certain = not rule.whole.ambiguous[0] and not criteria.sequential
    chance = tuple(_chance(draws, design)) if draws is not None and is_certain else ()
    if verdict is not Verdict.OUTSIDE and not all(test.is_random for test in chance):
        verdict = Verdict.NOT_RANDOM
    return MappingAudit(
        **{name: getattr(whole, name) for name in Split.model_fields if name != "verdict"},
        verdict=verdict,
        source=source,
        cluster=cluster,
        mapping_version=periods[index].version,
        stage=index,
        alarm=alarm,
        chance=chance,
        reason=(
            chance_in_words(chance)
            if verdict is Verdict.NOT_RANDOM
            else reason_of(whole, buckets, regimes, criteria, rule.is_blind, alarm)
        ),
        buckets=buckets,
        regimes=regimes,
        timeline=Timeline(
            starts=tuple(hour.start for hour in rule.hours if hour.start is not None),
            counts=tuple(tuple(hour.certain.tolist()) for hour in rule.hours),
        ),
    )


def _has_strays(split: Split, error: _Error, criteria: Criteria) -> bool:
    """Whether more than the tolerance came to ends without a weight, if the others got theirs."""
    strays = sum(end.count for end in split.destinations if not end.weight)
    others = sum(100 * end.count / end.weight for end in split.destinations if end.weight)
    low, _ = statistics.intervals(strays, strays + others, error.level)
    return bool(low > criteria.tolerance / 100)


def _chance(draws: Draws, design: Design) -> Iterator[ChanceTest]:
    for finding in findings(draws):
        p_adjusted = min(1.0, finding.p_value * design.chance)
        is_random = p_adjusted > 1 - design.confidence
        yield ChanceTest(**finding._asdict(), p_adjusted=p_adjusted, is_random=is_random)


def _undecided(split: Split) -> Split:
    """The same split, with the verdict `undecided` if it has messages."""
    if not split.messages:
        return split
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
        evidence = [
            sequential.evidence(hits, misses, hours, edge, tolerance)
            for hits, misses, edge in _sides(rule.hours, n, target, tolerance)
        ]
        # One half of the stake is on “too many”, the other on “too few”.
        crossed |= np.logaddexp(*evidence) - np.log(2) >= -np.log1p(-level)
    return rule.hours[int(crossed.argmax())].end if crossed.any() else None


def _sides(
    samples: Sequence[Sample], n: int, target: Target, tolerance: float
) -> Iterator[tuple[Counts, Counts, float]]:
    """Hits, misses and the edge for two questions: are there too many, and are there too few?

    For the second question hits and misses are exchanged. Messages of unknown destination are
    counted where they make an alarm less likely.
    """
    bounds = np.array([sample.bounds for sample in samples])
    least, rest_most, most, rest_least = bounds[:, :, n].T
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
    # The evidence of the whole is that of the first hour on. Its interval is one more.
    missed = error / [1, *[2] * len(rest)]
    low, high, outside = [], [], []
    for n, target in enumerate(targets):
        evidence, ends = list[Floats](), list[Floats]()
        tolerance = criteria.tolerance_of(target.expected)
        for hits, misses, edge in _sides(samples, n, target, tolerance):
            evidence.append(sequential.above(hits, misses, edge, tolerance))
            share = target.expected if not ends else 1 - target.expected
            ends.append(sequential.interval(hits, hits + misses, share, tolerance, 1 - missed)[0])
        low.append(ends[0])
        high.append(1 - ends[1])
        outside.append(np.logaddexp(*evidence) - np.log(2) >= -np.log(error))
    return np.array(low).T, np.array(high).T, np.array(outside).T


def _judged(
    samples: Sequence[Sample],
    targets: Sequence[Target],
    criteria: Criteria,
    errors: Sequence[_Error],
) -> list[Split]:
    """The verdicts on some samples, each with its error."""
    certain = np.array([sample.certain for sample in samples])
    bounds = np.array([sample.bounds for sample in samples])
    least, rest_most, most, rest_least = bounds.swapaxes(0, 1)
    if criteria.sequential:
        low, high, outside = _judged_at_any_look(samples, targets, criteria, errors[0].level)
    else:
        levels = np.array([[error.level] for error in errors])
        low, _ = statistics.intervals(least, least + rest_most, levels)
        _, high = statistics.intervals(most, most + rest_least, levels)
        expected = np.array([target.expected for target in targets])
        tolerance = np.array([criteria.tolerance_of(share) for share in expected.tolist()])
        outside = (high < np.maximum(expected - tolerance, 0)) | (
            low > np.minimum(expected + tolerance, 1)
        )
    power = 1 - (1 - statistics.POWER) / max(1, intervals_of(len(targets)))
    # A p-value is right at one look only.
    is_tested = certain.any(axis=1) & (least == most).all(axis=1) & (not criteria.sequential)
    fits = iter(
        statistics.fits(certain[is_tested].tolist(), [target.expected for target in targets])
    )
    smallest = min(
        (criteria.tolerance_of(target.expected) for target in targets if target.weight),
        default=criteria.tolerance / 100,
    )
    splits = []
    for sample, error, tested, lows, highs, out in zip(
        samples, errors, is_tested, low, high, outside, strict=True
    ):
        messages, ambiguous = int(sample.certain.sum()), int(sample.ambiguous[0])
        destinations = tuple(
            _judged_destination(
                target, n, sample, (lows[n], highs[n], out[n]), criteria, error, power
            )
            for n, target in enumerate(targets)
        )
        verdict = worst_of(destination.verdict for destination in destinations)
        unmapped = [d for d in destinations if d.end == "unmapped" and d.verdict is Verdict.OUTSIDE]
        cause = cause_of(
            sample.balance, sample.stored, sum(d.count for d in unmapped), smallest, error.level
        )
        if cause is not None and cause.is_outside:
            verdict = Verdict.OUTSIDE
        has_cause = verdict in (Verdict.OUTSIDE, Verdict.UNDECIDED)
        test = None
        if tested:
            test = _goodness(next(fits), error.tests)
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


def _goodness(fit: statistics.Fit, tests: int) -> Goodness:
    p_adjusted = min(1.0, fit.p_value * tests)
    return Goodness(method=fit.method, p_value=fit.p_value, p_adjusted=p_adjusted)


def _judged_destination(
    target: Target,
    n: int,
    sample: Sample,
    interval: tuple[float, float, bool],
    criteria: Criteria,
    error: _Error,
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
    needed, as_seen = _needed(target.expected, tolerance, count, messages, error, power, verdict)
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
        messages_as_seen=as_seen,
    )


def _needed(
    expected: float,
    tolerance: float,
    count: int,
    messages: int,
    error: _Error,
    power: float,
    verdict: Verdict,
) -> tuple[int | None, int | None]:
    """About how many messages decide a share: if it is as expected, and if it stays as seen.

    The second is None where it has not been asked for, too: only the whole time goes on.
    """
    goes_on = error.level_of is not None and verdict is Verdict.UNDECIDED

    def level_of(size: int) -> float:
        return error.level_of(size) if error.level_of and goes_on else error.level

    def if_right(level: float) -> int | None:
        return statistics.messages_to_decide(expected, tolerance, level, power)

    def if_as_seen(level: float) -> int | None:
        share = count / messages
        return statistics.messages_to_settle(share, expected, tolerance, level, power)

    needed, as_seen = enough(if_right, level_of, messages), None
    if verdict is Verdict.UNDECIDED and messages and needed is not None:
        is_near = messages >= needed  # there were enough messages, but the share is near an edge
        if goes_on or is_near:
            as_seen = enough(if_as_seen, level_of, messages)
        if is_near:
            needed = as_seen
    return needed, as_seen


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
    design: Design,
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
    (split,) = _judged(
        [total], list(targets.values()), criteria, [_Error(design.sample, len(design.totals))]
    )
    lists = {tuple((t.end, t.expected) for t in rule.targets if t.weight) for rule, _ in members}
    same = None
    if len(lists) == 1 and not split.ambiguous and not criteria.sequential:
        test = statistics.homogeneity(
            [spread(rule.whole, rule.targets, ends).certain.tolist() for rule, _ in members]
        )
        same = _goodness(test, len(design.totals))
    out = [audit for _, audit in members if audit.verdict is Verdict.OUTSIDE]
    hides = (split.verdict is Verdict.OUTSIDE) != bool(out)
    return ClustersAudit(
        source=members[0][0].scope[1],
        mapping_version=version,
        total=split,
        same_split=same,
        hides=hides,
        message=clusters_in_words(split.verdict, len(members), [audit.cluster for audit in out]),
    )
