"""Room for old and new subjects: what streams, consumers and users need while both are in use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from nats_transform.consumer import Consumer
from nats_transform.migration.permissions import Allowance, User
from nats_transform.plan.moves import Move
from nats_transform.stream import StreamConfig
from nats_transform.subject import is_subset


def widened(filters: Sequence[str], moves: Iterable[Move]) -> tuple[str, ...]:
    """The filters, and those of the new names of all that they cover; none twice."""
    found = list(filters)
    for place in filters:
        for move in moves:
            names = move.names(place)
            if names is not None and not any(is_subset(names[1], of=one) for one in found):
                found.append(names[1])
    return tuple(found)


def narrowed(filters: Sequence[str], wide: Sequence[str], moves: Sequence[Move]) -> tuple[str, ...]:
    """The wide filters without those of which every subject has moved away.

    Args:
        filters: as they were.
        wide: what `widened` made of them.
        moves: the same moves.
    """
    gone = {
        place
        for place in filters
        if any(
            move.old is None
            and is_subset(place, of=move.part)
            and not any(is_subset(place, of=names[1]) for names in [move.names(place)] if names)
            for move in moves
        )
    }
    return tuple(place for place in wide if place not in gone)


def stream_with(stream: StreamConfig, subjects: Sequence[str]) -> StreamConfig:
    """The stream with other subjects.

    Raises:
        ValidationError: nats-server refuses it.
    """
    fields = stream.model_dump(by_alias=True) | {"subjects": list(subjects)}
    return StreamConfig.model_validate(fields)


def consumer_with(consumer: Consumer, filters: Sequence[str]) -> Consumer:
    """The consumer with other filters."""
    return replace(consumer, filters=tuple(filters))


def user_with(user: User, moves: Sequence[Move], *, narrow: bool = False) -> User:
    """The user with permissions for the new names too, or for them alone.

    nats-server checks a publish after the mapping, so publishers need the new names as well.
    """
    return replace(
        user,
        publish=_allowance(user.publish, moves, narrow),
        subscribe=_allowance(user.subscribe, moves, narrow),
    )


def _allowance(allowance: Allowance, moves: Sequence[Move], narrow: bool) -> Allowance:
    def change(filters: tuple[str, ...]) -> tuple[str, ...]:
        wide = widened(filters, moves)
        return narrowed(filters, wide, moves) if narrow else wide

    allow = None if allowance.allow is None else change(allowance.allow)
    return Allowance(allow, change(allowance.deny))
