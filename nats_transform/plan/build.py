"""Makes a plan, or says why there can be none."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Literal

from nats_transform.config import mapping_version
from nats_transform.config.block import mapping_fields
from nats_transform.errors import NatsTransformError
from nats_transform.mappings.mapping import AccountMappings
from nats_transform.mappings.moves import Moves, moves
from nats_transform.mappings.subject import is_subset
from nats_transform.mappings.symbolic import image
from nats_transform.migration import DryRun, MigrationFinding, Question
from nats_transform.migration.findings import REFUSED, STOPS_PLAN
from nats_transform.migration.room.dependents import narrow, wide
from nats_transform.migration.room.flows import republished
from nats_transform.plan.changes import changes
from nats_transform.plan.model import Accepted, Blocked, Change, Need, Plan, Step
from nats_transform.plan.stages import STAGES, Stage, stages
from nats_transform.plan.state import is_split
from nats_transform.streams.stream import StreamConfig
from nats_transform.untrusted import markdown_code
from nats_transform.words import and_more


class NoPlan(NatsTransformError):
    """The change cannot be planned safely.

    Attributes:
        blocked: the findings that prevent it, all of them.
    """

    def __init__(self, findings: Sequence[MigrationFinding]) -> None:
        self.blocked = tuple(
            Blocked(**{name: getattr(finding, name) for name in Blocked.model_fields})
            for finding in findings
        )
        first = self.blocked[0]
        about = f"{first.about}: " if first.about else ""
        more = and_more(len(self.blocked) - 1)
        accept = "" if first.code in REFUSED else ", or accept it with a reason"
        super().__init__(
            "no-safe-plan",
            finding=first.code,
            about=about,
            reason=first.message,
            cure=first.cure,
            accept=accept,
            more=more,
        )


class AcceptsNothing(NatsTransformError):
    """The dry run does not have an accepted finding: it was mistyped, or it is cured."""


_AUDITED = "the audit of this stage says `within`"
_DRAINED = "consumers and sources have read every message under the old subjects"
_HELD = {
    "condition-fails": (
        "publishers that expect a last sequence",
        "read it under the new name",
    ),
    "batch-split": ("publishers of batches", "publish each batch under its new names"),
    "ids-forgotten": ("publishers that retry with a Nats-Msg-Id", "publish"),
}
"""Whom the move of messages would refuse, and what they do after it, by the code of a finding."""
_SETTLED: dict[Literal["schedules", "counters"], tuple[str, str, str, str]] = {
    "schedules": (
        "Publish schedules again for the new names",
        "mappings don't apply to what a stream's scheduler publishes",
        "publish each schedule that the command below names again with its new target, or wait "
        "until it has fired",
        "publish these schedules again, with their old targets",
    ),
    "counters": (
        "Add the old values of counters under the new names",
        "a counter starts at 0 under its new name",
        "run the commands that the command below prints. Clients may keep adding to counters",
        "once the mappings are undone too, add to each old counter what its new one gained since",
    ),
}
"""Title, reason and what to do, or do to undo it, where a mapping moves what a stream keeps."""
_ROOM: dict[Literal["expand", "contract"], Sequence[tuple[Sequence[str], str, str]]] = {
    "expand": (
        (("stream",), "Let streams store the new subjects", "without it, nobody stores them"),
        (("consumer",), "Let consumers get the new subjects", "without it, they wait unread"),
        (("permissions",), "Allow users the new subjects", "without it, the server refuses them"),
        (
            ("exports", "imports"),
            "Let other accounts get the new subjects",
            "without it, these accounts get fewer messages with each stage",
        ),
    ),
    "contract": tuple(
        (kinds, f"Remove the old subjects from {whom}", f"{why} any more")
        for kinds, whom, why in (
            (("consumer",), "consumers", "nothing comes under them"),
            (("stream",), "streams", "nobody publishes under them"),
            (("imports", "exports"), "other accounts", "nothing comes under them"),
            (("permissions",), "users", "nobody needs them"),
        )
    ),
}
"""What changes together, the title and the reason, in an order in which no message is refused."""
_BY_PEOPLE = {
    "counted-twice": "before this step, subtract from each counter's old name what you will add "
    "to its new name afterwards, with the header `Nats-Transform-Carried: OLD NAME`, or let it "
    "begin at 0",
    "header-not-mapped": "readers of subjects in headers must know both names",
    "schedule-target-moves": "schedules must be published again for the new names",
}
"""What people must do about a finding that no change of a configuration cures."""

Needs = Callable[[Stage], tuple[Need, ...]]


def build(
    question: Question,
    try_it: Callable[[Question], DryRun],
    *,
    account: str = "$G",
    percents: Sequence[int] = STAGES,
    accepted: Sequence[Accepted] = (),
    made_from: Mapping[str, str] | None = None,
    needs: Needs = lambda stage: (),
    clusters: Sequence[str] = (),
) -> Plan:
    """The plan of a change; it has no steps if the candidate is already in force.

    Args:
        question: the current mappings, the candidate, and everything that depends on them.
        try_it: a function that makes the dry run of a question on the subjects of the archive.
        account: the account of the mappings.
        percents: the shares of the canary stages.
        accepted: the findings that may stay.
        made_from: the SHA-256 of each input file by its name, for the plan.
        needs: how long a stage must run, for each source that it splits.
        clusters: the clusters that move one after the other; empty if all move at once.

    Raises:
        NoPlan: the dry run finds what no room for both names cures, and nobody accepted it.
        AcceptsNothing: an accepted finding is not among the findings.
    """
    current, candidate = map(mapping_version, (question.current, question.candidate))
    made_of = dict(made_from or {})
    planned = partial(
        Plan, account=account, current=current, candidate=candidate, made_from=made_of
    )
    if current == candidate:
        return planned(steps=())
    dry_run = try_it(question)
    reasons = [finding for finding in (*dry_run.findings, *dry_run.with_room) if finding.stops_plan]
    blocked = [reason for reason in reasons if not _is_accepted(reason, accepted)]
    if blocked:
        # What nobody can accept comes first.
        raise NoPlan(sorted(blocked, key=lambda finding: finding.code not in REFUSED))
    for entry in accepted:
        if not any(_is(entry, finding) for finding in reasons):
            about = f" of {entry.about}" if entry.about else ""
            raise AcceptsNothing("accepts-nothing", finding=entry.code, about=about)
    switch = stages(question.current, question.candidate, percents, clusters)
    changing = moves(question.current, question.candidate)
    both, _ = wide(question, changing)
    ever = (question, both, narrow(question, both, changing))
    settling = tuple(_settle(question.streams, changing))
    heard = Moves([*changing, *republished(both.streams, changing)])
    programs = _programs(heard, dry_run, {change.settles for change in settling})
    steps = [
        *_room("expand", ever),
        *_hold(dry_run),
        *_shift(question.current, switch, account, needs, programs),
        *settling,
        *_room("contract", ever),
    ]
    return planned(
        steps=tuple(step.model_copy(update={"number": n}) for n, step in enumerate(steps, 1)),
        accepted=tuple(accepted),
        audited=_audited(changing, both),
        at_once=dict(switch[0].at_once),
    )


def _is_accepted(finding: MigrationFinding, accepted: Sequence[Accepted]) -> bool:
    return finding.code not in REFUSED and any(_is(reason, finding) for reason in accepted)


def _is(accepted: Accepted, finding: MigrationFinding) -> bool:
    return accepted.code == finding.code and accepted.about in ("", finding.about)


def _programs(changing: Moves, dry_run: DryRun, settled: Collection[str | None]) -> str:
    """What programs must do: no configuration shows or changes them."""
    codes = {finding.code for finding in (*dry_run.findings, *dry_run.with_room)}
    if "schedules" in settled:
        codes.discard("schedule-target-moves")
    known = dict.fromkeys(text for code, text in _BY_PEOPLE.items() if code in codes)
    return "; ".join(filter(None, (_subscribers(changing), *known)))


def _subscribers(changing: Moves) -> str:
    """What programs must do that subscribe without a consumer."""
    names = dict.fromkeys((image(m.old, m.part), image(m.new, m.part)) for m in changing)
    moved = ", ".join(" and ".join(map(markdown_code, pair)) for pair in names)
    if not moved:
        return ""
    return f"programs that subscribe without a consumer must subscribe to both names: {moved}"


def _audited(changing: Moves, both: Question) -> str | None:
    """The first stream that stores messages under both their old and their new names."""
    for stream in both.streams:
        for move in changing:
            names = (image(move.old, move.part), image(move.new, move.part))
            if all(
                any(is_subset(name, of=subject) for subject in stream.subjects) for name in names
            ):
                return stream.name
    return None


def _room(phase: Literal["expand", "contract"], ever: Sequence[Question]) -> Iterable[Step]:
    """The steps that make room for the new names, or take the old ones away."""
    old, new = ever[:2] if phase == "expand" else ever[1:]
    for kinds, title, why in _ROOM[phase]:
        differences = tuple(change for kind in kinds for change in changes(old, new, kind, ever))
        if differences:
            yield Step(number=0, phase=phase, title=title, why=why, changes=differences)


def _hold(dry_run: DryRun) -> Iterable[Step]:
    # What room for the new names cures refuses nobody.
    codes = {
        finding.code
        for finding in (*dry_run.findings, *dry_run.with_room)
        if finding.stops_plan or finding.code not in STOPS_PLAN
    }
    if held := [_HELD[code] for code in _HELD if code in codes]:
        who = " and ".join(name for name, _ in held)
        then = "; ".join(f"{name} then {what}" for name, what in held)
        yield Step(
            number=0,
            phase="hold",
            title=f"Hold {who}",
            why="nats-server refuses them, or stores them twice, while messages move",
            changes=(),
            by_hand=f"stop {who} until 100 % of the messages move; {then}",
            undo_by_hand="let them go on as before",
        )


def _settle(streams: Sequence[StreamConfig], changing: Moves) -> Iterable[Step]:
    moving = [stream for stream in streams if any(changing.under(stream.subjects))]
    holds = {
        "schedules": [stream.name for stream in moving if stream.allow_msg_schedules],
        "counters": [stream.name for stream in moving if stream.allow_msg_counter],
    }
    for settles, (title, why, by_hand, undo) in _SETTLED.items():
        if names := holds[settles]:
            yield Step(
                number=0, phase="settle", title=title, why=why, changes=(), by_hand=by_hand,
                undo_by_hand=undo, settles=settles, streams=tuple(names),
            )  # fmt: skip


def _shift(
    old: AccountMappings, switch: Sequence[Stage], account: str, needs: Needs, programs: str
) -> Iterable[Step]:
    for stage in switch:
        where = "" if stage.cluster is None else f" of cluster {stage.cluster}"
        before, after = map(mapping_fields, (old, stage.mappings))
        change = Change(kind="mappings", name=account, before=before, after=after)
        is_last = stage is switch[-1]
        yield Step(
            number=0,
            phase="shift",
            title=f"Send {stage.percent} % of the messages{where} under the new subjects",
            why="the mappings are the candidate from here on"
            if is_last
            else "a mistake affects no more messages than that",
            changes=(change,),
            programs=programs,
            percent=stage.percent,
            cluster=stage.cluster,
            needs=needs(stage),
            wait=", and ".join([_AUDITED] * is_split([change]) + [_DRAINED] * is_last),
        )
        old = stage.mappings
