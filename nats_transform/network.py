"""What the streams of an account do with one subject: where it arrives, and the facts of it.

A message is followed as `nats_transform.trace` does, without the tree: nats-server
`processJetStreamMsg`, `processInboundSourceMsg` and `processMirrorMsgs` in `server/stream.go`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from nats_transform.functions import Random
from nats_transform.kinds import MOST_KINDS, Kind, Kinds
from nats_transform.mapping import Fate
from nats_transform.stream import INGRESS, StreamConfig, StreamSource
from nats_transform.subject import ANY_TAIL, ANY_TOKEN, SEPARATOR
from nats_transform.transform import Transform

Entropy: TypeAlias = Callable[[str], int | None]
"""The 64 bits that decide each `random()` at a place; None leaves it as it is written."""


class Via(StrEnum):
    """How a message comes into a stream."""

    CAPTURE = "capture"
    REPUBLISH = "republish"
    MIRROR = "mirror"
    SOURCE = "source"


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message in a stream.

    Attributes:
        stream: that stores it.
        subject: under which it is stored.
        via: how it came.
        origin: the number of the arrival that it came from; None: it was published.
        position: of the entry in `sources` that took it; None unless via source.
        is_mapped: whether the ingress transform applied.
        republished: the subject it is republished under; None: it is not.
        repeats: it was in this stream before, and goes round without end; not followed further.
    """

    stream: str
    subject: str
    via: Via
    origin: int | None
    position: int | None
    is_mapped: bool
    republished: str | None
    repeats: bool


@dataclass(frozen=True, slots=True)
class Facts:
    """What happens to one subject.

    Attributes:
        captured: the streams that take it as it is published.
        stored: each stream and subject under which it is stored, by any way; None is the subject
            itself.
        ingress: the streams whose ingress transform applies.
        taken: pairs of a stream and the stream it takes it from.
        republished: the streams that republish it.
        loops: the streams that get it again and again.
    """

    captured: frozenset[str] = frozenset()
    stored: frozenset[tuple[str, str | None]] = frozenset()
    ingress: frozenset[str] = frozenset()
    taken: frozenset[tuple[str, str]] = frozenset()
    republished: frozenset[str] = frozenset()
    loops: frozenset[str] = frozenset()


NOTHING = Facts()


class _Listener:
    """A filter that a stream listens to, read once; see `nats_transform.subject.subscribes`."""

    def __init__(self, filter: str) -> None:
        tokens = filter.split(SEPARATOR)
        self._is_open = tokens[-1] == ANY_TAIL
        self._count = len(tokens)
        fixed = tokens[:-1] if self._is_open else tokens
        self._wanted = [(n, token) for n, token in enumerate(fixed) if token != ANY_TOKEN]

    def hears(self, tokens: Sequence[str]) -> bool:
        """Whether a message comes, by the tokens of its subject, of which none is empty."""
        count = len(tokens)
        if count != self._count and (not self._is_open or count < self._count):
            return False
        for position, wanted in self._wanted:  # noqa: SIM110 - quicker than all()
            if tokens[position] != wanted:
                return False
        return True


