"""The way of a message through the streams of an account. All commands use this module.

A stream that captures a message applies its ingress transform, stores it, and republishes it from
the stored subject; streams that mirror or source that stream take it from there through their own
transforms. Account mappings do not apply to what streams republish, source or mirror. `trace` shows
this way, dry runs count it, and `check` asks what is possible for whole filters. Sources: ADR-36
"Features introduced"; nats-server `processJetStreamMsg`, `processInboundSourceMsg` and
`processMirrorMsgs` in `server/stream.go`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple, TypeAlias

from nats_transform.errors import NatsTransformError, shown
from nats_transform.mappings.functions import Random
from nats_transform.mappings.mapping import Fate, Outcome
from nats_transform.mappings.subject import ANY_TAIL
from nats_transform.mappings.subject_index import Interest, SubjectIndex
from nats_transform.mappings.symbolic import can_land_in, filter_of_results, image
from nats_transform.mappings.transform import Transform
from nats_transform.streams.consumer import Consumer
from nats_transform.streams.source import StreamFilter, StreamSource
from nats_transform.streams.stream import INGRESS, Republished, StreamConfig

Entropy: TypeAlias = Callable[[str], int | None]
"""The 64 bits that decide each `random()` at a place; None leaves it as it is written."""


_MOST = 10_000  # arrivals: two sources of a stream that take the same messages double them
_MOST_IN_A_ROW = 200  # streams: a trace as JSON can have no more than some 250 levels


class Via(StrEnum):
    """How a message comes into a stream."""

    CAPTURE = "capture"
    REPUBLISH = "republish"
    MIRROR = "mirror"
    SOURCE = "source"


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message that comes to a stream.

    Attributes:
        stream: the stream that the message comes to.
        taken: the outcome of the stream's mirror or source; a captured message stays as it is.
        subject: the stored subject; None if the mirror or source does not take the message.
        via: how the message came.
        origin: the number of the arrival that it came from; None if it was published.
        position: the number of the entry in `sources` that took it; None unless via source.
        is_mapped: whether the ingress transform applied.
        republished: the message that the stream publishes again; None if there is none.
        repeats: whether the message was in this stream before. It then goes round without end, and
            is not followed further.
    """

    stream: str
    taken: Outcome
    subject: str | None
    via: Via
    origin: int | None
    position: int | None
    is_mapped: bool
    republished: Republished | None
    repeats: bool


class Feed(NamedTuple):
    """A mirror or source.

    Attributes:
        taker: the stream that has it.
        source: the mirror or source.
        position: the number of the entry in `sources`; None for a mirror.
        consumer: the consumer that it reads and that filters for it, if it is known.
    """

    taker: StreamConfig
    source: StreamSource
    position: int | None
    consumer: Consumer | None

    @property
    def filters(self) -> tuple[str, ...]:
        """What it takes: filters of what the other stream stores; everything if nobody knows."""
        if self.source.consumer is not None:
            return (self.consumer.filters if self.consumer else ()) or (ANY_TAIL,)
        return tuple(rule.source for rule in self.source.filters) or (ANY_TAIL,)

    def take(self, stored: str, entropy: int | None = None) -> Outcome:
        """What comes to `taker` of a message that the other stream stores."""
        if self.consumer is not None and not self.consumer.wants(stored):
            return Outcome(None, Fate.FILTERED)
        return self.source.take(stored, entropy)


