"""Whether each destination got the share that its weight asks for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, time
from itertools import islice
from typing import Any, cast

from expectations.expectation import Expectation, Judgement
from expectations.measures.transformed import TransformedMeasures
from nats_transform import AccountMappings, Fate
from nats_transform.audit import (
    Criteria,
    End,
    MappingAudit,
    Period,
    Split,
    Tally,
    Verdict,
    assess,
    is_audited,
)
from nats_transform.words import plural

SHOWN = 100
"""How many shares Data Docs shows, and the details have of each day."""


def weights_hold(
    mappings: AccountMappings, tolerance: float = 1.0, confidence: float = 0.99
) -> Expectation:
    """Each destination's share is within a tolerance of its weight, in each cluster and day.

    Judged by `nats_transform.audit`: exact Clopper-Pearson intervals, their confidence corrected
    for the number of comparisons. What too few messages leave undecided does not fail.

    Args:
        mappings: those that wrote the rows.
        tolerance: how many percentage points a share may differ from its weight.
        confidence: the probability, 0 to 1, that all intervals are right together.
    """

    def judge(measures: TransformedMeasures) -> Judgement:
        audited = [mapping for mapping in mappings.mappings if is_audited(mapping)]
        assessment = assess(
            [Period(AccountMappings(audited))],
            _tallies(measures),
            Criteria(tolerance, confidence, "day"),
        )
        # What needs a look comes first, and thousands of rules do not all need one.
        order = (Verdict.OUTSIDE, Verdict.UNDECIDED, Verdict.WITHIN)
        judged = [rule for rule in assessment.rules if rule.messages]
        judged.sort(key=lambda rule: order.index(rule.verdict))
        outside = [
            {"mapping": rule.source, "cluster": rule.cluster or "-", "why": rule.reason}
            for rule in judged
            if rule.verdict is Verdict.OUTSIDE
        ]
        verdicts = Counter(rule.verdict for rule in judged)
        told = ", ".join(f"{verdicts[v]:,} {v}" for v in order if verdicts[v])
        splits = [*islice(_splits(judged), SHOWN * (1 + len(measures.days)))]
        return Judgement(
            not outside,
            f"of {plural(len(judged), 'split')}: {told}"
            if judged
            else "no message that a weight applies to",
            outside,
            [
                {name: value for name, value in share.items() if name != "day"}
                for share in splits[:SHOWN]
                if share["day"] is None
            ],
            {"splits": splits},
        )

    return Expectation(
        "ExpectWeightsToHold", "weights",
        f"Each destination gets its weight of the messages, give or take {tolerance:g} percentage "
        f"points, in every cluster and on every day, at confidence {confidence:g}.",
        "A share passes if its exact (Clopper-Pearson) interval, corrected for the number of "
        "comparisons, lies inside the tolerance, and fails if it lies outside. With too few "
        "messages to decide, it doesn't fail.",
        judge, arguments={"tolerance": tolerance, "confidence": confidence},
    )  # fmt: skip


def _splits(rules: Iterable[MappingAudit]) -> Iterable[dict[str, Any]]:
    """Every share as plain numbers: of all days together (`day` is null), then of each day."""
    whole = [(rule, cast(Split, rule), None) for rule in rules]
    daily = [
        (rule, split, split.from_.date().isoformat())
        # A rule that has messages of one day only has no buckets: that day is the whole.
        for rule in rules
        for split in (rule.buckets or (rule,))
        if split.from_ is not None
    ]
    for rule, split, day in (*whole, *daily):
        for share in rule.shares(split):
            yield {"day": day} | share


def _tallies(measures: TransformedMeasures) -> Iterable[Tally]:
    for ending, rows in measures.endings.items():
        # An ending without a destination counts only where it is that part of the weights.
        if ending.source is None or ending.day is None:
            continue
        if ending.destination is None and ending.fate != Fate.LOST.value:
            continue
        start = datetime.combine(ending.day, time(), UTC)
        end = End(ending.source, ending.destination or "")
        yield Tally(ending.cluster, start, (end,), rows)
