"""The subjects that change their names between two sets of mappings, described by filters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from nats_transform.mappings.mapping import AccountMappings, Mapping
from nats_transform.mappings.subject import SEPARATOR, intersection, is_subset
from nats_transform.mappings.subject_index import Effort, SubjectIndex
from nats_transform.mappings.symbolic import (
    Symbols,
    applied,
    between,
    image,
    is_identity,
    results,
    symbols_of,
)
from nats_transform.mappings.transform import Transform


@dataclass(frozen=True, slots=True)
class Move:
    """Subjects whose name on the server changes.

    Attributes:
        part: the filter of the subjects as they are published.
        old, new: the transform today and under the candidate; None leaves the subject as it is.
        is_partial: whether other messages under these subjects keep their names, by weights or
            clusters.
    """

    part: str
    old: Transform | None
    new: Transform | None
    is_partial: bool = False

    def names(self, place: str) -> tuple[str, str] | None:
        """Filters of the old and the new names of those subjects whose old names a filter covers.

        None if the filter covers no old name. If a mapping makes the old name, the new names are
        those of the whole move, because the old name does not say what the published subject was.
        """
        if self.old is not None:
            old = intersection(image(self.old, self.part), place)
            return None if old is None else (old, image(self.new, self.part))
        part = intersection(self.part, place)
        return None if part is None else (part, image(self.new, part))


class Moves(tuple[Move, ...]):
    """Moves, with indexes of their names, because there can be thousands of them."""

    @cached_property
    def _old(self) -> SubjectIndex:
        return SubjectIndex(image(move.old, move.part) for move in self)

    @cached_property
    def _new(self) -> SubjectIndex:
        return SubjectIndex(image(move.new, move.part) for move in self)

    def reaches(self, place: str) -> bool:
        """Whether some move may have a new name that a filter covers."""
        return bool(self._new.colliding(place))

    def under(self, places: Iterable[str]) -> Iterator[Move]:
        """The moves with old names that some filter covers, in order."""
        numbers = {number for place in places for number in self._old.colliding(place)}
        return (self[number] for number in sorted(numbers))

    def names(self, place: str) -> Iterator[tuple[str, str]]:
        """The `Move.names` of every move with old names that a filter covers."""
        return (names for move in self.under([place]) if (names := move.names(place)))


def moves(
    current: AccountMappings, candidate: AccountMappings, effort: Effort | None = None
) -> Moves:
    """Every pair of a current destination and a candidate destination that a subject can have.

    A subject that both sides leave as it is does not move. The clusters of destinations make no
    difference, because a stream may get messages from all of them. Once an effort is spent, some
    are missing.
    """
    collected = []
    for part, old, new in _parts(current, candidate, effort):
        pairs = [(before, after) for before in _ends(old) for after in _ends(new)]
        moved = [pair for pair in pairs if _text(pair[0], part) != _text(pair[1], part)]
        collected += [Move(part, *pair, len(moved) < len(pairs)) for pair in moved]
    return Moves(dict.fromkeys(collected))


def _parts(
    current: AccountMappings, candidate: AccountMappings, effort: Effort | None
) -> Iterator[tuple[str, Mapping | None, Mapping | None]]:
    if not current.mappings:
        yield from ((new.source, None, new) for new in candidate.mappings)
        return
    olds, news = (
        SubjectIndex((mapping.source for mapping in account.mappings), effort)
        for account in (current, candidate)
    )
    for new in candidate.mappings:
        around = [current.mappings[number] for number in olds.colliding(new.source)]
        for old in around:
            if part := intersection(new.source, old.source):
                yield part, old, new
        if not any(is_subset(new.source, of=old.source) for old in around):
            yield new.source, None, new
    for old in current.mappings:
        around = [candidate.mappings[number] for number in news.colliding(old.source)]
        if not any(is_subset(old.source, of=new.source) for new in around):
            yield old.source, old, None


def _ends(mapping: Mapping | None) -> Iterable[Transform | None]:
    """What can become of subjects: also what weights and clusters leave over, and a weight of 0."""
    if mapping is None:
        return (None,)
    left = (share.transform for share in mapping.ends() if share.transform is not None)
    return dict.fromkeys(
        None if is_identity(transform) else transform for transform in (*mapping.transforms, *left)
    )


def _text(transform: Transform | None, part: str) -> tuple[str, str]:
    """A text pair that is equal for two transforms if they do the same to the subjects."""
    return (part, part) if transform is None else (transform.source, transform.destination)


def kept(move: Move, place: str, local: Transform | None) -> tuple[str, str] | None:
    """The transform that gives new names the result that a transform gives the old ones.

    With it in place of `local`, nothing changes behind the transform.

    Args:
        move: the subjects that move.
        place: a filter of the old names.
        local: the transform of the old names; None leaves them as they are.

    Returns:
        Source and destination; None if there is no such transform.
    """
    shape = _shape(move, place)
    return between(applied(move.new, shape), applied(local, applied(move.old, shape)))


def onward(move: Move, place: str, transform: Transform) -> Move | None:
    """The move that a move of subjects causes behind a transform.

    Args:
        move: the subjects that move.
        place: a filter of the old names.
        transform: a transform that applies to both the old names and the new ones.

    Returns:
        None if nothing moves there, or if it cannot be described.
    """
    shape = _shape(move, place)
    before = applied(transform, applied(move.old, shape))
    after = applied(transform, applied(move.new, shape))
    pair = between(before, after)
    return None if pair is None or before == after else Move(pair[0], None, Transform(*pair))


def prefix(transform: Transform) -> str | None:
    """The tokens that a transform puts in front of a subject that it otherwise keeps; else None."""
    given, symbols = symbols_of(transform.source), results(transform)
    front = [token for token in symbols[: -len(given)] if isinstance(token, str)]
    if not front or len(front) + len(given) != len(symbols) or symbols[-len(given) :] != given:
        return None
    return SEPARATOR.join(front)


def _shape(move: Move, place: str) -> Symbols | None:
    """The tokens of the published subjects of a move whose old names a filter covers."""
    if move.old is None:
        part = intersection(move.part, place)
        return None if part is None else symbols_of(part)
    return symbols_of(move.part) if is_subset(image(move.old, move.part), of=place) else None
