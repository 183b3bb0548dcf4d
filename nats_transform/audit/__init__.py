"""Whether a split agrees with the weights of a mapping: verdicts on plain counts.

No Spark and no I/O: `jobs.audit` counts, this package judges: `tallies` is what it gets, `samples`
sorts it, `judge` gives the `verdicts` and `reasons` the words. Percentages are 0 to 100, times UTC.

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

from nats_transform.audit.judge import assess
from nats_transform.audit.tallies import End, Hours, Period, Scope, Tally, is_audited
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

__all__ = [
    "Assessment",
    "ClustersAudit",
    "Criteria",
    "DestinationAudit",
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
