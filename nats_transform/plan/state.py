"""The state that servers must show after a step, and what it means if they show another state."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from nats_transform.mappings.mapping import AccountMappings, Destination
from nats_transform.mappings.mapping import Mapping as SubjectMapping
from nats_transform.mappings.subject import is_subset
from nats_transform.mappings.transform import number_wildcards
from nats_transform.plan.model import Change, Plan

Thing: TypeAlias = tuple[str, str]
"""The kind and the name of a change."""

Fields: TypeAlias = Mapping[str, Any]


def expected(plan: Plan, step: int) -> dict[Thing, Fields]:
    """The state of each thing that the plan changes after a step; 0 is before the first step."""
    fields: dict[Thing, Fields] = {}
    for planned in plan.steps:
        for change in planned.changes:
            if planned.number <= step:
                fields[change.kind, change.name] = change.after
            else:
                fields.setdefault((change.kind, change.name), change.before)
    return fields


@dataclass(frozen=True, slots=True)
class View:
    """The state that a server or a file shows of the things that a plan changes.

    Attributes:
        where: the name of the server or of the file.
        seen: for each thing that could be seen, the fields that the plan changes.
    """

    where: str
    seen: dict[Thing, Fields]


def differences(plan: Plan, step: int, views: Sequence[View]) -> Iterator[str]:
    """One line for each thing that is not in the state that it has after a step.

    If a later step is in force everywhere as a whole, one line says so. If a thing differs between
    views, its line names the views that differ from the plan.
    """
    fitting = [n for n in range(len(plan.steps) + 1) if all(_fits(plan, n, view) for view in views)]
    if step in fitting:
        return
    if later := [n for n in fitting if n > step]:
        yield f"step {later[0]} is in force already: undo it, or verify that step"
        return
    seen: dict[tuple[Thing, str], list[str]] = {}
    for view in views:
        for thing, fields in view.seen.items():
            if (line := _difference(plan, step, thing, fields)) is not None:
                seen.setdefault((thing, line), []).append(view.where)
    for (thing, line), where in seen.items():
        everybody = [view.where for view in views if thing in view.seen]
        on = f" on {', '.join(where)}" if where != everybody else ""
        yield f"{' '.join(thing)}{on}{line}"


def _fits(plan: Plan, step: int, view: View) -> bool:
    wanted = expected(plan, step)
    return all(same(thing, fields, wanted[thing]) for thing, fields in view.seen.items())


def _difference(plan: Plan, step: int, thing: Thing, fields: Fields) -> str | None:
    """How the state of a thing differs from that after a step, in words; None if it does not."""
    if same(thing, fields, expected(plan, step)[thing]):
        return None
    # A step that was undone looks like a step that was not taken.
    history = [(s.number, c) for s in plan.steps for c in s.changes if (c.kind, c.name) == thing]
    at = next((n for n, change in reversed(history) if same(thing, fields, change.after)), None)
    if at is None and same(thing, fields, history[0][1].before):
        at = 0
    if at is None:
        return f" has a state that is not in the plan: {_shown(thing, fields)}"
    if at > step:
        return f": step {at} is in force already; undo it, or verify that step"
    missing = next(n for n, _ in history if at < n <= step)
    return f": step {missing} is not in force: {_shown(thing, fields)}"


def drained(plan: Plan, step: int, undo: bool) -> Iterator[tuple[Change, list[Any]]]:
    """What the next step takes away, or undoing this one, with its change.

    The filters that a consumer loses: what it has not read by then it never reads. Or the sources
    that a stream loses.
    """
    for planned in plan.steps:
        for change in planned.changes if planned.number == (step if undo else step + 1) else ():
            sides = (change.after, change.before) if undo else (change.before, change.after)
            gone: list[Any] = []
            if change.kind == "consumer":
                old, new = (side["filter_subjects"] for side in sides)
                gone = [one for one in old if new and not any(is_subset(one, of=n) for n in new)]
            elif change.kind == "stream":
                old, new = (side.get("sources") or [] for side in sides)
                gone = [source for source in old if source not in new]
            if gone:
                yield change, gone


def has_to_drain(plan: Plan, step: int, undo: bool) -> bool:
    """Whether something must have been read before the next step, or before this one is undone."""
    return any(drained(plan, step, undo))


def is_split(changes: Iterable[Change]) -> bool:
    """Whether mappings have weights or clusters after some changes, which an audit can judge."""
    return any(
        len(destinations) > 1 or any(d["weight"] != 100 or d.get("cluster") for d in destinations)
        for change in changes
        if change.kind == "mappings"
        for destinations in change.after.values()
    )


def same(thing: Thing, seen: Fields, planned: Fields) -> bool:
    """Whether a server shows what the plan says. The order of filters does not matter."""
    if thing[0] == "mappings":
        return _ways(seen) == _ways(planned)
    return bool(_unordered(seen) == _unordered(planned))


def cumulative(shown: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Converts the mappings that a server shows in `ACCOUNTZ` into the form of a plan.

    In `ACCOUNTZ` a weight is the sum of itself and those before it, for each cluster (`mapDest` in
    `server/accounts.go`; seen on nats-server 2.15.1).
    """
    mappings: dict[str, Any] = {}
    for source, destinations in shown.items():
        before: dict[str, int] = {}
        mappings[source] = []
        for destination in destinations:
            cluster = destination.get("cluster", "")
            weight = destination["weight"] - before.get(cluster, 0)
            before[cluster] = destination["weight"]
            share = {"destination": destination["subject"], "weight": weight}
            mappings[source].append(share | ({"cluster": cluster} if cluster else {}))
    return mappings


