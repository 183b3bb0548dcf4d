"""The changes on the server between two states of what depends on subjects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from nats_transform.accounts.sharing import SharedSubject, Shares
from nats_transform.config.permissions import Allowance, User
from nats_transform.migration.question import Question
from nats_transform.plan.model import Change
from nats_transform.streams.stream import StreamConfig

FLOWS = ("subjects", "sources", "republish")
"""The fields of a stream that a plan changes."""


def changes(
    before: Question, after: Question, kind: str, ever: Sequence[Question] = ()
) -> list[Change]:
    """The changes of one kind on the server.

    Args:
        before, after: the state before and after the changes.
        kind: the kind of the changes.
        ever: all states of the migration. A change of a stream lists every field that differs
            between any two of them.
    """
    fields = [[_flows(stream) for stream in account.streams] for account in (before, after, *ever)]
    pairs: Iterable[tuple[str, dict[str, Any], dict[str, Any]]]
    if kind == "stream":
        pairs = (
            (stream.name, *_differing(states))
            for stream, *states in zip(before.streams, *fields, strict=True)
        )
    elif kind == "consumer":
        pairs = (
            (
                f"{a.stream}/{a.name}",
                {"filter_subjects": [*a.filters]},
                {"filter_subjects": [*b.filters]},
            )
            for a, b in zip(before.consumers, after.consumers, strict=True)
        )
    elif kind == "permissions":
        pairs = (
            (a.name, permissions_of(a), permissions_of(b))
            for a, b in zip(before.users, after.users, strict=True)
        )
    else:
        pairs = (
            (name, entries(kind, shares), entries(kind, after.shares[name]))
            for name, shares in before.shares.items()
        )
    return [
        Change.model_validate({"kind": kind, "name": name, "before": old, "after": new})
        for name, old, new in pairs
        if old != new
    ]


def entries(side: str, shares: Shares) -> dict[str, Any]:
    """The exports or imports of an account in the form of a server's configuration."""
    return {side: [as_configured(entry) for entry in getattr(shares, side)]}


def _flows(stream: StreamConfig) -> dict[str, Any]:
    fields = stream.model_dump(by_alias=True, exclude_unset=True)
    return {name: fields.get(name) or None for name in FLOWS}


def _differing(states: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The first two of several states, with only the fields that differ between any of them."""
    names = [name for name in FLOWS if any(state[name] != states[0][name] for state in states)]
    for state in states[:2]:
        yield {name: state[name] for name in names}


def permissions_of(user: User) -> dict[str, object]:
    """The permissions of a user in the form of a server's configuration."""
    sides: dict[str, object] = {
        side: _allowance(allowance, alone=side == "subscribe" or user.responses in (None, False))
        for side, allowance in (("publish", user.publish), ("subscribe", user.subscribe))
    }
    return sides if user.responses is None else sides | {"allow_responses": user.responses}


def _allowance(allowance: Allowance, *, alone: bool) -> dict[str, list[str]]:
    allowed = {}
    # With `allow_responses` an empty list is our own, see `_sides`.
    if allowance.allow is not None and (alone or allowance.allow):
        allowed["allow"] = [*allowance.allow, *allowance.allow_groups]
    if allowance.deny or allowance.deny_groups:
        allowed["deny"] = [*allowance.deny, *allowance.deny_groups]
    return allowed


def as_configured(entry: SharedSubject) -> dict[str, Any]:
    """An export or import in the form of a server's configuration."""
    if not entry.account:
        return {entry.kind: entry.subject, **entry.rest}
    fields = {entry.kind: {"account": entry.account, "subject": entry.subject}}
    return fields | ({"to": entry.to} if entry.to else {}) | dict(entry.rest)