class Network:
    """The streams of an account. Those of other accounts and domains are not followed.

    Args:
        streams: the streams.
        consumers: consumers, which filter for the mirrors and sources that read them. Of those that
            are not known, `unknown` has the names, and they filter nothing.
    """

    def __init__(self, streams: Iterable[StreamConfig], consumers: Iterable[Consumer] = ()) -> None:
        self.streams = tuple(streams)
        self.unknown: list[str] = []
        self.consumers = tuple(consumers)
        self._consumers = {(c.stream, c.name): c for c in self.consumers}
        self.listeners = Interest((f, n) for n, s in enumerate(self.streams) for f in s.captured)
        self._landing: dict[tuple[str, str], list[StreamConfig]] = {}
        self._takers: dict[str, list[Feed]] = defaultdict(list)
        self._by_name = {stream.name: stream for stream in self.streams}
        for stream in self.streams:
            if stream.mirror is not None:
                self._add_taker(stream, stream.mirror, None)
            for position, source in enumerate(stream.sources):
                self._add_taker(stream, source, position)

    def _add_taker(self, stream: StreamConfig, source: StreamSource, position: int | None) -> None:
        named = source.consumer
        reads = self._consumers.get((source.name, named.name)) if named else None
        if source.external is None:
            self._takers[source.name].append(Feed(stream, source, position, reads))
        if named is not None and (reads is None or source.external is not None):
            self.unknown.append(
                f"the filter of consumer {shown(named.name)} of stream "
                f"{shown(source.name)}, which stream {shown(stream.name)} reads"
            )

    def feeds(self, stream: str) -> Sequence[Feed]:
        """The mirrors and sources that take from a stream."""
        return self._takers.get(stream, ())

    @property
    def filters(self) -> Iterator[tuple[str, str]]:
        """Every filter that a subject is compared with, and whose it is."""
        for stream in self.streams:
            name = f"stream {stream.name}"
            yield from ((name, filter) for filter in stream.captured)
            for transform in (stream.ingress_transform, stream.republish_transform):
                if transform is not None:
                    yield f"a transform of {name}", transform.source
            for upstream in stream.upstreams:
                place = f"{name}, which takes from {upstream.name}"
                yield from ((place, rule.source) for rule in upstream.filters)

    @property
    def transforms(self) -> Iterator[Transform]:
        """Every transform of a stream, which may rename what it takes, stores or republishes."""
        for stream in self.streams:
            rules = (rule for upstream in stream.upstreams for rule in upstream.filters)
            yield from filter(None, [stream.ingress_transform, stream.republish_transform])
            yield from filter(None, (rule.transform for rule in rules))

    @property
    def draws(self) -> bool:
        """Whether some transform has a `random()`, so that messages of a subject can part."""
        return any(isinstance(token, Random) for t in self.transforms for token in t.tokens)

    def arrivals(
        self, subject: str, entropy: Entropy = lambda place: None, *, also_filtered: bool = False
    ) -> list[Arrival]:
        """All arrivals of a published subject; each comes after the one that it came from.

        Args:
            subject: the subject that the account mappings gave to it.
            entropy: the chance of a message; the place of a published message's ingress is
                `INGRESS`, as in `StreamConfig.replay`.
            also_filtered: whether to include the mirrors and sources that do not take the message.

        Raises:
            NatsTransformError: there are too many, or too many streams in a row.
        """
        walk = _Walk(self, entropy, also_filtered)
        walk.capture(subject, None, ())
        return walk.arrivals

    def republish_takers(self, stream: StreamConfig) -> list[StreamConfig]:
        """The streams that can capture what a stream republishes, whatever the subject is."""
        transform = stream.republish_transform
        # What a stream sources is republished with a header that no other stream takes.
        if transform is None or (stream.sources and not stream.captured):
            return []
        takers = self._landing.get(pair := (transform.source, transform.destination))
        if takers is None:
            index, owners = self._capturing
            numbers = index.colliding(filter_of_results(transform))
            landing = [n for n in numbers if can_land_in(transform, index.filters[n])]
            takers = [self.streams[owner] for owner in dict.fromkeys(owners[n] for n in landing)]
            self._landing[pair] = takers
        return takers

    @cached_property
    def _capturing(self) -> tuple[SubjectIndex, list[int]]:
        """What streams capture that are not sealed, and the number of the stream of each."""
        pairs = [(f, n) for n, s in enumerate(self.streams) for f in s.captured if not s.sealed]
        return SubjectIndex(filter for filter, _ in pairs), [owner for _, owner in pairs]

    def circle(self, start: StreamConfig) -> list[str]:
        """The names of the streams on a shortest way from the republish of a stream back to it.

        Other streams republish on the way too, and mirrors take what they store. What a stream
        sources goes no further: it is republished with a header that no other stream takes.
        """
        reached = [start]
        before: dict[str, str] = {}
        for last in reached:  # which grows
            feeds = self.feeds(last.name) if last is not start else ()
            mirrors = [f.taker for f in feeds if f.position is None and not f.taker.sealed]
            for other in (*self.republish_takers(last), *mirrors):
                if other.name == start.name:
                    way = [start.name, last.name]
                    while way[-1] in before:
                        way.append(before[way[-1]])
                    return way[::-1]
                if other.name not in before:
                    before[other.name] = last.name
                    reached.append(other)
        return []

    def rules(self, arrival: Arrival) -> Sequence[StreamFilter]:
        """The filters of the mirror or source that took a message; none if it was captured."""
        stream = self._by_name[arrival.stream]
        if arrival.position is not None:
            return stream.sources[arrival.position].filters
        return stream.mirror.filters if stream.mirror and arrival.via is Via.MIRROR else ()

    def renames(self, subject: str) -> Iterator[tuple[str, Transform]]:
        """Each text on the way of a subject that a transform applies to, with the transform."""
        arrivals = self.arrivals(subject)
        for arrival in arrivals:
            stream, taken = self._by_name[arrival.stream], arrival.taken
            if taken.mapping_destination and arrival.origin is not None:
                stored = arrivals[arrival.origin].subject or ""
                for rule in self.rules(arrival):
                    pair = rule.source, rule.destination
                    if rule.transform and pair == (taken.mapping_source, taken.mapping_destination):
                        yield stored, rule.transform
            if arrival.is_mapped and stream.ingress_transform and taken.subject is not None:
                yield taken.subject, stream.ingress_transform
            republish = stream.republish_transform
            if republish is None or arrival.subject is None or arrival.repeats:
                continue
            if republish.apply(arrival.subject, None) is not None:
                yield arrival.subject, republish


