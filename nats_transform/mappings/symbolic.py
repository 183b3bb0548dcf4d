"""What is known of the results of a transform before any subject is seen.

The tokens of many subjects are looked at together, as symbols. `check`, plans, dry runs, the export
of a census and backups ask here which subjects a destination can make, what it leaves out, and
whether another mapping undoes it. No other module reads the tokens of a destination for this, but
for `nats_transform.mappings.shape`, which knows the bytes of each token for audits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, product
from math import prod
from typing import NamedTuple, TypeAlias, TypeGuard, cast

from nats_transform.errors import InvalidMapping, InvalidTransform
from nats_transform.mappings.arguments import integer_or_none
from nats_transform.mappings.functions import (
    Literal,
    OfToken,
    OfTokenAndSize,
    Partition,
    Random,
    SplitFromLeft,
    SplitFromRight,
    Tail,
    Token,
    Wildcard,
)
from nats_transform.mappings.mapping import AccountMappings, Destination, Mapping
from nats_transform.mappings.subject import ANY_TAIL, ANY_TOKEN, SEPARATOR, collide, is_subset
from nats_transform.mappings.transform import Transform
from nats_transform.mappings.unresolved import MOST_NUMBERS

MOST_PIECES = 16
"""A token that can make more tokens is not reversed; NATS advises against longer subjects."""

_MOST_MAPPINGS = 64


class Symbol(NamedTuple):
    """A token whose text differs between the subjects, or several such tokens in a row.

    Attributes:
        position: the 0-based place of this very token in the published subjects, or the place from
            which all tokens are repeated; None for a text that is computed.
        most: how many tokens it can be, at most; `MOST_PIECES` stands for any number.
        below: the text is a whole number below this; 0 if it can be any text.
    """

    position: int | None = None
    most: int = 1
    below: int = 0


Symbols: TypeAlias = tuple[str | Symbol, ...]
"""What is known of subjects, token by token: a text, or a symbol."""


def is_cut(symbol: str | Symbol) -> TypeGuard[Symbol]:
    """Whether it is the pieces of a token, of which nobody knows how many there are."""
    return isinstance(symbol, Symbol) and symbol.most > 1 and symbol.position is None


def symbols_of(source: str) -> Symbols:
    """The subjects that a source covers, where a token that only starts with `*` is any token."""
    return tuple(
        Symbol(place, MOST_PIECES)
        if token == ANY_TAIL
        else Symbol(place)
        if token.startswith(ANY_TOKEN)
        else token
        for place, token in enumerate(source.split(SEPARATOR))
    )


def filter_of(symbols: Symbols) -> str:
    """A filter that covers all the subjects, and maybe more."""
    tokens: list[str] = []
    for symbol in symbols:
        if isinstance(symbol, Symbol) and symbol.most > 1:
            return SEPARATOR.join([*tokens, ANY_TAIL])
        tokens.append(ANY_TOKEN if isinstance(symbol, Symbol) else symbol)
    return SEPARATOR.join(tokens)


@lru_cache(2**12)  # `check` asks for the same transform once for each filter
def results(transform: Transform) -> Symbols:
    """Everything that a transform can make."""
    return _made(transform, symbols_of(transform.source))


def applied(transform: Transform | None, given: Symbols | None) -> Symbols | None:
    """What a transform makes of some subjects; a transform that is None leaves them as they are.

    None if its source may not cover them all, or if the places of their tokens are not known.
    """
    if transform is None or given is None:
        return given
    if any(map(is_cut, given)):
        return None
    return _made(transform, given) if is_subset(filter_of(given), of=transform.source) else None


def _made(transform: Transform, given: Symbols) -> Symbols:
    symbols: list[str | Symbol] = []
    for token in transform.tokens:
        if isinstance(token, Tail):
            symbols += given[token.position :]
        else:
            symbols.append(_one(token, given))
    return tuple(symbols)


def _one(token: Token, given: Symbols) -> str | Symbol:
    """What a token of a destination makes, all but a `>`."""
    if isinstance(token, Literal):
        return token.text
    if isinstance(token, Wildcard) or (isinstance(token, OfTokenAndSize) and token.leaves_whole):
        kept = given[token.position]
        return kept if isinstance(kept, str) else kept._replace(most=1)
    if not token.makes_one_token:
        return Symbol(most=2 if isinstance(token, SplitFromLeft | SplitFromRight) else MOST_PIECES)
    if token.reads and all(isinstance(given[place], str) for place in token.reads):
        return token.evaluate(cast("Sequence[str]", given), 0)
    return Symbol(below=max(1, abs(token.count)) if isinstance(token, Partition | Random) else 0)


def filter_of_results(transform: Transform) -> str:
    """A filter that covers every result, and maybe more: `*` for a token that is computed."""
    return filter_of(results(transform))


def image(transform: Transform | None, part: str) -> str:
    """A filter that covers what a transform makes of some subjects of its source.

    Args:
        transform: any transform; None leaves subjects as they are.
        part: a filter that its source covers.
    """
    return part if transform is None else filter_of(_made(transform, symbols_of(part)))


def each_number(transform: Transform, part: str) -> list[str]:
    """`image` with a filter for each number that `partition()` and `random()` can make.

    It is a single filter if they can make more than `MOST_NUMBERS`.
    """
    symbols = _made(transform, symbols_of(part))
    texts = [range(s.below) if isinstance(s, Symbol) and s.below else (s,) for s in symbols]
    if prod(map(len, texts)) > MOST_NUMBERS:
        return [filter_of(symbols)]
    return [
        filter_of(tuple(str(s) if isinstance(s, int) else s for s in one))
        for one in product(*texts)
    ]


def is_exact(transform: Transform) -> bool:
    """Whether `image` covers results only: no token is computed, and none stands there twice."""
    positions = [token.position for token in transform.tokens if isinstance(token, Wildcard)]
    return len(set(positions)) == len(positions) and all(
        isinstance(token, Literal | Wildcard | Tail) for token in transform.tokens
    )


def can_land_in(transform: Transform, filter: str) -> bool:
    """Whether a result of the transform can be covered by a filter.

    If the destination cuts its first token, nothing is known of the result, and the answer is no.
    After a later cut the number of tokens is not known; the answer is yes if the tokens before fit.
    """
    first = transform.tokens[0]
    if isinstance(first, Literal) and not filter.startswith((first.text, ANY_TOKEN, ANY_TAIL)):
        return False  # as nearly always
    wanted = filter.split(SEPARATOR)
    symbols = results(transform)
    for place, symbol in enumerate(symbols):
        if place >= len(wanted):
            return False
        if wanted[place] == ANY_TAIL:
            return True
        if isinstance(symbol, Symbol) and symbol.most > 1:
            return place > 0 or not is_cut(symbol)
        if not wanted[place].startswith(ANY_TOKEN) and not _can_be(symbol, wanted[place]):
            return False
    return len(symbols) == len(wanted)


def _can_be(symbol: str | Symbol, text: str) -> bool:
    if isinstance(symbol, str):
        return symbol == text
    number = integer_or_none(text)
    is_written_so = number is not None and str(number) == text
    return not symbol.below or (is_written_so and number in range(symbol.below))


def is_identity(transform: Transform) -> bool:
    """Whether the transform leaves every subject as it is."""
    first = transform.tokens[0]
    if isinstance(first, Literal) and not transform.source.startswith(first.text):
        return False  # as nearly always
    return results(transform) == symbols_of(transform.source)


def dropped(transform: Transform) -> Iterator[tuple[int, bool]]:
    """The numbers, from 1 on, of the wildcards whose text is not in the results, whole or cut.

    With whether the results have a part of it, or a number that is computed from it.
    """
    kept: set[int] = set()
    read: set[int] = set()
    for token in transform.tokens:
        (kept if token.keeps_token else read).update(token.reads)
    for number, place in enumerate(transform.filter.wildcards, start=1):
        if place not in kept:
            yield number, place in read


def in_pieces(transform: Transform) -> list[int]:
    """The numbers, from 1 on, of the wildcards that the results have only in pieces."""
    whole = {symbol.position for symbol in results(transform) if isinstance(symbol, Symbol)}
    cut = {token.position for token in transform.tokens if isinstance(token, OfToken)} - whole
    return [n for n, position in enumerate(transform.filter.wildcards, 1) if position in cut]


def computes_with(transform: Transform, positions: Iterable[int]) -> Iterator[int]:
    """Those of some tokens of subjects of which a function makes another text."""
    known = sorted(positions)
    for token in transform.tokens:
        if isinstance(token, Literal | Wildcard | Tail | Random):
            continue
        # A `partition()` without positions reads the whole subject.
        reads = token.reads or range(len(transform.filter.tokens))
        is_open = not token.reads and transform.filter.is_open
        yield from (place for place in known if place in reads or is_open)


def stays(transform: Transform, *steps: Sequence[Transform]) -> bool:
    """Whether the results of a transform come to the names that its subjects come to without it.

    Args:
        transform: renames subjects.
        steps: what then applies to both in turn: of several transforms the first that matches.
    """
    old: Symbols | None = symbols_of(transform.source)
    new: Symbols | None = results(transform)
    for alternatives in steps:
        old, new = _through(old, alternatives), _through(new, alternatives)
    # Of a text that is computed nobody knows whether it is the same.
    known = all(isinstance(symbol, str) or symbol.position is not None for symbol in new or ())
    return known and old is not None and old == new


def _through(given: Symbols | None, alternatives: Sequence[Transform]) -> Symbols | None:
    for transform in alternatives:
        if given is not None and collide(transform.source, filter_of(given)):
            return applied(transform, given)
    return given


def between(before: Symbols | None, after: Symbols | None) -> tuple[str, str] | None:
    """The source and destination of a transform from some subjects to others; None without one.

    Args:
        before, after: what becomes of the same published subjects.
    """
    if before is None or after is None:
        return None
    numbers: dict[int | None, str] = {}
    source: list[str] = []
    for symbol in before:
        if is_cut(symbol):
            return None
        source.append(filter_of((symbol,)))
        if source[-1] == ANY_TOKEN and isinstance(symbol, Symbol) and symbol.position is not None:
            numbers.setdefault(symbol.position, f"${source.count(ANY_TOKEN)}")
    destination: list[str | None] = [
        s if isinstance(s, str) else ANY_TAIL if s.most > 1 else numbers.get(s.position)
        for s in after
    ]
    if any(map(is_cut, after)) or None in destination:
        return None
    if (source[-1] == ANY_TAIL) != (destination[-1] == ANY_TAIL):
        return None
    return SEPARATOR.join(source), SEPARATOR.join(filter(None, destination))


def ways_back(transform: Transform) -> Iterator[Mapping]:
    """The mappings from the results of a transform back to its subjects, one for each length.

    This undoes more than `Transform.reverse`: it drops partitions, random numbers and pieces of
    tokens, and a wildcard may be used twice. A wildcard that the destination leaves out, or has
    only in pieces, cannot be restored: mappings cut tokens and never join them.

    Where the source ends in `>`, a result may fit mappings of several lengths. One of them gives
    its subject back, but only the subjects show whether it is the one that the server takes.
    """
    symbols = results(transform)
    lengths: list[Sequence[int]] = [range(1, s.most + 1) if is_cut(s) else (1,) for s in symbols]
    if prod(map(len, lengths)) > _MOST_MAPPINGS:
        return
    for sizes in product(*lengths):
        pieces = chain.from_iterable(
            [Symbol()] * size if is_cut(symbol) else [symbol]
            for symbol, size in zip(symbols, sizes, strict=True)
        )
        pair = between(tuple(pieces), symbols_of(transform.source))
        if pair is None:
            return
        try:
            yield Mapping(pair[0], [Destination(pair[1])])
        except (InvalidMapping, InvalidTransform):
            continue  # a literal of the source reads as something else in a destination


def reversed_mappings(mappings: Iterable[Mapping]) -> AccountMappings:
    """The mappings that undo others, as far as they can be undone.

    Only the subjects show whether these give every subject back, because one reversed mapping may
    also cover results of another mapping.
    """
    by_source: dict[str, Mapping] = {}
    for mapping in mappings:
        for transform in mapping.transforms:
            for backward in ways_back(transform):
                by_source.setdefault(backward.source, backward)
        # Messages that no weight covers keep their subjects, so there is nothing to undo.
    return AccountMappings(list(by_source.values()))