def mappings_of(fields: Fields) -> AccountMappings:
    """The mappings that a change of a plan has."""
    mappings = []
    for source, shares in fields.items():
        ends = [Destination(d["destination"], d["weight"], d.get("cluster")) for d in shares]
        mappings.append(SubjectMapping(source, ends))
    return AccountMappings(mappings)


def _ways(mappings: Fields) -> dict[str, Counter[tuple[str, str]]]:
    """The weight of each destination and cluster of each source; "" stands for the source itself.

    A server adds the source for what weights leave of 100 %, unless it is listed: then that part is
    lost. It does so for all other clusters, too, if only some clusters have destinations.
    """
    ways = {}
    for source, destinations in mappings.items():
        weights, totals = Counter[tuple[str, str]](), Counter[str]()
        for destination in destinations:
            cluster, to = destination.get("cluster", ""), destination["destination"]
            is_kept = to in (source, number_wildcards(source))
            weights["" if is_kept else to, cluster] += destination["weight"]
            totals[cluster] += destination["weight"]
        if all(destination["destination"] != source for destination in destinations):
            totals.setdefault("", 0)
            weights.update({("", cluster): 100 - total for cluster, total in totals.items()})
        ways[source] = +weights
    return ways


def _unordered(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _unordered(field) for name, field in value.items()}
    if isinstance(value, list | tuple):
        return sorted(map(_unordered, value), key=lambda entry: json.dumps(entry, sort_keys=True))
    return value


def _shown(thing: Thing, fields: Fields) -> str:
    if not fields:
        return "the account has none" if thing[0] == "mappings" else "there are none"

    def text(value: Any) -> str:
        if isinstance(value, list | tuple):
            return ", ".join(map(text, value))
        if isinstance(value, Mapping) and "destination" in value:
            cluster = f" in {value['cluster']}" if "cluster" in value else ""
            return f"{value['weight']} % to {value['destination']}{cluster}"
        return str(value)

    return "; ".join(f"{name}: {text(value) or 'none'}" for name, value in fields.items())


def other_fields(change: Change, planned: Fields, shown: Fields) -> Iterator[str]:
    """The fields of a configuration, other than those of the change, that differ from the plan.

    Args:
        change: the change of a stream or consumer.
        planned: the configuration that the plan gives to the server.
        shown: the configuration that the server has.
    """
    skipped = {*change.after, "filter_subject"}
    for name in sorted({*planned, *shown} - skipped):
        if _own(planned.get(name)) != _own(shown.get(name)):
            yield name


def _own(value: Any) -> Any:
    """A value without the fields that the server adds by itself and without empty fields."""
    if isinstance(value, Mapping):
        value = {name: field for name, field in value.items() if not name.startswith("_nats.")}
    return value or None
