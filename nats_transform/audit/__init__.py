"""Verdicts on message counts: whether a split agrees with the weights of a mapping.

`jobs.audit` counts the messages, with Spark or without. This package judges the counts and does no
I/O. Its input is in `tallies`. `samples` sorts the counts, `judge` makes the `verdicts`, and
`reasons` puts them into words. Percentages are from 0 to 100, and times are UTC.

The verdict on a share rests on its Clopper-Pearson interval. The confidence of each interval is
corrected for the number of comparisons in the audit (Bonferroni), so that all intervals hold
together:

    within      the interval lies inside weight ± tolerance
    outside     the interval lies outside weight ± tolerance
    undecided   the interval overlaps an edge: too few messages, or a share near the edge

Where a message could have come from more than one destination, the interval covers the shares under
every possible assignment (worst-case bounds: Manski, "Partial Identification of Probability
Distributions", 2003). So a verdict never rests on a guess. The same holds for messages that are
missing, or that nobody published to the mapping: `account` says how many there are.
"""

from __future__ import annotations

from nats_transform.audit.account import Account, Doubled
from nats_transform.audit.judge import assess
from nats_transform.audit.tallies import End, Hours, Period, Scope, Tally, is_audited
from nats_transform.audit.verdicts import (
    WORST_FIRST,
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

__all__ = [
    "WORST_FIRST",
    "Account",
    "Assessment",
    "ChanceTest",
    "ClustersAudit",
    "Criteria",
    "DestinationAudit",
    "Doubled",
    "End",
    "Goodness",
    "Hours",
    "MappingAudit",
    "Period",
    "Scope",
    "Split",
    "Tally",
    "Timeline",
    "Verdict",
    "assess",
    "is_audited",
    "worst_of",
]