def taken(upstream: StreamSource) -> list[str]:
    """Filters of what a mirror or source brings into its stream, under its new names."""
    filters = [image(rule.transform, rule.source) for rule in upstream.filters]
    return [*filters, ANY_TAIL] if upstream.consumer or not filters else filters


def received(stream: StreamConfig) -> list[str]:
    """Filters of what comes into a stream: of what it captures, mirrors and sources."""
    return [*stream.captured, *(f for upstream in stream.upstreams for f in taken(upstream))]


def republisher(arrivals: Sequence[Arrival], again: Arrival) -> str:
    """The stream that republishes in a circle: the one where it closes, or the last before it.

    "" if it is a circle of mirrors and sources alone, in which nobody republishes.
    """
    last, at = "", again.origin
    while at is not None:
        arrival = arrivals[at]
        if arrival.republished is not None and (not last or arrival.stream == again.stream):
            last = arrival.stream
        at = None if arrival.stream == again.stream else arrival.origin
    return last


class _Walk:
    """The way of one message through the streams."""

    def __init__(self, network: Network, entropy: Entropy, also_filtered: bool) -> None:
        self.arrivals: list[Arrival] = []
        self._network, self._entropy, self._also_filtered = network, entropy, also_filtered

    def capture(self, subject: str, origin: int | None, been: tuple[str, ...]) -> None:
        """Bring a published or republished subject into the streams that capture it."""
        via = Via.CAPTURE if origin is None else Via.REPUBLISH
        taken = Outcome(subject, Fate.UNMATCHED)
        for number in sorted(self._network.listeners.of(subject)):
            self._store(self._network.streams[number], taken, via, origin, None, False, been)

    def _store(
        self,
        stream: StreamConfig,
        taken: Outcome,
        via: Via,
        origin: int | None,
        position: int | None,
        is_sourced: bool,
        been: tuple[str, ...],
    ) -> None:
        if stream.sealed:
            return  # nats-server refuses everything there (10109)
        name, subject, entropy = stream.name, taken.subject, self._entropy
        if len(self.arrivals) == _MOST or len(been) == _MOST_IN_A_ROW:
            raise NatsTransformError(
                "stream-too-far", name=shown(name), most=_MOST, in_a_row=_MOST_IN_A_ROW
            )
        if subject is None:
            if self._also_filtered:
                self.arrivals.append(
                    Arrival(name, taken, None, via, origin, position, False, None, False)
                )
            return
        # Each stream makes its own draw. Only published messages draw as in `StreamConfig.replay`.
        outcome = stream.ingress(
            subject, entropy(INGRESS if origin is None else f"{name} {INGRESS}")
        )
        stored = subject if outcome.subject is None else outcome.subject
        is_mapped = outcome.fate is Fate.MAPPED
        repeats = name in been
        republished = None if repeats else stream.republished(stored, entropy(f"{name} out"))
        number = len(self.arrivals)
        self.arrivals.append(
            Arrival(name, taken, stored, via, origin, position, is_mapped, republished, repeats)
        )
        if repeats:
            return
        been = (*been, name)
        # A stream refuses what is published with the header that sourcing adds.
        if republished is not None and not is_sourced:
            self.capture(republished.subject, number, been)
        for feed in self._network.feeds(name):
            entry = feed.position
            outcome = feed.take(stored, entropy(f"{feed.taker.name} {entry}"))
            how = Via.MIRROR if entry is None else Via.SOURCE
            marked = is_sourced or how is Via.SOURCE
            self._store(feed.taker, outcome, how, number, entry, marked, been)
