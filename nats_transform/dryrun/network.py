"""What the streams of an account do with one subject, as facts that can be compared.

A message is followed as `nats_transform.trace` does, without the tree: nats-server
`processJetStreamMsg`, `processInboundSourceMsg` and `processMirrorMsgs` in `server/stream.go`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from nats_transform.mapping import Fate
from nats_transform.stream import StreamConfig, StreamSource


@dataclass(frozen=True, slots=True)
class Facts:
    """What happens to one subject.

    Attributes:
        captured: the streams that take it as it is published.
        stored: each stream and subject under which it is stored, by any way.
        ingress: the streams whose ingress transform applies.
        taken: pairs of a stream and the stream it takes it from.
        republished: the streams that republish it.
        loops: the streams that get it again and again.
    """

    captured: frozenset[str] = frozenset()
    stored: frozenset[tuple[str, str]] = frozenset()
    ingress: frozenset[str] = frozenset()
    taken: frozenset[tuple[str, str]] = frozenset()
    republished: frozenset[str] = frozenset()
    loops: frozenset[str] = frozenset()


NOTHING = Facts()


@dataclass(slots=True)
class _Found:
    captured: set[str] = field(default_factory=set)
    stored: set[tuple[str, str]] = field(default_factory=set)
    ingress: set[str] = field(default_factory=set)
    taken: set[tuple[str, str]] = field(default_factory=set)
    republished: set[str] = field(default_factory=set)
    loops: set[str] = field(default_factory=set)


class Network:
    """The streams of an account. Those of other accounts and domains are not followed."""

    def __init__(self, streams: Iterable[StreamConfig]) -> None:
        self.streams = tuple(streams)
        self._takers: dict[str, list[tuple[StreamConfig, StreamSource]]] = defaultdict(list)
        for stream in self.streams:
            for upstream in stream.upstreams:
                if upstream.external is None:
                    self._takers[upstream.name].append((stream, upstream))

    def facts(self, subject: str | None) -> Facts:
        """What happens to a subject; nothing to one that is delivered to nobody."""
        if subject is None or not self.streams:
            return NOTHING
        found = _Found()
        found.captured = {stream.name for stream in self._capture(subject, (), found)}
        return Facts(
            frozenset(found.captured),
            frozenset(found.stored),
            frozenset(found.ingress),
            frozenset(found.taken),
            frozenset(found.republished),
            frozenset(found.loops),
        )

    def _capture(self, subject: str, been: tuple[str, ...], found: _Found) -> list[StreamConfig]:
        taking = [stream for stream in self.streams if stream.captures(subject)]
        for stream in taking:
            self._store(stream, subject, been, found)
        return taking

    def _store(
        self, stream: StreamConfig, subject: str, been: tuple[str, ...], found: _Found
    ) -> None:
        if stream.name in been:
            found.loops.add(stream.name)
            return
        been = (*been, stream.name)
        outcome = stream.ingress(subject, None)
        stored = subject if outcome.subject is None else outcome.subject
        if outcome.fate is Fate.MAPPED:
            found.ingress.add(stream.name)
        found.stored.add((stream.name, stored))
        republished = stream.republished(stored, None)
        if republished is not None:
            found.republished.add(stream.name)
            self._capture(republished.subject, been, found)
        for taker, upstream in self._takers[stream.name]:
            arrived = upstream.take(stored, None)
            if arrived.subject is not None:
                found.taken.add((taker.name, stream.name))
                self._store(taker, arrived.subject, been, found)
