"""Finds streams that overlap, and mappings that move subjects into streams or out of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from nats_transform.errors import printable
from nats_transform.lint.findings import Finding
from nats_transform.mappings.mapping import Mapping
from nats_transform.mappings.subject import collide, cover_together, intersection
from nats_transform.mappings.subject_index import Effort, SubjectIndex
from nats_transform.mappings.symbolic import can_land_in, filter_of_results, image, is_exact, stays
from nats_transform.mappings.transform import Transform
from nats_transform.streams.features import MESSAGES, features, sums
from nats_transform.streams.stream import StreamConfig
from nats_transform.words import and_more


class Captured:
    """The filters of streams, and which streams they are of."""

    def __init__(self, streams: Iterable[StreamConfig], effort: Effort) -> None:
        streams = list(streams)
        self.by_name = {stream.name: stream for stream in streams}
        self._pairs = [(stream.name, filter) for stream in streams for filter in stream.captured]
        self._index = SubjectIndex((filter for _, filter in self._pairs), effort)

    def colliding(self, filter: str) -> list[tuple[str, str]]:
        """The name of a stream, and its filter, for each filter that collides with one."""
        return [self._pairs[number] for number in self._index.colliding(filter)]


def streams_overlap(streams: Sequence[StreamConfig], effort: Effort) -> Iterator[Finding]:
    """The streams that one account cannot have together (`subjectsOverlap` in the server)."""
    captured = Captured(streams, effort)
    compared: set[str] = set()
    for stream in streams:
        compared.add(stream.name)
        overlaps = {
            name: (mine, theirs)
            for mine in stream.captured
            for name, theirs in captured.colliding(mine)
            if name not in compared
        }
        if overlaps:
            name, (mine, theirs) = next(iter(overlaps.items()))
            yield Finding(
                "streams-overlap",
                f"its subject {printable(mine)} and the subject {printable(theirs)} of stream "
                f"{name}{and_more(len(overlaps) - 1)} cover the same subjects",
                mine,
                place=f"stream {stream.name}",
            )


def _ingress(stream: StreamConfig) -> list[Transform]:
    return [stream.ingress_transform] if stream.ingress_transform else []


def _adds_up(stream: StreamConfig, upstream: StreamConfig, transform: Transform) -> bool:
    """Whether a stream takes subjects and their results from another one under the same name."""
    feeds = [s for s in stream.sources if s.name == upstream.name and s.external is None]
    rules = [rule for feed in feeds for rule in feed.filters]
    names = [] if upstream.ingress_transform else [transform.source, filter_of_results(transform)]
    return (
        bool(rules)
        and all(any(collide(rule.source, name) for rule in rules) for name in names)
        and stays(
            transform,
            _ingress(upstream),
            [rule.transform for rule in rules if rule.transform],
            _ingress(stream),
        )
    )


def _left_out(
    transform: Transform, sources: Iterable[tuple[str, str]], captured: Captured
) -> Iterator[tuple[str, str, str]]:
    """What streams capture of a source and not of its results: stream, filter, its results."""
    if not is_exact(transform):
        return
    for name, filter in sources:
        if part := intersection(transform.source, filter):
            result = image(transform, part)
            if not cover_together([other for _, other in captured.colliding(result)], result):
                yield name, part, result


def stream_faults(
    mapping: Mapping, renaming: Sequence[Transform], captured: Captured
) -> Iterator[tuple[str, str, Transform]]:
    """What a mapping does to streams that capture its source: code, message, transform."""
    if not captured.by_name:
        return
    sources = captured.colliding(mapping.source)
    before = list(dict.fromkeys(name for name, _ in sources))
    for transform in renaming:
        landing = captured.colliding(filter_of_results(transform))
        takes = dict.fromkeys(name for name, filter in landing if can_land_in(transform, filter))
        if before and not takes:
            yield (
                "escapes-stream",
                f"stream {before[0]}{and_more(len(before) - 1)} captures the source, and no "
                "stream captures the result",
                transform,
            )
        elif left := next(_left_out(transform, sources, captured), None):
            name, part, result = left
            yield (
                "escapes-stream",
                f"stream {name} captures {printable(part)}, and the streams capture only some of "
                f"its results {printable(result)}",
                transform,
            )
        for name in before:
            stream = captured.by_name[name]
            is_kept = name in takes and stays(transform, _ingress(stream))
            for code in features(stream):
                if not (name in takes if code == "batch-split" else is_kept):
                    message = f"stream {name}: {MESSAGES[code]}"
                    yield code, message, transform
            if stream.allow_msg_counter and name in takes and not is_kept:
                for other in captured.by_name.values():
                    if sums(other) and _adds_up(other, stream, transform):
                        message = f"stream {other.name}: {MESSAGES['counted-twice']}"
                        yield "counted-twice", message, transform
        if new := [name for name in takes if name not in before]:
            yield (
                "caught-by-stream",
                f"stream {new[0]}{and_more(len(new) - 1)} captures the result, and does not "
                "capture the source",
                transform,
            )
