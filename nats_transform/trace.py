"""An offline trace of one subject: every scope it passes, each once.

A published message passes the mappings of its account, then in each stream that captures it the
ingress transform, then from the stored subject the republish; streams that mirror or source that
stream take it from there through their own transforms. Account mappings do not touch what streams
republish, source or mirror. Source: ADR-36 "Features introduced"; nats-server `server/stream.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from nats_transform.errors import printable
from nats_transform.mapping import AccountMappings, Fate, Outcome
from nats_transform.stream import StreamConfig
from nats_transform.subject import literal_fault

REPUBLISH_HEADERS = (
    "Nats-Stream",
    "Nats-Subject",
    "Nats-Sequence",
    "Nats-Time-Stamp",
    "Nats-Last-Sequence",
)


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True)


class Republication(_Model):
    """A message that a stream publishes again.

    Attributes:
        subject: under which.
        headers_only: without its body.
        headers: names of the headers that nats-server adds.
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
        position: of the entry in `sources` that takes it, from 0; None unless via source.
        fate: filtered or invalid where the stream does not take it; else mapped if a transform of
            the source, mirror or ingress applied, or unmatched.
        arrived: the subject after the source's or mirror's transform; None if it is not taken.
        stored: the subject it is stored under; None if it is not taken.
        reason: why the subject is not a legal one; an illegal one passes the ingress as it is.
        republished: what is published again, if anything.
        taken_by: the streams that mirror or source this one.
        repeats: the message has been in this stream before: nats-server goes round for ever.
    """

    stream: str
    via: Literal["capture", "mirror", "source"]
    position: int | None = None
    fate: Fate
    arrived: str | None = None
    stored: str | None = None
    reason: str | None = None
    republished: Republication | None = None
    taken_by: list[StreamStep] = []
    repeats: bool = False


class Path(_Model):
    """One thing that can become of the published message.

    Attributes:
        percent: how likely, 0 to 100; the paths of a trace add up to 100.
        fate: what the account mappings make of it.
        subject: the subject it is delivered under; None if it is to nobody.
        mapping_source: the mapping that applies, if any.
        mapping_destination: the destination chosen, if any.
        reason: why the fate is invalid.
        streams: the streams that capture it.
    """

    percent: int
    fate: Fate
    subject: str | None
    mapping_source: str | None
    mapping_destination: str | None
    reason: str | None
    streams: list[StreamStep]


class Trace(_Model):
    """Everything that can become of one published subject.

    A `random()` stands in subjects as it is written.

    Attributes:
        subject: as published.
        cluster: where, if anywhere.
        paths: every possible result of the account mappings.
    """

    subject: str
    cluster: str | None
    paths: list[Path]

    def text(self) -> str:
        """The trace for people: a tree, one step a line."""
        where = f" in cluster {_shown(self.cluster)}" if self.cluster else ""
        branches = [(_path_line(path), _stream_branches(path.streams)) for path in self.paths]
        return "\n".join([f"{_shown(self.subject)} published{where}", *_tree(branches)])


def trace(
    subject: str,
    mappings: AccountMappings | None = None,
    streams: Iterable[StreamConfig] = (),
    cluster: str | None = None,
) -> Trace:
    """Where a published subject goes: mappings, streams, republish, mirrors and stream sources.

    >>> shop = StreamConfig(name="SHOP", subjects=["shop.*"])
    >>> print(trace("shop.eu", streams=[shop]).text())
    shop.eu published
    └─ 100 % as it is
       └─ stream SHOP stores shop.eu

    Args:
        subject: a literal subject.
        mappings: of the account it is published in.
        streams: of that account. Streams of other accounts or domains (`external`) are not
            followed.
        cluster: the cluster it is published in, if any.
    """
    network = tuple(streams)
    outcomes = (mappings or AccountMappings(())).outcomes(subject, cluster)
    return Trace(
        subject=subject,
        cluster=cluster,
        paths=[_path(outcome, percent, network) for outcome, percent in outcomes],
    )


def _path(outcome: Outcome, percent: int, network: Sequence[StreamConfig]) -> Path:
    return Path(
        percent=percent,
        fate=outcome.fate,
        subject=outcome.subject,
        mapping_source=outcome.mapping_source,
        mapping_destination=outcome.mapping_destination,
        reason=outcome.reason,
        streams=[] if outcome.subject is None else _captures(outcome.subject, network, ()),
    )


def _captures(
    subject: str, network: Sequence[StreamConfig], been: tuple[str, ...]
) -> list[StreamStep]:
    arrived = Outcome(subject, Fate.UNMATCHED)
    return [
        _step(config, arrived, network, been, "capture", None, False)
        for config in network
        if config.captures(subject)
    ]


def _step(
    config: StreamConfig,
    arrived: Outcome,
    network: Sequence[StreamConfig],
    been: tuple[str, ...],
    via: Literal["capture", "mirror", "source"],
    position: int | None,
    is_sourced: bool,
) -> StreamStep:
    subject = arrived.subject
    if subject is None:
        return StreamStep(
            stream=config.name,
            via=via,
            position=position,
            fate=arrived.fate,
            reason=arrived.reason,
        )
    ingress = config.ingress(subject, None)
    stored = subject if ingress.subject is None else ingress.subject
    mapped = Fate.MAPPED in (arrived.fate, ingress.fate)
    repeats = config.name in been
    been = (*been, config.name)
    return StreamStep(
        stream=config.name,
        via=via,
        position=position,
        fate=Fate.MAPPED if mapped else Fate.UNMATCHED,
        arrived=subject,
        stored=stored,
        reason=literal_fault(stored),
        republished=None if repeats else _republication(config, stored, network, been, is_sourced),
        taken_by=[] if repeats else list(_takers(config.name, stored, network, been, is_sourced)),
        repeats=repeats,
    )


def _republication(
    config: StreamConfig,
    stored: str,
    network: Sequence[StreamConfig],
    been: tuple[str, ...],
    is_sourced: bool,
) -> Republication | None:
    republished = config.republished(stored, None)
    if republished is None:
        return None
    size = ["Nats-Msg-Size"] if republished.headers_only else []
    return Republication(
        subject=republished.subject,
        headers_only=republished.headers_only,
        headers=[*REPUBLISH_HEADERS, *size],
        # A stream refuses what is published with the header that sourcing adds.
        captured=[] if is_sourced else _captures(republished.subject, network, been),
    )


def _takers(
    name: str,
    stored: str,
    network: Sequence[StreamConfig],
    been: tuple[str, ...],
    is_sourced: bool,
) -> Iterator[StreamStep]:
    for config in network:
        mirror = config.mirror
        if mirror is not None and mirror.external is None and mirror.name == name:
            taken = mirror.take(stored, None)
            yield _step(config, taken, network, been, "mirror", None, is_sourced)
        for position, source in enumerate(config.sources):
            if source.external is None and source.name == name:
                taken = source.take(stored, None)
                yield _step(config, taken, network, been, "source", position, True)


_Branch = tuple[str, "list[_Branch]"]


def _path_line(path: Path) -> str:
    by = f"by {_shown(path.mapping_source)}" if path.mapping_source is not None else ""
    if path.mapping_destination is not None:
        by += f" -> {_shown(path.mapping_destination)}"
    match path.fate:
        case Fate.UNMATCHED:
            return f"{path.percent} % as it is"
        case Fate.LOST:
            return f"{path.percent} % lost {by}"
        case Fate.INVALID:
            return f"{path.percent} % invalid {by}".rstrip() + f": {path.reason}"
        case _:
            return f"{path.percent} % {_shown(path.subject)} {by}"


def _stream_branches(steps: Iterable[StreamStep]) -> list[_Branch]:
    return [(_step_line(step), list(_inside(step))) for step in steps]


def _step_line(step: StreamStep) -> str:
    how = {"capture": "", "mirror": " mirrors it", "source": f" sources it [{step.position}]"}
    head = f"stream {step.stream}{how[step.via]}"
    if step.stored is None:
        return f"{head}: {step.fate}{f', {step.reason}' if step.reason else ''}"
    verb = " stores" if step.via == "capture" else " as"
    line = f"{head}{verb} {_shown(step.stored)}"
    if step.reason:
        line += f" ({step.reason})"
    return f"{line}, and round again without end" if step.repeats else line


def _inside(step: StreamStep) -> Iterator[_Branch]:
    if step.republished is not None:
        only = " (headers only)" if step.republished.headers_only else ""
        line = f"republished as {_shown(step.republished.subject)}{only}"
        yield line, _stream_branches(step.republished.captured)
    yield from _stream_branches(step.taken_by)


def _tree(branches: list[_Branch], indent: str = "") -> Iterator[str]:
    for number, (line, inside) in enumerate(branches, 1):
        is_last = number == len(branches)
        yield f"{indent}{'└─' if is_last else '├─'} {line}"
        yield from _tree(inside, f"{indent}{'   ' if is_last else '│  '}")


def _shown(text: str | None) -> str:
    return "" if text is None else text if text.isprintable() and text else printable(text)
