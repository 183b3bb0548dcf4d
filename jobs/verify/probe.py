"""Finds out which step of a plan is in force on a server, from how it maps some messages.

Servers only trace the messages: nobody gets them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations

from jobs.jetstream.connection import connection
from jobs.jetstream.tracing import belongs_to_server, mapped_subjects
from jobs.plan import PlanError
from jobs.settings.connection import NatsSettings
from nats_transform.errors import printable
from nats_transform.mappings.subject import is_valid_publish_subject
from nats_transform.plan.model import Plan
from nats_transform.plan.state import Fields, View, expected, mappings_of

MOST = 20_000
"""The most messages of a probe. Shares that need more to be told apart are not probed."""
_SIGMAS = 5  # a right share is told wrong once in two millions
_LOST = ""  # the outcome of messages that come out nowhere

_Shares = Mapping[str, float]


async def probe(settings: NatsSettings, plan: Plan, step: int, subject: str) -> View:
    """The mappings on one server: those of the step that fits, with that of `step` first.

    Args:
        settings: one server, and a user who may publish the subject, and publish and subscribe
            inboxes.
        step: the step that should be in force.
        subject: a literal subject under a source that the plan changes.

    Raises:
        PlanError: the subject cannot tell the steps apart, or no step fits.
        ArchiveError: the server cannot trace.
    """
    thing = ("mappings", plan.account)
    if not is_valid_publish_subject(subject) or belongs_to_server(subject):
        raise PlanError("probe-not-literal", subject=printable(subject))
    async with connection(settings) as client:
        cluster = client._server_info.get("cluster")
        states = [expected(plan, n)[thing] for n in range(len(plan.steps) + 1)]
        shares = [_shares(fields, subject, cluster) for fields in states]
        names = {name for outcomes in shares for name in outcomes} - {_LOST}
        if own := next(filter(belongs_to_server, sorted(names)), None):
            raise PlanError("probe-own-subject", subject=subject, destination=own)
        messages = _messages(subject, shares)
        got = await mapped_subjects(client, subject, messages)
    order = sorted(range(len(states)), key=lambda n: abs(n - step))
    for n in order:
        if _fits(got, shares[n], messages):
            return View(settings.where, {thing: states[n]})
    results = ", ".join(f"{count} as {name or 'nothing'}" for name, count in sorted(got.items()))
    raise PlanError(
        "probe-fits-no-step",
        subject=subject,
        where=settings.where,
        messages=messages,
        results=results,
    )


def _shares(fields: Fields, subject: str, cluster: str | None) -> _Shares:
    """The share of each result of the subject."""
    mappings = mappings_of(fields)
    percents: Counter[str] = Counter()
    for outcome, percent in mappings.outcomes(subject, cluster):
        if outcome.subject is not None and "{{random(" in outcome.subject:
            raise PlanError("probe-random", subject=subject)
        percents[outcome.subject or _LOST] += percent
    return {name: percent / 100 for name, percent in percents.items()}


def _messages(subject: str, shares: Sequence[_Shares]) -> int:
    """How many messages are needed to tell the steps apart.

    Raises:
        PlanError: no number does.
    """
    apart = {tuple(sorted(s.items())): s for s in shares}.values()
    if len(apart) == 1:
        raise PlanError("probe-unchanged", subject=subject)
    needed = 1
    for a, b in combinations(apart, 2):
        needed = max(needed, min(_needed(a.get(n, 0), b.get(n, 0)) for n in {*a, *b}))
    if needed > MOST:
        raise PlanError("probe-too-many", needed=needed)
    return needed


def _needed(share: float, other: float) -> int:
    """How many messages it takes until two shares differ by `_SIGMAS` deviations of each."""
    if share == other:
        return MOST + 1
    spread = math.sqrt(share * (1 - share)) + math.sqrt(other * (1 - other))
    return max(20, math.ceil((_SIGMAS * spread / (share - other)) ** 2) + 1)


def _fits(got: Mapping[str, int], shares: _Shares, messages: int) -> bool:
    return all(
        abs(got.get(name, 0) - messages * share)
        <= _SIGMAS * math.sqrt(messages * share * (1 - share))
        for name in {*got, *shares}
        for share in [shares.get(name, 0.0)]
    )
