"""The page that shows how long canaries must run: one HTML file that needs nothing else."""

from __future__ import annotations

from jobs.audit.canary import CanaryPlan
from jobs.pages.page import Scale, nice_scale, page
from nats_transform.audit.planning import DAYS, WEEK, CanaryTime, RulePlan

_UNITS = ((96, "h", 1), (24 * 365, "d", 24), (float("inf"), "y", 24 * 365))
"""Hours below which times are shown in a unit, and how many hours it has."""


def render(result: CanaryPlan) -> str:
    """The page as HTML."""
    return page(
        "canary.html",
        result=result,
        days=[(round(100 * (n + 0.5) / 7, 2), name) for n, name in enumerate(DAYS)],
        panels=[(rule, _panels(rule)) for rule in result.rules],
    )


def _panels(rule: RulePlan) -> list[tuple[CanaryTime, Scale, str, str]]:
    """Each canary: the scale of its times, their unit, their SVG path over the hours of a week."""
    panels = []
    for canary in rule.canaries:
        if canary.hours is None:
            continue
        longest = max(canary.hours)
        unit, hours_each = next((unit, each) for below, unit, each in _UNITS if longest < below)
        scale = nice_scale(0.0, longest / hours_each * 1.1, 3)
        spots = [
            f"{1000 * n / (WEEK - 1):.1f} {100 - scale.at(hours / hours_each):.2f}"
            for n, hours in enumerate(canary.hours)
        ]
        panels.append((canary, scale, unit, "M" + "L".join(spots)))
    return panels
