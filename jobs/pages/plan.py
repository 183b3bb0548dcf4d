"""The page of a plan: its stages over time, and each step with its commands and its undo."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from jobs.pages.page import page
from nats_transform.mappings.unseen import Unseen
from nats_transform.plan.files import audit_commands, commands, path, verify_command
from nats_transform.plan.model import Plan, Step
from nats_transform.plan.state import has_to_drain

PAGE = "index.html"


@dataclass(frozen=True, slots=True)
class _Stage:
    """A block of the timeline: a share of a cluster, until the next one.

    Attributes:
        step: the step that begins it.
        hours: how long it must run until an audit can judge it; None if nothing says so.
        columns: its first column, from 1 on, and the one behind its last.
    """

    step: Step
    hours: float | None
    columns: tuple[int, int]


def render(plan: Plan, unseen: Iterable[Unseen] = ()) -> str:
    """The page as HTML."""
    shifts = [step for step in plan.steps if step.percent is not None]
    hours = [_hours(step) for step in shifts]
    clusters: dict[str | None, list[_Stage]] = {step.cluster: [] for step in shifts}
    for column, step in enumerate(shifts, 1):
        later = (n for n, s in enumerate(shifts, 1) if n > column and s.cluster == step.cluster)
        stage = _Stage(step, hours[column - 1], (column, next(later, len(shifts) + 1)))
        clusters[step.cluster].append(stage)
    return page(
        "plan.html",
        plan=plan,
        unseen="; ".join(map(str, unseen)),
        clusters=clusters,
        # A stage is at least as wide as its text.
        widths=[max(hour or 0.0, 1.0) for hour in hours],
        hours=sum(filter(None, hours)),
        audit_commands=audit_commands,
        commands=commands,
        has_to_drain=has_to_drain,
        path=path,
        verify_command=verify_command,
    )


def _hours(step: Step) -> float | None:
    """How long the source with the least traffic needs."""
    return max((need.hours for need in step.needs if need.hours is not None), default=None)
