"""What servers must show after a step, and what it means if they show something else."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from nats_transform.plan.model import Change, Plan
from nats_transform.transform import number_wildcards

Thing: TypeAlias = tuple[str, str]
"""The kind and the name of a change."""

Fields: TypeAlias = Mapping[str, Any]


def expected(plan: Plan, step: int) -> dict[Thing, Fields]:
    """What each thing that the plan changes is like after a step; 0: before the first one."""
    found: dict[Thing, Fields] = {}
    for one in plan.steps:
        for change in one.changes:
            if one.number <= step:
                found[change.kind, change.name] = change.after
            else:
                found.setdefault((change.kind, change.name), change.before)
    return found


def differences(plan: Plan, step: int, seen: Mapping[Thing, Fields]) -> Iterator[str]:
    """One line for each thing that was seen otherwise than it is after a step.

    Args:
        plan: the plan.
        step: the step that should be the last one in force.
        seen: the fields that change, of what could be seen.
    """
    wanted = expected(plan, step)
    for thing, fields in seen.items():
        if same(thing, fields, wanted[thing]):
            continue
        kind, name = thing
        # Where in the plan it stands. A step that was undone looks like one not taken.
        history = [
            (one.number, change)
            for one in plan.steps
            for change in one.changes
            if (change.kind, change.name) == thing
        ]
        at = next((n for n, change in reversed(history) if same(thing, fields, change.after)), None)
        if at is None and same(thing, fields, history[0][1].before):
            at = 0
        missing = [n for n, _ in history if (at or 0) < n <= step]
        if at is None:
            yield f"{kind} {name} is as no step of the plan has it: {_shown(fields)}"
        elif at > step:
            yield f"{kind} {name}: step {at} is in force already; undo it, or verify that step"
        else:
            yield f"{kind} {name}: step {missing[0]} is not in force: {_shown(fields)}"


def same(thing: Thing, seen: Fields, planned: Fields) -> bool:
    """Whether what a server shows is what the plan says; the order of filters does not matter."""
    if thing[0] == "mappings":
        return _ways(seen) == _ways(planned)
    return bool(_unordered(seen) == _unordered(planned))


def cumulative(shown: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Mappings as a plan has them, of those that a server shows in `ACCOUNTZ`.

    There each weight has those before it added, for each cluster (`mapDest` in
    `server/accounts.go`; seen on nats-server 2.15.1).
    """
    found: dict[str, Any] = {}
    for source, destinations in shown.items():
        before: dict[str, int] = {}
        found[source] = []
        for one in destinations:
            cluster = one.get("cluster", "")
            weight = one["weight"] - before.get(cluster, 0)
            before[cluster] = one["weight"]
            found[source].append({"destination": one["subject"], "weight": weight, **(
                {"cluster": cluster} if cluster else {})})  # fmt: skip
    return found


def _ways(mappings: Fields) -> dict[str, dict[tuple[str, str], int]]:
    """The weight of each destination and cluster of each source.

    What keeps its subject is left out: a server adds what is missing to 100 % as such a way.
    """
    found = {}
    for source, destinations in mappings.items():
        kept = {source, number_wildcards(source)}
        found[source] = {
            (one["destination"], one.get("cluster", "")): one["weight"]
            for one in destinations
            if one["weight"] and one["destination"] not in kept
        }
    return found


def _unordered(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _unordered(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return sorted(map(_unordered, value), key=lambda one: json.dumps(one, sort_keys=True))
    return value


def _shown(fields: Fields) -> str:
    return (
        "; ".join(
            f"{name}: {', '.join(map(str, value)) if isinstance(value, list | tuple) else value}"
            for name, value in fields.items()
        )
        or "nothing"
    )


def other_fields(change: Change, planned: Fields, shown: Fields) -> Iterator[str]:
    """The fields of a configuration, other than those of the change, that differ from the plan.

    Args:
        change: of a stream or consumer.
        planned: the configuration that the plan gives to the server.
        shown: the configuration that the server has.
    """
    skipped = {*change.after, "filter_subject"}
    for name in sorted({*planned, *shown} - skipped):
        if _own(planned.get(name)) != _own(shown.get(name)):
            yield name


def _own(value: Any) -> Any:
    """A value without what the server puts there by itself; what is empty counts as missing."""
    if isinstance(value, Mapping):
        value = {name: one for name, one in value.items() if not name.startswith("_nats.")}
    return value or None
