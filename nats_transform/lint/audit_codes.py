"""What the verdicts of an audit mean, for `explain`, which works without what audits import."""

from __future__ import annotations

from nats_transform.lint.findings import Code, Severity, on_page

CODES = on_page(
    "audit",
    {
        "within": Code(
            Severity.INFO,
            "the confidence interval of each share lies within its weight, plus or minus the "
            "tolerance",
            "nothing to do",
        ),
        "outside": Code(
            Severity.ERROR,
            "the confidence interval of a share lies outside its weight, plus or minus the "
            "tolerance",
            "check which mapping the servers had loaded, or after a rehearsal correct the weights",
        ),
        "not-random": Code(
            Severity.ERROR,
            "the shares may be right, but the order or keys of the messages aren't random: "
            "something other than the weights decides",
            "look for a mapping that was switched meanwhile, or a publisher who chooses",
        ),
        "undecided": Code(
            Severity.WARNING,
            "the confidence interval overlaps an edge of the tolerance: there are too few "
            "messages, or the share is near the edge",
            "audit again when there are as many messages as the audit says, or allow a wider "
            "--tolerance",
        ),
        "nothing-to-audit": Code(
            Severity.WARNING,
            "no mapping has weights, or those with weights got no messages",
            "give the mapping with weights and the stream with its messages, or --allow-nothing",
        ),
    },
)
"""By the verdict, with dashes."""
