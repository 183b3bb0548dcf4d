"""The subjects that change their names between two sets of mappings, described by filters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from nats_transform.check_transform import is_identity
from nats_transform.functions import Literal, Partition, Random, Tail, Wildcard
from nats_transform.mapping import AccountMappings, Mapping
from nats_transform.subject import ANY_TAIL, ANY_TOKEN, SEPARATOR, has_wildcard, is_subset
from nats_transform.subject_index import Effort, SubjectIndex
from nats_transform.transform import Transform


def intersection(one: str, other: str) -> str | None:
    """The filter of the subjects that two filters share; None if they share none."""
    tokens: list[str] = []
    left, right = one.split(SEPARATOR), other.split(SEPARATOR)
    for place in range(max(len(left), len(right))):
        # A `>` stands for its own place and for all places after it.
        here = [side[min(place, len(side) - 1)] for side in (left, right)]
        ends = [side[-1] == ANY_TAIL and place >= len(side) - 1 for side in (left, right)]
        if any(
            place >= len(side) and not end for side, end in zip((left, right), ends, strict=True)
        ):
            return None
        if all(ends):
            return SEPARATOR.join([*tokens, ANY_TAIL])
        if any(ends):
            tokens.append(here[0] if ends[1] else here[1])
        elif here[0] == here[1] or here[1] == ANY_TOKEN:
            tokens.append(here[0])
        elif here[0] == ANY_TOKEN:
            tokens.append(here[1])
        else:
            return None
    return SEPARATOR.join(tokens)


def image(transform: Transform, part: str) -> str:
    """A filter that covers what a transform makes of some subjects of its source.

    Args:
        transform: any transform.
        part: a filter that its source covers.
    """
    given = part.split(SEPARATOR)
    tokens: list[str] = []
    for token in transform.tokens:
        match token:
            case Literal(text):
                tokens.append(text)
            case Wildcard(position):
                tokens.append(given[position])
            case Tail(position):
                return SEPARATOR.join([*tokens, *given[position:]])
            case _ if not token.makes_one_token:
                return SEPARATOR.join([*tokens, ANY_TAIL])
            case _ if token.reads and not any(has_wildcard(given[at]) for at in token.reads):
                tokens.append(token.evaluate(given, 0))
            case _:
                tokens.append(ANY_TOKEN)
    return SEPARATOR.join(tokens)


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
            old = intersection(made(self.old, self.part), place)
            return None if old is None else (old, made(self.new, self.part))
        part = intersection(self.part, place)
        return None if part is None else (part, made(self.new, part))


def made(transform: Transform | None, part: str) -> str:
    """`image`, where None leaves subjects as they are."""
    return part if transform is None else image(transform, part)


class Moves(tuple[Move, ...]):
    """Moves, with an index of their old names, because there can be thousands of them."""

    @cached_property
    def _old(self) -> SubjectIndex:
        return SubjectIndex(made(move.old, move.part) for move in self)

    def under(self, places: Iterable[str]) -> Iterator[Move]:
        """The moves with old names that some filter covers, in order."""
        found = {number for place in places for number in self._old.colliding(place)}
        return (self[number] for number in sorted(found))

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
    found = []
    for part, old, new in _parts(current, candidate, effort):
        pairs = [(before, after) for before in _ends(old) for after in _ends(new)]
        moved = [pair for pair in pairs if _text(pair[0], part) != _text(pair[1], part)]
        found += [Move(part, *pair, len(moved) < len(pairs)) for pair in moved]
    return Moves(dict.fromkeys(found))


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
    left = (share.transform for _, share in mapping.ends() if share.transform is not None)
    return dict.fromkeys(
        None if is_identity(transform) else transform for transform in (*mapping.transforms, *left)
    )


def _text(transform: Transform | None, part: str) -> tuple[str, str]:
    """A text pair that is equal for two transforms if they do the same to the subjects."""
    return (part, part) if transform is None else (transform.source, transform.destination)


_Symbols: TypeAlias = list[str | int | None]
"""The tokens of a group of subjects. A token is a text, the number of a wildcard in the subjects as
they are published, or None if it is computed (a partition or a random number)."""


def _symbols(part: str) -> _Symbols:
    found: _Symbols = []
    for token in part.split(SEPARATOR):
        found.append(sum(isinstance(one, int) for one in found) if token == ANY_TOKEN else token)
    return found


def _applied(transform: Transform | None, given: _Symbols | None) -> _Symbols | None:
    """The tokens that a transform makes of some tokens.

    None if its source does not cover all the subjects, or if it has a function that cuts tokens.
    """
    if transform is None or given is None:
        return given
    source = transform.source.split(SEPARATOR)
    fixed = source[:-1] if source[-1] == ANY_TAIL else source
    if len(given) < len(source) or (fixed is source and len(given) != len(source)):
        return None
    for wanted, token in zip(fixed, given, strict=False):
        if token == ANY_TAIL or (wanted not in (ANY_TOKEN, token)):
            return None
    made: _Symbols = []
    for one in transform.tokens:
        match one:
            case Literal(text):
                made.append(text)
            case Wildcard(position):
                made.append(given[position])
            case Tail(position):
                made += given[position:]
            case Partition() | Random():
                made.append(None)
            case _:
                return None
    return made


def _between(before: _Symbols | None, after: _Symbols | None) -> tuple[str, str] | None:
    """The source and destination of a transform from one list of tokens to another.

    None if no transform does that.
    """
    if before is None or after is None or (before[-1] == ANY_TAIL) != (after[-1] == ANY_TAIL):
        return None
    numbers: dict[int, int] = {}
    wildcards = 0
    for token in before:
        if not isinstance(token, str):
            wildcards += 1
            if token is not None:
                numbers.setdefault(token, wildcards)
    made = []
    for token in after:
        if isinstance(token, str):
            made.append(token)
        elif token in numbers:
            made.append(f"${numbers[token]}")
        else:
            return None
    source = SEPARATOR.join(t if isinstance(t, str) else ANY_TOKEN for t in before)
    return source, SEPARATOR.join(made)


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
    return _between(_applied(move.new, shape), _applied(local, _applied(move.old, shape)))


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
    before = _applied(transform, _applied(move.old, shape))
    after = _applied(transform, _applied(move.new, shape))
    pair = _between(before, after)
    return None if pair is None or before == after else Move(pair[0], None, Transform(*pair))


def prefix(transform: Transform) -> str | None:
    """The tokens that a transform puts in front of a subject that it otherwise keeps; else None."""
    given = _symbols(transform.source)
    made = _applied(transform, given) or []
    front = [token for token in made[: -len(given)] if isinstance(token, str)]
    if not front or len(front) + len(given) != len(made) or made[-len(given) :] != given:
        return None
    return SEPARATOR.join(front)


def _shape(move: Move, place: str) -> _Symbols | None:
    """The tokens of the published subjects of a move whose old names a filter covers."""
    if move.old is None:
        part = intersection(move.part, place)
        return None if part is None else _symbols(part)
    return _symbols(move.part) if is_subset(image(move.old, move.part), of=place) else None
