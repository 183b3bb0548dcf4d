"""Whether each destination got the share that its weight asks for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, time
from itertools import islice

from expectations.expectation import Expectation, Judgement
from expectations.measures import TransformedMeasures
from nats_transform import AccountMappings, Fate, audit
from nats_transform.words import plural

SHOWN = 100
"""How many shares are shown, and how many rules the details have."""


def weights_hold(
    mappings: AccountMappings, tolerance: float = 1.0, confidence: float = 0.99
) -> Expectation:
    """Each destination's share is within a tolerance of its weight, in each cluster and day.

    Judged by `nats_transform.audit`: exact Clopper-Pearson intervals, their confidence corrected
    for the number of comparisons. What too few messages leave undecided does not fail.

    Args:
        tolerance: how many percentage points a share may differ from its weight.
        confidence: the probability, 0 to 1, that all intervals of shares are right together.
    """
    audited = AccountMappings([m for m in mappings.mappings if audit.is_audited(m)])
    criteria = audit.Criteria(tolerance, confidence, "day")

    def judge(measures: TransformedMeasures) -> Judgement:
        assessment = audit.assess([audit.Period(audited)], _tallies(measures), criteria)
        # What needs a look comes first, and thousands of rules do not all need one.
        rules = [rule for rule in assessment.rules if rule.messages]
        rules.sort(key=lambda rule: audit.WORST_FIRST.index(rule.verdict))
        verdicts = Counter(rule.verdict for rule in rules)
        counts = ", ".join(f"{verdicts[v]:,} {v}" for v in audit.WORST_FIRST if verdicts[v])
        observed = f"of {plural(len(rules), 'split')}: {counts}"
        outside = [
            {"mapping": rule.source, "cluster": rule.cluster or "-", "why": rule.reason}
            for rule in rules
            if rule.verdict is audit.Verdict.OUTSIDE
        ]
        # Many clusters together can show what none shows by itself, such as a dead canary.
        together = [
            {"mapping": every.source, "cluster": "all", "why": every.message}
            for every in assessment.clusters
            if every.hides and every.total.verdict is audit.Verdict.OUTSIDE
        ]
        if together:
            observed += f"; {len(together):,} outside over all clusters"
        outside += together
        shares = (share for rule in rules for share in rule.shares(rule))
        return Judgement(
            not outside,
            observed if rules else "no message that a weight applies to",
            outside,
            [*islice(shares, SHOWN)],
            rules[:SHOWN],
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


def _tallies(measures: TransformedMeasures) -> Iterable[audit.Tally]:
    for ending, rows in measures.endings.items():
        # An ending without a destination counts only where it is that part of the weights.
        is_end = ending.destination is not None or ending.fate == Fate.LOST.value
        if is_end and ending.source is not None and ending.day is not None:
            start = datetime.combine(ending.day, time(), UTC)
            end = audit.End(ending.source, ending.destination or "")
            yield audit.Tally(ending.cluster, start, (end,), rows)
