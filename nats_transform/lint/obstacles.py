"""What a move of subjects breaks whatever room is made for the new ones.

`check` finds these by the mappings alone or with streams and imports, a dry run by both mappings,
and a plan refuses them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from nats_transform.accounts.service_imports import left_services, services_with
from nats_transform.accounts.sharing import SharedSubject
from nats_transform.errors import shown
from nats_transform.mappings.mapping import AccountMappings
from nats_transform.mappings.moves import Move, Moves, moves
from nats_transform.mappings.subject import (
    ANY_TAIL,
    collide,
    cover_together,
    intersection,
    is_subset,
)
from nats_transform.mappings.subject_index import Effort, SubjectIndex
from nats_transform.mappings.symbolic import image, is_exact
from nats_transform.streams.network import Network
from nats_transform.streams.stream import StreamConfig

_BUCKETS = ("$KV.>", "$O.>")


class Obstacle(NamedTuple):
    """What a code is about, in which words, and the source of a mapping that causes it."""

    code: str
    about: str
    message: str
    source: str = ""


def obstacles(
    changing: Moves, streams: Iterable[StreamConfig] = (), imports: Sequence[SharedSubject] = ()
) -> Iterator[Obstacle]:
    """Moves of keys of buckets, and those that mirrors and imports of services cannot follow."""
    known = tuple(streams)
    for stream in known:
        mirror = stream.mirror
        if mirror is None or stream.sealed or mirror.external is not None:
            continue  # it takes nothing, or from where these mappings are not in force
        if mirror.consumer is not None:
            continue  # of a consumer the filter can be changed
        filters = [rule.source for rule in mirror.filters]
        if (source := _stuck(changing, filters, filters)) is not None:
            yield Obstacle(
                "mirror-filter",
                f"stream {shown(stream.name)}",
                f"its mirror of {shown(mirror.name)} filters by the old subjects, and nats-server "
                "doesn't let you change a mirror (10055)",
                source,
            )
    yield from _buckets(changing, known)
    wide = services_with(imports, changing)
    yield from _left(changing, imports, wide, "service-import", "no import can take them")


def moved_services(changing: Moves, imports: Sequence[SharedSubject]) -> Iterable[Obstacle]:
    """Moves of requests that imports of services don't follow as they are, whether or not one can.

    Those that none can follow are among the `obstacles` too.
    """
    return _left(changing, imports, imports, "service-moves", "it doesn't take them")


def _left(
    changing: Moves,
    imports: Sequence[SharedSubject],
    new: Sequence[SharedSubject],
    code: str,
    why: str,
) -> Iterable[Obstacle]:
    return dict.fromkeys(
        Obstacle(
            code,
            f"import of {shown(entry.subject)} from account {shown(entry.account)}",
            f"the mapping moves requests under {shown(entry.local)} away from it, "
            f"and {why} under their new names",
            move.part,
        )
        for entry, move in left_services(imports, changing, new)
    )


def obstacles_to(
    account: AccountMappings, network: Network, imports: Sequence[SharedSubject], effort: Effort
) -> Iterator[Obstacle]:
    """The obstacles if no mapping is in force yet; some are missing once the effort is spent.

    With the sources that do not take what moves, which a plan gives room to.
    """
    filters = [*_BUCKETS, *(entry.local for entry in imports if entry.kind == "service")]
    for stream in network.streams:
        filters += [rule.source for source in stream.upstreams for rule in source.filters]
    filters += [filter for consumer in network.consumers for filter in consumer.filters]
    index = SubjectIndex(filters, effort)
    colliding = [mapping for mapping in account.mappings if index.colliding(mapping.source)]
    changing = moves(AccountMappings(()), AccountMappings(colliding))
    yield from obstacles(changing, network.streams, imports)
    yield from _stopping(changing, network, effort)


def _stopping(changing: Moves, network: Network, effort: Effort) -> Iterator[Obstacle]:
    """The mirrors and sources, and the consumers that they read, that do not cover new names."""
    for stream in network.streams:
        if stream.ingress_transform is not None:
            continue  # it stores other names than those that the mapping makes
        index = SubjectIndex(stream.captured, effort)
        for taker, entries in groupby(network.feeds(stream.name), lambda feed: feed.taker.name):
            feeds = list(entries)
            if feeds[0].position is None and feeds[0].source.consumer is None:
                continue  # a mirror, whose filter cannot change: `mirror-filter`
            if feeds[0].taker.sealed:
                continue  # it takes nothing
            takes = [filter for feed in feeds for filter in feed.filters]
            # A consumer gives also what the transforms of its source do not cover.
            renames = [
                [rule.source for rule in feed.source.filters if rule.transform]
                for feed in feeds
                if feed.source.consumer is not None
            ]
            for verb, filters in (("take", takes), *(("rename", filters_) for filters_ in renames)):
                stored = (
                    both
                    for pattern in filters
                    for number in index.colliding(pattern)
                    if (both := intersection(pattern, index.filters[number]))
                )
                if source := _stuck(changing, stored, filters, stream.captured):
                    message = f"it will not {verb} from {shown(stream.name)} what the mapping moves"
                    yield Obstacle("source-stops", f"stream {shown(taker)}", message, source)


def _stuck(
    changing: Moves, old: Iterable[str], new: Sequence[str], stored: Sequence[str] = (ANY_TAIL,)
) -> str | None:
    """The first subjects under filters whose new names, if they are stored, others do not cover."""
    stuck = (
        move.part
        for filter in old
        for move in changing.under([filter])
        if (names := move.names(filter)) and _is_left_out(move, names[1], new, stored)
    )
    return next(stuck, None)


def _is_left_out(move: Move, name: str, new: Sequence[str], stored: Iterable[str]) -> bool:
    """Whether filters leave out new names of a move that are stored: some, or as known all."""
    stored = [subject for subject in stored if collide(name, subject)]
    if move.old is None and (move.new is None or is_exact(move.new)):
        parts = (intersection(name, subject) for subject in stored)
        return not all(part is None or cover_together(new, part) for part in parts)
    return bool(stored) and not any(collide(name, subject) for subject in new)


def _buckets(changing: Moves, streams: Iterable[StreamConfig]) -> Iterator[Obstacle]:
    message = "the mapping moves keys of a bucket, but its clients look only under the old names"
    in_streams: set[Move] = set()
    for stream in streams:
        moving = [
            move
            for place in stream.subjects
            for bucket in _BUCKETS
            if (keys := intersection(place, bucket)) is not None
            for move in changing.under([keys])
            if move.names(keys)
        ]
        in_streams.update(moving)
        if moving:
            yield Obstacle("bucket-moves", f"stream {shown(stream.name)}", message, moving[0].part)
    # Without the stream, only a mapping that is written for buckets is known to move keys.
    for move in changing.under(_BUCKETS):
        old = image(move.old, move.part)
        if move not in in_streams and any(is_subset(old, of=bucket) for bucket in _BUCKETS):
            yield Obstacle("bucket-moves", f"mapping {shown(move.part)}", message, move.part)
