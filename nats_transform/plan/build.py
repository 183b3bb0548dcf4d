"""Makes a plan, or says why there can be none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Literal

from nats_transform.config import mapping_version
from nats_transform.errors import NatsTransformError
from nats_transform.findings import Severity
from nats_transform.mapping import AccountMappings
from nats_transform.migration import DryRun, MigrationFinding, Question
from nats_transform.plan.around import Around, Refused, changes, narrow, obstacles, wide
from nats_transform.plan.codes import REFUSED
from nats_transform.plan.model import Accepted, Blocked, Change, Need, Plan, Step
from nats_transform.plan.moves import Move, made, moves
from nats_transform.plan.stages import STAGES, Stage, stages
from nats_transform.sharing import Shares
from nats_transform.subject import is_subset


class NoPlan(NatsTransformError):
    """The change cannot be planned safely.

    Attributes:
        blocked: the findings and obstacles that prevent it.
    """

    def __init__(self, blocked: Sequence[Blocked]) -> None:
        self.blocked = tuple(blocked)
        first = blocked[0]
        about = f"{first.about}: " if first.about else ""
        more = f" (and {len(blocked) - 1} more)" if len(blocked) > 1 else ""
        accept = "" if first.code in REFUSED else ", or accept it with a reason"
        super().__init__(
            f"no safe plan: {first.code}: {about}{first.message}; {first.cure}{accept}{more}"
        )


class AcceptsNothing(NatsTransformError):
    """The dry run does not have an accepted finding: it was mistyped, or it is cured."""


STOPS = frozenset(
    """captured-elsewhere captured-twice check-not-chained consumer-fewer consumer-more export-fewer
    import-fewer ingress-stops irreversible partition-moves publish-opened republish-stops
    rule-overlap rule-shadowed source-stops subscribe-opened""".split()  # noqa: SIM905 - reads better so
)
"""Findings that are only warnings in a dry run, but that no order of steps makes safe."""

_AUDITED = "the audit of this stage says `within`"
_DRAINED = "consumers and sources have read every message under the old subjects"

Needs = Callable[[Stage], tuple[Need, ...]]


def build(
    question: Question,
    try_it: Callable[[Question], DryRun],
    *,
    account: str = "$G",
    percents: Sequence[int] = STAGES,
    accepted: Sequence[Accepted] = (),
    made_from: Mapping[str, str] | None = None,
    names: tuple[str, ...] = (),
    shares: Mapping[str, Shares] | None = None,
    needs: Needs = lambda stage: (),
    clusters: Sequence[str] = (),
) -> Plan:
    """The plan of a change; it has no steps if the candidate is already in force.

    Args:
        question: the current mappings, the candidate, and the streams, consumers and users.
        try_it: a function that makes the dry run of a question on the subjects of the archive.
        account: the account of the mappings.
        percents: the shares of the canary stages.
        accepted: the findings that may stay.
        made_from: the SHA-256 of each input file by its name, for the plan.
        names: the names by which other accounts call the account.
        shares: the exports and imports of each account, by its name.
        needs: how long a stage must run, for each source that it splits.
        clusters: the clusters that move one after the other; empty if all move at once.

    Raises:
        NoPlan: with both names in use, a dry run still finds errors that nobody accepted; or
            nats-server would refuse a stream that has both names.
        AcceptsNothing: an accepted finding is not among the findings.
    """
    current, candidate = map(mapping_version, (question.current, question.candidate))
    made_of = dict(made_from or {})
    planned = partial(
        Plan, account=account, current=current, candidate=candidate, made_from=made_of
    )
    if current == candidate:
        return planned(steps=())
    changing = moves(question.current, question.candidate)
    before = Around(question.streams, question.consumers, question.users, names, shares or {})
    try:
        both = wide(before, changing)
    except Refused as error:
        raise NoPlan([error.blocked]) from None
    found = try_it(both.asked_of(question))
    stuck = list(obstacles(before, both, changing))
    known: list[MigrationFinding | Blocked] = [*found.findings, *stuck]
    blocked = [one for one in _blocked(found, stuck) if not _is_accepted(one, accepted)]
    if blocked:
        raise NoPlan(blocked)
    for one in accepted:
        if not any(_is(one, finding) for finding in known):
            about = f" of {one.about}" if one.about else ""
            raise AcceptsNothing(
                f"the dry run finds no {one.code}{about}, so it cannot be accepted: correct the "
                "entry, or remove it"
            )
    switch = stages(question.current, question.candidate, percents, clusters)
    ever = (before, both, narrow(before, both, changing))
    steps = [
        *_expand(ever),
        *_shift(question.current, switch, account, needs, _programs(changing)),
        *_contract(ever),
    ]
    return planned(
        steps=tuple(step.model_copy(update={"number": n}) for n, step in enumerate(steps, 1)),
        accepted=tuple(accepted),
        audited=_audited(changing, both),
        at_once=dict(switch[0].at_once),
    )


def _blocked(found: DryRun, stuck: Sequence[Blocked]) -> Iterable[Blocked]:
    for finding in found.findings:
        if finding.severity is Severity.ERROR or finding.code in STOPS:
            yield Blocked(
                code=finding.code, about=finding.about, message=finding.message, cure=finding.cure
            )
    yield from stuck


def _is_accepted(blocked: Blocked, accepted: Sequence[Accepted]) -> bool:
    return blocked.code not in REFUSED and any(_is(one, blocked) for one in accepted)


def _is(accepted: Accepted, finding: MigrationFinding | Blocked) -> bool:
    return accepted.code == finding.code and accepted.about in ("", finding.about)


def _programs(changing: Sequence[Move]) -> str:
    """What programs must do that subscribe without a consumer, as no configuration shows them."""
    names = dict.fromkeys(
        (made(move.old, move.part), made(move.new, move.part)) for move in changing
    )
    told = ", ".join(f"`{old}` and `{new}`" for old, new in names)
    if not told:
        return ""
    return f"programs that subscribe without a consumer must subscribe to both names: {told}"


def _audited(changing: Sequence[Move], both: Around) -> str | None:
    """The first stream that stores messages under both their old and their new names."""
    for stream in both.streams:
        for move in changing:
            names = (made(move.old, move.part), made(move.new, move.part))
            if all(any(is_subset(name, of=one) for one in stream.subjects) for name in names):
                return stream.name
    return None


def _expand(ever: Sequence[Around]) -> Iterable[Step]:
    """The steps that make room for the new names, in an order in which no message is refused."""
    for kinds, title, why in (
        (("stream",), "Let streams store the new subjects", "without it, nobody stores them"),
        (("consumer",), "Let consumers get the new subjects", "without it, they wait unread"),
        (("permissions",), "Allow users the new subjects", "without it, the server refuses them"),
        (
            ("exports", "imports"),
            "Let other accounts get the new subjects",
            "without it, these accounts get fewer messages with each stage",
        ),
    ):
        yield from _step("expand", kinds, title, why, ever)


def _contract(ever: Sequence[Around]) -> Iterable[Step]:
    for kinds, title, why in (
        (
            ("consumer",),
            "Take the old subjects from consumers",
            "nothing comes under them any more",
        ),
        (
            ("stream",),
            "Take the old subjects from streams",
            "nobody publishes under them any more",
        ),
        (
            ("imports", "exports"),
            "Take the old subjects from other accounts",
            "nothing comes under them any more",
        ),
        (("permissions",), "Take the old subjects from users", "nobody needs them any more"),
    ):
        yield from _step("contract", kinds, title, why, ever)


def _step(
    phase: Literal["expand", "contract"],
    kinds: Sequence[str],
    title: str,
    why: str,
    ever: Sequence[Around],
) -> Iterable[Step]:
    old, new = ever[:2] if phase == "expand" else ever[1:]
    found = tuple(change for kind in kinds for change in changes(old, new, kind, ever))
    if found:
        yield Step(number=0, phase=phase, title=title, why=why, changes=found)


def _shift(
    old: AccountMappings, switch: Sequence[Stage], account: str, needs: Needs, programs: str
) -> Iterable[Step]:
    for stage in switch:
        where = "" if stage.cluster is None else f" of cluster {stage.cluster}"
        change = Change(
            kind="mappings", name=account, before=_mappings(old), after=_mappings(stage.mappings)
        )
        is_last = stage is switch[-1]
        yield Step(
            number=0,
            phase="shift",
            title=f"Send {stage.percent} % of the messages{where} under the new subjects",
            why="the mappings are the candidate from here on"
            if is_last
            else "a mistake reaches no more of the messages than that",
            changes=(change,),
            programs=programs,
            percent=stage.percent,
            cluster=stage.cluster,
            needs=needs(stage),
            wait=f"{_AUDITED}, and {_DRAINED}" if is_last else _AUDITED,
        )
        old = stage.mappings


def _mappings(mappings: AccountMappings) -> dict[str, object]:
    """Mappings in the form of an account's claims and of the server's configuration."""
    return {
        mapping.source: [
            {"destination": one.subject, "weight": one.weight}
            | ({"cluster": one.cluster} if one.cluster else {})
            for one in mapping.destinations
        ]
        for mapping in mappings.mappings
    }
