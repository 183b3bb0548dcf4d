"""Makes a plan, or says what stands in its way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from nats_transform.check import check
from nats_transform.config import mapping_version
from nats_transform.consumer import Consumer
from nats_transform.errors import NatsTransformError
from nats_transform.findings import Finding, Severity
from nats_transform.mapping import AccountMappings
from nats_transform.migration import DryRun, MigrationFinding, Question, User
from nats_transform.plan.model import Accepted, Blocked, Change, Need, Plan, Step
from nats_transform.plan.moves import Move, image, moves
from nats_transform.plan.room import (
    consumer_with,
    narrowed,
    stream_with,
    user_with,
    widened,
)
from nats_transform.plan.stages import STAGES, stages
from nats_transform.stream import StreamConfig
from nats_transform.subject import is_subset


class NoPlan(NatsTransformError):
    """The change cannot be planned safely.

    Attributes:
        blocked: what stands in its way.
    """

    def __init__(self, blocked: Sequence[Blocked]) -> None:
        self.blocked = tuple(blocked)
        first = blocked[0]
        about = f"{first.about}: " if first.about else ""
        more = f" (and {len(blocked) - 1} more)" if len(blocked) > 1 else ""
        super().__init__(
            f"no safe plan: {first.code}: {about}{first.message}; {first.cure}, "
            f"or accept it with a reason{more}"
        )


class AcceptsNothing(NatsTransformError):
    """An accepted finding that the dry run does not have: it was mistyped, or it is cured."""


STOPS = frozenset(("partition-moves",))
"""Findings that are warnings of a dry run, and for which no order of steps is safe."""

_AUDITED = "the audit of this stage says `within`"
_DRAINED = "consumers have read every message under the old subjects"

Needs = Callable[[int, Sequence[str]], tuple[Need, ...]]


@dataclass(frozen=True, slots=True)
class Around:
    """What stands around the mappings: before, while both names are in use, and after."""

    streams: tuple[StreamConfig, ...]
    consumers: tuple[Consumer, ...]
    users: tuple[User, ...]


def build(
    question: Question,
    try_it: Callable[[Question], DryRun],
    *,
    account: str = "$G",
    percents: Sequence[int] = STAGES,
    accepted: Sequence[Accepted] = (),
    made_from: Mapping[str, str] | None = None,
    needs: Needs = lambda percent, sources: (),
) -> Plan:
    """The plan of a change.

    Args:
        question: the current mappings, the candidate, and what stands around them.
        try_it: makes a dry run of a question on the subjects that were really there.
        account: whose mappings.
        percents: the canary stages.
        accepted: the findings that may stay.
        made_from: the SHA-256 of each input file by its name, for the plan.
        needs: how long a stage of some percent must run, for each source that it splits.

    Raises:
        NoPlan: with all room made, a dry run still finds errors that nobody accepted; or
            nats-server would refuse a stream that has room for both names.
        AcceptsNothing: no finding is as one that was accepted.
    """
    changing = moves(question.current, question.candidate)
    before = Around(question.streams, question.consumers, question.users)
    wide = _wide(before, changing)
    found = try_it(
        replace(question, streams=wide.streams, consumers=wide.consumers, users=wide.users)
    )
    overlaps = [one for one in check(wide.streams) if one.code == "streams-overlap"]
    if blocked := [*_blocked(found, accepted), *map(_overlap, overlaps)]:
        raise NoPlan(blocked)
    for one in accepted:
        if not any(_is(one, finding) for finding in found.findings):
            about = f" of {one.about}" if one.about else ""
            raise AcceptsNothing(
                f"the dry run finds no {one.code}{about}, so it cannot be accepted: correct the "
                "entry, or remove it"
            )
    after = _narrow(before, wide, changing)
    steps = [
        *_changes("expand", before, wide),
        *_shift(question, account, percents, needs),
        *_changes("contract", wide, after),
    ]
    at_once = dict(stages(question.current, question.candidate, percents)[0].at_once)
    return Plan(
        account=account,
        current=mapping_version(question.current),
        candidate=mapping_version(question.candidate),
        made_from=dict(made_from or {}),
        steps=tuple(step.model_copy(update={"number": n}) for n, step in enumerate(steps, 1)),
        accepted=tuple(accepted),
        audited=_audited(changing, wide),
        at_once=at_once,
    )


def _blocked(found: DryRun, accepted: Sequence[Accepted]) -> Iterable[Blocked]:
    for finding in found.findings:
        if finding.severity is not Severity.ERROR and finding.code not in STOPS:
            continue
        if any(_is(one, finding) for one in accepted):
            continue
        yield Blocked(
            code=finding.code, about=finding.about, message=finding.message, cure=finding.cure
        )


def _is(accepted: Accepted, finding: MigrationFinding) -> bool:
    return accepted.code == finding.code and accepted.about in ("", finding.about)


def _audited(changing: Sequence[Move], wide: Around) -> str | None:
    """The stream that stores messages both under their old and their new names."""
    for stream in wide.streams:
        for move in changing:
            old = move.part if move.old is None else image(move.old, move.part)
            new = move.part if move.new is None else image(move.new, move.part)
            if all(any(is_subset(name, of=one) for one in stream.subjects) for name in (old, new)):
                return stream.name
    return None


def _overlap(finding: Finding) -> Blocked:
    """Two streams may not have subjects in common, so nobody can accept this one."""
    return Blocked(
        code=finding.code, about=finding.place, message=finding.message, cure=finding.cure
    )


def _wide(around: Around, changing: Sequence[Move]) -> Around:
    streams = []
    for stream in around.streams:
        wide = widened(stream.subjects, changing)
        streams.append(stream if wide == tuple(stream.subjects) else stream_with(stream, wide))
    return Around(
        tuple(streams),
        tuple(consumer_with(one, widened(one.filters, changing)) for one in around.consumers),
        tuple(user_with(user, changing) for user in around.users),
    )


def _narrow(before: Around, wide: Around, changing: Sequence[Move]) -> Around:
    return Around(
        tuple(
            stream_with(both, narrowed(old.subjects, both.subjects, changing))
            for old, both in zip(before.streams, wide.streams, strict=True)
        ),
        tuple(
            consumer_with(both, narrowed(old.filters, both.filters, changing))
            for old, both in zip(before.consumers, wide.consumers, strict=True)
        ),
        tuple(user_with(user, changing, narrow=True) for user in before.users),
    )


def _changes(phase: str, old: Around, new: Around) -> Iterable[Step]:
    """Steps in an order in which no message finds a door shut."""
    expand = phase == "expand"
    permissions = [
        _change("permissions", a.name, permissions_of(a), permissions_of(b))
        for a, b in zip(old.users, new.users, strict=True)
        if a != b
    ]
    streams = [
        _change("stream", a.name, {"subjects": a.subjects}, {"subjects": b.subjects})
        for a, b in zip(old.streams, new.streams, strict=True)
        if list(a.subjects) != list(b.subjects)
    ]
    consumers = [
        _change(
            "consumer",
            f"{a.stream}/{a.name}",
            {"filter_subjects": list(a.filters)},
            {"filter_subjects": list(b.filters)},
        )
        for a, b in zip(old.consumers, new.consumers, strict=True)
        if a.filters != b.filters
    ]
    if expand:
        said = (
            (streams, "Let streams store the new subjects", "without it, nobody stores them"),
            (consumers, "Let consumers get the new subjects", "without it, they wait unread"),
            (permissions, "Allow users the new subjects", "without it, the server refuses them"),
        )
    else:
        said = (
            (
                consumers,
                "Take the old subjects from consumers",
                "nothing comes under them any more",
            ),
            (streams, "Take the old subjects from streams", "nobody publishes under them any more"),
            (permissions, "Take the old subjects from users", "nobody needs them any more"),
        )
    for changes, title, why in said:
        if changes:
            yield Step(
                number=0,
                phase="expand" if expand else "contract",
                title=title,
                why=why,
                changes=tuple(changes),
            )


def _change(kind: str, name: str, before: dict[str, object], after: dict[str, object]) -> Change:
    return Change.model_validate({"kind": kind, "name": name, "before": before, "after": after})


def permissions_of(user: User) -> dict[str, object]:
    """What a user may, as a server's configuration has it."""
    return {
        side: {
            **({} if allowance.allow is None else {"allow": list(allowance.allow)}),
            **({"deny": list(allowance.deny)} if allowance.deny else {}),
        }
        for side, allowance in (("publish", user.publish), ("subscribe", user.subscribe))
    }


def _shift(
    question: Question, account: str, percents: Sequence[int], needs: Needs
) -> Iterable[Step]:
    old = question.current
    for stage in stages(question.current, question.candidate, percents):
        yield Step(
            number=0,
            phase="shift",
            title=f"Send {stage.percent} % of the messages under the new subjects",
            why="a mistake reaches no more of the messages than that"
            if stage.percent < 100
            else "the mappings are the candidate from here on",
            changes=(_change("mappings", account, _mappings(old), _mappings(stage.mappings)),),
            percent=stage.percent,
            needs=needs(stage.percent, stage.split),
            wait=_AUDITED if stage.percent < 100 else f"{_AUDITED}, and {_DRAINED}",
        )
        old = stage.mappings


def _mappings(mappings: AccountMappings) -> dict[str, object]:
    """Mappings as an account's claims and the server's configuration have them."""
    return {
        mapping.source: [
            {"destination": one.subject, "weight": one.weight}
            | ({"cluster": one.cluster} if one.cluster else {})
            for one in mapping.destinations
        ]
        for mapping in mappings.mappings
    }
