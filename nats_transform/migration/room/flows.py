"""Both names in the sources and the republish of streams, while both are in use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from nats_transform.mappings.moves import Move, Moves, kept, onward, prefix
from nats_transform.mappings.subject import ANY_TAIL, SEPARATOR, collide, is_subset
from nats_transform.streams.source import StreamSource
from nats_transform.streams.stream import StreamConfig

Fields = dict[str, Any]

_FILTERS = ("filter_subject", "subject_transforms")
_STARTS = ("opt_start_seq", "opt_start_time")


def sources_with(
    stream: StreamConfig, streams: Mapping[str, StreamConfig], moves: Moves
) -> list[Fields]:
    """The sources of a stream, with one more for each filter whose names move.

    The existing source stays as it is: nats-server takes a source whose filter changes for a new
    one, and reads its stream from the start again (`composeIName` in `server/stream.go`). If the
    existing source renames messages, the new source gives them the same results as before;
    otherwise they are stored under the new names.
    """
    sources = [_fields(source) for source in stream.sources]
    ours = [s for s in stream.sources if s.external is None and s.consumer is None]
    for source in ours:
        upstream = streams.get(source.name)
        if upstream is None:
            continue
        # What other sources take as it is would be stored twice.
        taken = [
            rule.source
            for other in ours
            if other.name == source.name
            for rule in other.filters
            if rule.transform is None
        ]
        for move in moves.under(rule.source for rule in source.filters):
            transforms = [] if _renames(upstream, move) else _transforms(source, move, taken)
            if not transforms:
                continue
            fields = {k: v for k, v in _fields(source).items() if k not in (*_FILTERS, *_STARTS)}
            if len(transforms) == 1 and not transforms[0]["dest"]:
                fields["filter_subject"] = transforms[0]["src"]
            else:
                fields["subject_transforms"] = transforms
            if fields not in sources:
                sources.append(fields)
    return sources


def sources_without(
    old: StreamConfig, both: StreamConfig, is_gone: Callable[[str, str], bool]
) -> list[Fields]:
    """The sources for both names, without those that find nothing under their filters any more."""
    gone = [
        _fields(s)
        for s in old.sources
        if s.filters
        and s.consumer is None
        and s.external is None
        and all(is_gone(s.name, rule.source) for rule in s.filters)
    ]
    return [source for source in map(_fields, both.sources) if source not in gone]


def _fields(source: StreamSource) -> Fields:
    return source.model_dump(by_alias=True, exclude_unset=True)


def _renames(upstream: StreamConfig, move: Move) -> bool:
    """Whether a stream stores messages that move under names other than those of the account."""
    ingress, names = upstream.ingress_transform, move.names(ANY_TAIL)
    return (
        ingress is not None
        and names is not None
        and any(collide(ingress.source, name) for name in names)
    )


def _transforms(source: StreamSource, move: Move, taken: Sequence[str]) -> list[Fields]:
    """The filters and transforms that take the new names; `taken` is so already, as it is."""
    own, transforms = [rule.source for rule in source.filters], list[Fields]()
    for rule in source.filters:
        names = move.names(rule.source)
        patterns = own if rule.transform else [*own, *taken]
        if names is None or any(is_subset(names[1], of=pattern) for pattern in patterns):
            continue
        if rule.transform is None:
            own.append(names[1])
            transforms.append({"src": names[1], "dest": ""})
        elif (pair := kept(move, rule.source, rule.transform)) is not None:
            transforms.append({"src": pair[0], "dest": pair[1]})
    return transforms


def republish_with(stream: StreamConfig, moves: Moves) -> Fields | None:
    """The republish of a stream, widened to take the new names too.

    A stream has only one republish. It can be widened if it puts tokens in front of all subjects
    that the stream captures. If not, it is returned as it is, and a dry run finds that it stops.
    """
    transform = stream.republish_transform
    if stream.republish is None or transform is None:
        return None
    fields: Fields = stream.republish.model_dump(by_alias=True, exclude_unset=True)
    source = transform.source
    names = [pair for place in stream.subjects for pair in moves.names(place)]
    if all(is_subset(new, of=source) or not collide(old, source) for old, new in names):
        return fields
    front = prefix(transform)
    if (
        front is None
        or stream.ingress_transform is not None
        or stream.sources
        or not all(is_subset(place, of=source) for place in stream.subjects)
    ):
        return fields
    return fields | {"src": ANY_TAIL, "dest": f"{front}{SEPARATOR}{ANY_TAIL}"}


def republished(streams: Sequence[StreamConfig], moves: Moves) -> Iterator[Move]:
    """The moves of the subjects under which streams republish messages that move."""
    for stream in streams:
        transform = stream.republish_transform
        if transform is None:
            continue
        for move in moves.under(stream.subjects):
            for place in stream.subjects:
                moved = onward(move, place, transform)
                if moved is not None:
                    yield moved