class Network:
    """The streams of an account. Those of other accounts and domains are not followed."""

    def __init__(self, streams: Iterable[StreamConfig]) -> None:
        self.streams = tuple(streams)
        self._listening = [
            (stream, [_Listener(filter) for filter in stream.captured]) for stream in self.streams
        ]
        self._takers: dict[str, list[tuple[StreamConfig, StreamSource, int | None]]]
        self._takers = defaultdict(list)
        # The streams by name, with the facts of subjects that nothing renames, by kind.
        self._by_name = {stream.name: stream for stream in self.streams}
        self._kinds = Kinds(self._filters())
        self._known: dict[Kind, Facts] = {}
        for stream in self.streams:
            if stream.mirror is not None and stream.mirror.external is None:
                self._takers[stream.mirror.name].append((stream, stream.mirror, None))
            for position, source in enumerate(stream.sources):
                if source.external is None:
                    self._takers[source.name].append((stream, source, position))

    def _filters(self) -> Iterator[str]:
        """Every filter that a subject is held against."""
        for stream in self.streams:
            yield from stream.captured
            for transform in (stream.ingress_transform, stream.republish_transform):
                if transform is not None:
                    yield transform.source
            for upstream in stream.upstreams:
                yield from (rule.source for rule in upstream.filters)

    @property
    def draws(self) -> bool:
        """Whether some transform has a `random()`, so that messages of a subject can part."""
        transforms: list[Transform | None] = []
        for stream in self.streams:
            transforms += [stream.ingress_transform, stream.republish_transform]
            transforms += [rule.transform for source in stream.upstreams for rule in source.filters]
        return any(
            isinstance(token, Random)
            for one in transforms
            if one is not None
            for token in one.tokens
        )

    def arrivals(self, subject: str, entropy: Entropy = lambda place: None) -> list[Arrival]:
        """Everywhere that a published subject is stored, what comes first before what follows.

        Args:
            subject: as the account mappings left it.
            entropy: the chance of a message; the place of a published message's ingress is
                `INGRESS`, as in `StreamConfig.replay`.
        """
        found: list[Arrival] = []
        self._capture(subject, None, (), found, entropy)
        return found

    def facts(self, subject: str | None) -> Facts:
        """What happens to a subject; nothing to one that is delivered to nobody."""
        if subject is None or not self.streams:
            return NOTHING
        kind = self._kinds.of(subject.split(SEPARATOR))
        known = None if kind is None else self._known.get(kind)
        if known is not None:
            return known
        arrivals = self.arrivals(subject)
        facts = self._facts(subject, arrivals)
        if kind is not None and self._renames_nothing(subject, arrivals):
            if len(self._known) >= MOST_KINDS:
                self._known.clear()
            self._known[kind] = facts
        return facts

    def _renames_nothing(self, subject: str, arrivals: Sequence[Arrival]) -> bool:
        """Whether no transform had a say, so that the same becomes of all subjects of a kind."""
        tokens = subject.split(SEPARATOR)
        for arrival in arrivals:
            republish = self._by_name[arrival.stream].republish_transform
            if arrival.is_mapped or (republish is not None and republish.filter.covers(tokens)):
                return False
            if arrival.origin is not None and any(
                rule.transform is not None
                for taker, upstream, _ in self._takers[arrivals[arrival.origin].stream]
                if taker.name == arrival.stream
                for rule in upstream.filters
            ):
                return False
        return True

    @staticmethod
    def _facts(subject: str, arrivals: Sequence[Arrival]) -> Facts:
        stored = [arrival for arrival in arrivals if not arrival.repeats]
        return Facts(
            captured=frozenset(one.stream for one in arrivals if one.via is Via.CAPTURE),
            stored=frozenset(
                (one.stream, None if one.subject == subject else one.subject) for one in stored
            ),
            ingress=frozenset(one.stream for one in stored if one.is_mapped),
            taken=frozenset(
                (one.stream, arrivals[one.origin].stream)
                for one in arrivals
                if one.origin is not None and one.via is not Via.REPUBLISH
            ),
            republished=frozenset(one.stream for one in stored if one.republished is not None),
            loops=frozenset(one.stream for one in arrivals if one.repeats),
        )

    def _capture(
        self,
        subject: str,
        origin: int | None,
        been: tuple[str, ...],
        found: list[Arrival],
        entropy: Entropy,
    ) -> None:
        via = Via.CAPTURE if origin is None else Via.REPUBLISH
        tokens = subject.split(SEPARATOR)
        if "" in tokens:
            return  # it reaches nobody
        for stream, listeners in self._listening:
            if any(listener.hears(tokens) for listener in listeners):
                self._store(stream, subject, via, origin, None, False, been, found, entropy)

    def _store(
        self,
        stream: StreamConfig,
        subject: str,
        via: Via,
        origin: int | None,
        position: int | None,
        is_sourced: bool,
        been: tuple[str, ...],
        found: list[Arrival],
        entropy: Entropy,
    ) -> None:
        # Streams draw on their own: only what was published draws as `StreamConfig.replay` does.
        place = INGRESS if origin is None else f"{stream.name} {INGRESS}"
        outcome = stream.ingress(subject, entropy(place))
        stored = subject if outcome.subject is None else outcome.subject
        repeats = stream.name in been
        republished = None if repeats else stream.republished(stored, entropy(f"{stream.name} out"))
        number = len(found)
        found.append(
            Arrival(
                stream.name,
                stored,
                via,
                origin,
                position,
                outcome.fate is Fate.MAPPED,
                None if republished is None else republished.subject,
                repeats,
            )
        )
        if repeats:
            return
        been = (*been, stream.name)
        # A stream refuses what is published with the header that sourcing adds.
        if republished is not None and not is_sourced:
            self._capture(republished.subject, number, been, found, entropy)
        for taker, upstream, entry in self._takers[stream.name]:
            taken = upstream.take(stored, entropy(f"{taker.name} {entry}"))
            if taken.subject is not None:
                how = Via.MIRROR if entry is None else Via.SOURCE
                marked = is_sourced or how is Via.SOURCE
                self._store(taker, taken.subject, how, number, entry, marked, been, found, entropy)
