"""An offline trace of one subject: every scope it passes, each once.

A published message passes the mappings of its account, then the streams as
`nats_transform.streams.network` follows it; here the way is shown as a tree.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Literal

from pydantic import BaseModel, ConfigDict

from nats_transform.errors import shown
from nats_transform.mappings.mapping import AccountMappings, Fate, Outcome
from nats_transform.mappings.subject import SEPARATOR, is_valid_publish_subject, literal_fault
from nats_transform.mappings.unresolved import numbered
from nats_transform.mappings.unseen import Unseen, unseen_streams
from nats_transform.streams.consumer import Consumer
from nats_transform.streams.network import Network, Via
from nats_transform.streams.stream import StreamConfig

UNSEEN_CLUSTER = Unseen("clusters with destinations of their own", "--cluster NAME")
"""In a trace without a cluster: the mapping has destinations for clusters only."""
UNSEEN_NUMBERS = Unseen("each number of random() that a stream draws or a leaf node gets")
BLANK = "a blank; nobody can publish such a subject"


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True)


class Republication(_Model):
    """A message that a stream publishes again.

    Attributes:
        subject: the subject that it gets.
        headers_only: whether the body is left out.
        headers: the names of the headers that nats-server adds.
        captured: the streams that store it in turn.
    """

    subject: str
    headers_only: bool
    headers: list[str]
    captured: list[StreamStep]


class StreamStep(_Model):
    """A message that reaches a stream.

    Attributes:
        stream: the stream.
        via: how the message gets there.
        position: the number, from 0 on, of the entry in `sources` that takes it; None unless via
            source.
        fate: filtered or invalid if the stream does not take it; otherwise mapped if a transform of
            the source, mirror or ingress applied, or else unmatched.
        arrived: the subject after the source's or mirror's transform; None if it is not taken.
        stored: the subject it is stored under; None if it is not taken.
        reason: why the subject is not legal; an illegal subject passes the ingress as it is.
        republished: the message that is published again, if there is one.
        taken_by: the streams that mirror or source this one.
        consumers: the known consumers that get it.
        repeats: whether the message has been in this stream before, so that it goes round for ever.
    """

    stream: str
    via: Literal[Via.CAPTURE, Via.MIRROR, Via.SOURCE]
    position: int | None = None
    fate: Fate
    arrived: str | None = None
    stored: str | None = None
    reason: str | None = None
    republished: Republication | None = None
    taken_by: list[StreamStep] = []
    consumers: list[str] = []
    repeats: bool = False


class Path(_Model):
    """One possible result of publishing the message.

    Attributes:
        percent: the probability, 0 to 100; the paths of a trace add up to 100.
        fate: the fate of the message under the account mappings.
        subject: the subject that it is delivered under; None if it reaches nobody.
        mapping_source: the source of the mapping that applies, if there is one.
        mapping_destination: the chosen destination, if there is one; the source itself where none
            is drawn, so that the message keeps its subject.
        is_remainder: whether the weights of the mapping leave the message over.
        reason: why the fate is invalid.
        streams: the streams that capture it. Where they treat the numbers of a `random()`
            differently, those that capture it with each number: with all up to 64, or else with
            those that filters name and one besides. A number without a stream is not there.
        leaf_node: every result beyond a leaf node connection, if it has an interest in the subject.
    """

    percent: int
    fate: Fate
    subject: str | None
    mapping_source: str | None
    mapping_destination: str | None
    is_remainder: bool
    reason: str | None
    streams: list[StreamStep]
    leaf_node: list[Path] = []


class Trace(_Model):
    """Every possible result of publishing under one subject.

    A `random()` stands in subjects as it is written, unless streams tell its numbers apart.

    Attributes:
        subject: the published subject.
        cluster: the cluster where it is published, if one is given.
        paths: every possible result of the account mappings.
        not_looked_at: what nobody showed.
    """

    subject: str
    cluster: str | None
    paths: list[Path]
    not_looked_at: list[Unseen] = []

    def text(self) -> str:
        """The trace for people: a tree, one step a line."""
        where = f" in cluster {_shown(self.cluster)}" if self.cluster else ""
        head = f"{_shown(self.subject)} published{where}"
        return "\n".join([head, *_tree(list(_path_branches(self.paths)))])


def trace(
    subject: str,
    mappings: AccountMappings | None = None,
    streams: Iterable[StreamConfig] = (),
    cluster: str | None = None,
    leaf_node: AccountMappings | None = None,
    consumers: Iterable[Consumer] | None = None,
) -> Trace:
    """Where a published subject goes: mappings, streams, republish, mirrors and stream sources.

    Examples:
        >>> shop = StreamConfig(name="SHOP", subjects=["shop.*"])
        >>> print(trace("shop.eu", streams=[shop]).text())
        shop.eu published
        └─ 100 % keeps its subject
           └─ stream SHOP stores shop.eu

    Args:
        subject: a literal subject.
        mappings: the mappings of the account that it is published in.
        streams: the streams of that account. Streams of other accounts or domains (`external`) are
            not followed.
        cluster: the cluster that it is published in, if there is one.
        leaf_node: the mappings on the other side of a leaf node connection.
        consumers: consumers of the streams; None if nobody shows them.
    """
    network, account = Network(streams, consumers or ()), mappings or AccountMappings(())
    outcomes = account.outcomes(subject, cluster)
    if literal_fault(subject) is None and not is_valid_publish_subject(subject):
        # The server's mappings would take it, but its protocol ends a subject at a blank.
        outcomes = [(Outcome(None, Fate.INVALID, reason=BLANK), 100)]
    mapping = account.match(subject) if is_valid_publish_subject(subject) else None
    is_drawn = network.draws or (
        leaf_node is not None and any("{{random(" in (end.subject or "") for end, _ in outcomes)
    )
    is_open = (
        cluster is None
        and mapping is not None
        and any(mapping.clusters)
        and all(destination.cluster for destination in mapping.destinations)
    )
    return Trace(
        subject=subject,
        cluster=cluster,
        paths=list(_paths(outcomes, account, network, leaf_node)),
        not_looked_at=[
            *unseen_streams(
                has_streams=bool(network.streams),
                has_consumers=consumers is not None,
                unknown=network.unknown,
            ),
            *([UNSEEN_CLUSTER] if is_open else ()),
            *([UNSEEN_NUMBERS] if is_drawn else ()),
        ],
    )


def _paths(
    outcomes: Iterable[tuple[Outcome, int]],
    account: AccountMappings,
    network: Network,
    leaf_node: AccountMappings | None = None,
) -> Iterator[Path]:
    listed = {mapping.source for mapping in account.mappings if mapping.lists_source}
    for outcome, percent in outcomes:
        subject, source = outcome.subject, outcome.mapping_source
        is_left_over = source is not None and source == outcome.mapping_destination
        beyond: Iterable[Path] = ()
        if leaf_node is not None and subject is not None:
            beyond = _paths(leaf_node.outcomes(subject), leaf_node, Network(()))
        yield Path(
            percent=percent,
            fate=outcome.fate,
            subject=subject,
            mapping_source=source,
            mapping_destination=outcome.mapping_destination,
            is_remainder=is_left_over and source not in listed,
            reason=outcome.reason,
            streams=[] if subject is None else _captured(subject, network, outcome.fate),
            leaf_node=list(beyond),
        )


def _captured(subject: str, network: Network, fate: Fate) -> list[StreamStep]:
    """The streams that capture a subject; those of each number of a `random()` if they differ."""
    steps = _steps(subject, network)
    names = [f for _, f in network.filters] + [f for c in network.consumers for f in c.filters]
    # Nobody tells a published `{{random(3)}}` apart, so only a mapping makes numbers.
    tokens = {token for filter in names for token in filter.split(SEPARATOR)}
    ones = numbered(subject, tokens) if fate is Fate.MAPPED else [subject]
    each = [_steps(one, network) for one in ones]
    if all(_shape(of_one) == _shape(steps) for of_one in each):
        return steps
    return [step for of_one in each for step in of_one]


def _shape(steps: Iterable[StreamStep]) -> list[object]:
    """What becomes of a message in streams, without its subjects."""
    return [
        (
            *(step.stream, step.via, step.position, step.fate, step.consumers, step.repeats),
            None if step.republished is None else _shape(step.republished.captured),
            _shape(step.taken_by),
        )
        for step in steps
    ]


def _steps(subject: str, network: Network) -> list[StreamStep]:
    """The streams that capture a subject, with all that follows inside them."""
    arrivals = network.arrivals(subject, also_filtered=True)
    following: dict[int | None, list[int]] = defaultdict(list)
    for number, arrival in enumerate(arrivals):
        following[arrival.origin].append(number)

    def step(number: int) -> StreamStep:
        arrival = arrivals[number]
        inside = following[number]
        if arrival.subject is None:
            fate = arrival.taken.fate
        else:
            is_mapped = arrival.is_mapped or arrival.taken.fate is Fate.MAPPED
            fate = Fate.MAPPED if is_mapped else Fate.UNMATCHED
        republished = None
        if (again := arrival.republished) is not None:
            republished = Republication(
                subject=again.subject,
                headers_only=again.headers_only,
                headers=list(again.headers(0, 0, "", 0)),  # their names are always the same
                captured=[step(n) for n in inside if arrivals[n].via is Via.REPUBLISH],
            )
        return StreamStep(
            stream=arrival.stream,
            via=Via.CAPTURE if arrival.via is Via.REPUBLISH else arrival.via,
            position=arrival.position,
            fate=fate,
            arrived=arrival.taken.subject,
            stored=arrival.subject,
            reason=arrival.taken.reason
            if arrival.subject is None
            else literal_fault(arrival.subject),
            republished=republished,
            taken_by=[step(n) for n in inside if arrivals[n].via is not Via.REPUBLISH],
            consumers=[
                c.name
                for c in network.consumers
                if c.stream == arrival.stream and arrival.subject and c.wants(arrival.subject)
            ],
            repeats=arrival.repeats,
        )

    return [step(number) for number in following[None]]


_Branch = tuple[str, "list[_Branch]"]


def _path_line(path: Path) -> str:
    by = f"by {_shown(path.mapping_source)}" if path.mapping_source is not None else ""
    if path.is_remainder:
        return f"{path.percent} % {by}, no destination drawn: keeps its subject"
    if path.mapping_destination is not None:
        by += f" -> {_shown(path.mapping_destination)}"
    match path.fate:
        case Fate.UNMATCHED:
            return f"{path.percent} % keeps its subject"
        case Fate.LOST:
            return f"{path.percent} % lost {by}"
        case Fate.INVALID:
            return f"{path.percent} % invalid {by}".rstrip() + f": {path.reason}"
        case _:
            return f"{path.percent} % {_shown(path.subject)} {by}"


def _path_branches(paths: Iterable[Path]) -> Iterator[_Branch]:
    for path in paths:
        inside = _stream_branches(path.streams)
        if path.leaf_node:
            inside.append(("over the leaf node connection", list(_path_branches(path.leaf_node))))
        yield _path_line(path), inside


def _stream_branches(steps: Iterable[StreamStep]) -> list[_Branch]:
    return [(_step_line(step), list(_inside(step))) for step in steps]


def _step_line(step: StreamStep) -> str:
    how = {Via.MIRROR: " mirrors it", Via.SOURCE: f" sources it [{step.position}]"}
    head = f"stream {step.stream}{how.get(step.via, '')}"
    if step.stored is None:
        return f"{head}: {step.fate}{f', {step.reason}' if step.reason else ''}"
    verb = " stores" if step.via is Via.CAPTURE else " as"
    line = f"{head}{verb} {_shown(step.stored)}"
    if step.reason:
        line += f" ({step.reason})"
    return f"{line}, which loops forever" if step.repeats else line


def _inside(step: StreamStep) -> Iterator[_Branch]:
    if step.republished is not None:
        only = " (headers only)" if step.republished.headers_only else ""
        line = f"republished as {_shown(step.republished.subject)}{only}"
        yield line, _stream_branches(step.republished.captured)
    yield from ((f"consumer {_shown(name)} gets it", []) for name in step.consumers)
    yield from _stream_branches(step.taken_by)


def _tree(branches: list[_Branch], indent: str = "") -> Iterator[str]:
    for number, (line, inside) in enumerate(branches, 1):
        is_last = number == len(branches)
        yield f"{indent}{'└─' if is_last else '├─'} {line}"
        yield from _tree(inside, f"{indent}{'   ' if is_last else '│  '}")


def _shown(text: str | None) -> str:
    return "" if text is None else shown(text)
