"""The mapping that undoes another, where there is one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product

from nats_transform.errors import InvalidMapping, InvalidTransform
from nats_transform.functions import (
    Literal,
    OfToken,
    OfTokenAndSize,
    SplitFromLeft,
    SplitFromRight,
    Tail,
    Token,
    Wildcard,
)
from nats_transform.mapping import AccountMappings, Destination, Mapping
from nats_transform.subject import ANY_TAIL, ANY_TOKEN, SEPARATOR
from nats_transform.transform import Transform

MOST_PIECES = 16
"""A token that can make more tokens is not reversed; NATS advises against longer subjects."""

_MOST_MAPPINGS = 64


def ways_back(transform: Transform) -> Iterator[Mapping]:
    """The mappings from the results of a transform back to its subjects, one for each length.

    This undoes more than `Transform.reverse`: it drops partitions, random numbers and pieces of
    tokens, and a wildcard may be used twice. A wildcard that the destination leaves out, or has
    only in pieces, cannot be restored: mappings cut tokens and never join them.
    """
    whole = set(map(_kept, transform.tokens))
    if not whole.issuperset(transform.filter.wildcards):
        return
    lengths = [_lengths(token) for token in transform.tokens]
    if sum(len(one) > 2 for one in lengths) > 1 or sum(map(len, lengths)) > _MOST_MAPPINGS:
        return
    for sizes in product(*lengths):
        mapping = _way_back(transform, sizes)
        if mapping is not None:
            yield mapping


def in_pieces(transform: Transform) -> list[int]:
    """The numbers, from 1 on, of the wildcards that the result has only in pieces."""
    whole = set(map(_kept, transform.tokens))
    cut = {token.position for token in transform.tokens if isinstance(token, OfToken)} - whole
    return [n for n, position in enumerate(transform.filter.wildcards, 1) if position in cut]


def _kept(token: Token) -> int | None:
    """The position of the source's token that a token of the result repeats unchanged."""
    if isinstance(token, Wildcard) or (isinstance(token, OfTokenAndSize) and token.leaves_whole):
        return token.position
    return None


def _lengths(token: Token) -> Sequence[int]:
    """The numbers of tokens that a token of the destination can make."""
    if token.makes_one_token or isinstance(token, Tail) or _kept(token) is not None:
        return (1,)
    is_cut_once = isinstance(token, SplitFromLeft | SplitFromRight)
    return (1, 2) if is_cut_once else range(1, MOST_PIECES + 1)


def _way_back(transform: Transform, sizes: Sequence[int]) -> Mapping | None:
    tokens: list[str] = []
    numbers: dict[int, int] = {}
    wildcards = 0
    for token, size in zip(transform.tokens, sizes, strict=True):
        if isinstance(token, Literal):
            tokens.append(token.text)
        elif isinstance(token, Tail):
            tokens.append(ANY_TAIL)
        else:
            wildcards += 1
            if (position := _kept(token)) is not None:
                numbers.setdefault(position, wildcards)
            wildcards += size - 1
            tokens += [ANY_TOKEN] * size
    destination = SEPARATOR.join(
        f"${numbers[position]}" if token == ANY_TOKEN else token
        for position, token in enumerate(transform.filter.tokens)
    )
    try:
        return Mapping(SEPARATOR.join(tokens), [Destination(destination)])
    except (InvalidMapping, InvalidTransform):
        return None  # a literal of the source reads as something else in a destination


def reversed_mappings(mappings: Iterable[Mapping]) -> AccountMappings:
    """The mappings that undo others, as far as they can be undone.

    Only the subjects show whether these give every subject back, because one reversed mapping may
    also cover results of another mapping.
    """
    found: dict[str, Mapping] = {}
    for mapping in mappings:
        for transform in mapping.transforms:
            for backward in ways_back(transform):
                found.setdefault(backward.source, backward)
        # Messages that no weight covers keep their subjects, so there is nothing to undo.
    return AccountMappings(list(found.values()))
