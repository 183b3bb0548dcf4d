"""The subjects that a destination can make, as a regular expression.

With it an audit finds out from the subject of a message which destinations can have made it. The
expressions are for Python's `re`; the caller anchors them. They look at subjects as Latin-1 text
with one character for each byte (`view`), because mapping functions count bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from nats_transform.mappings.functions import (
    Left,
    Literal,
    OfTokenAndSize,
    Partition,
    Random,
    Right,
    SliceFromLeft,
    SliceFromRight,
    Split,
    SplitFromLeft,
    SplitFromRight,
    Tail,
    Token,
    Wildcard,
)
from nats_transform.mappings.subject import ANY_TAIL, ANY_TOKEN, SEPARATOR, Filter, encode
from nats_transform.mappings.symbolic import Symbol, filter_of_results, results
from nats_transform.mappings.transform import Transform

_BYTE = "[^.]"
_TOKEN = f"{_BYTE}+"
_DOT = r"\."
_TOKENS = f"{_TOKEN}(?:{_DOT}{_TOKEN})*"
# One character of UTF-8, or a byte that is none.
_CHARACTER = r"(?:[^.\x80-\xff]|[\xc2-\xf4][\x80-\xbf]{1,3}|[\x80-\xff])"


@dataclass(frozen=True, slots=True)
class Shape:
    """The form that all subjects of a destination have.

    Attributes:
        pattern: a pattern that the whole `view` of each subject matches. It may match a few others.
        filter: a filter that covers all the subjects.
        is_filter: whether the filter says as much as the pattern.
        places: the 0-based place in the result of each wildcard of the source, by its number from 1
            on. Only wildcards that are whole and at a fixed place are listed.
    """

    pattern: str
    filter: str
    is_filter: bool
    places: dict[int, int]

    def fits(self, subject: str) -> bool:
        """Whether the destination can have made this subject."""
        return re.fullmatch(self.pattern, view(subject), re.DOTALL) is not None


def view(subject: str) -> str:
    """A subject as Latin-1 text with one character for each byte."""
    return encode(subject).decode("latin-1")


def shape_of(transform: Transform) -> Shape:
    """The shape of the results of a transform."""
    shaper = _Shaper(transform.filter)
    parts = [shaper.part(token) for token in transform.tokens]
    says_all = [
        isinstance(token, Literal) or part in (_TOKEN, f"({_TOKEN})")
        for token, part in zip(transform.tokens, parts, strict=True)
    ]
    is_filter = all(says_all[:-1]) and (says_all[-1] or parts[-1] == _TOKENS)
    return Shape(
        _DOT.join(parts), filter_of_results(transform), is_filter, dict(_places(transform))
    )


def shape_of_filter(filter: str) -> Shape:
    """The shape of the subjects that a filter covers."""
    tokens = [ANY_TOKEN if t.startswith(ANY_TOKEN) else t for t in filter.split(SEPARATOR)]
    words = {ANY_TAIL: _TOKENS, ANY_TOKEN: _TOKEN}
    pattern = _DOT.join(words.get(token) or _text(token) for token in tokens)
    return Shape(pattern, SEPARATOR.join(tokens), True, {})


class _Shaper:
    """Makes the pattern of one destination. A wildcard that is used twice must have one text."""

    def __init__(self, source: Filter) -> None:
        self._source = source
        self._groups: dict[int, int] = {}

    def part(self, token: Token) -> str:
        match token:
            case Literal(text):
                return _text(text)
            case Tail():
                return _TOKENS
            case Wildcard(position):
                return self._wildcard(position)
            case Partition(count):
                return _below(count)
            case Random(count):
                return _below(abs(count))
            case Split(_, delimiter):
                return _split(view(delimiter))
            case SplitFromLeft(_, offset) if offset > 0:
                return f"(?:{_BYTE}{{{offset}}}{_DOT}{_TOKEN}|{_up_to(offset)})"
            case SplitFromRight(_, offset) if offset > 0:
                return f"(?:{_TOKEN}{_DOT}{_BYTE}{{{offset}}}|{_up_to(offset)})"
            case SliceFromLeft(_, size) if size > 0:
                return f"(?:{_BYTE}{{{size}}}{_DOT})*{_up_to(size)}"
            case SliceFromRight(_, size) if size > 0:
                return f"{_up_to(size)}(?:{_DOT}{_BYTE}{{{size}}})*"
            case Left(_, size) | Right(_, size) if size > 0:
                return _up_to(size)
        if isinstance(token, OfTokenAndSize) and token.leaves_whole:
            return _TOKEN
        # Of a function without a line above only its trait is known, which is enough.
        return _TOKEN if token.makes_one_token else _TOKENS

    def _wildcard(self, position: int) -> str:
        source = self._source.tokens[position]
        if not source.startswith(ANY_TOKEN):
            return _text(source)  # an index of 0 or below: the first token, whatever it is
        if position in self._groups:
            return rf"(?:\{self._groups[position]})"
        self._groups[position] = len(self._groups) + 1
        return f"({_TOKEN})"


def _places(transform: Transform) -> Iterator[tuple[int, int]]:
    for place, symbol in enumerate(results(transform)):
        if isinstance(symbol, Symbol) and symbol.most > 1:
            return  # how many tokens it is depends on the subject
        if isinstance(symbol, Symbol) and symbol.position in transform.filter.wildcards:
            yield transform.filter.wildcards.index(symbol.position) + 1, place


def _text(text: str) -> str:
    """The pattern of literal text. Only special characters are escaped, as Python and RE2 agree."""
    return re.sub(r"([^A-Za-z0-9_\x80-\xff])", r"\\\1", view(text))


def _up_to(size: int) -> str:
    return f"{_BYTE}{{1,{size}}}"


def _split(delimiter: str) -> str:
    """One or more parts, none of which holds the delimiter."""
    if not delimiter:
        return f"{_CHARACTER}(?:{_DOT}{_CHARACTER})*"
    part = f"(?:(?!{_text(delimiter)}){_BYTE})+"
    return f"{part}(?:{_DOT}{part})*"


def _below(count: int) -> str:
    """The whole numbers from 0 to count - 1, without leading zeros."""
    if count <= 1:
        return "0"
    digits = str(count - 1)
    ranges: list[str] = ["[1-9]" + "[0-9]" * (n - 1) for n in range(2, len(digits))]
    if len(digits) > 1:
        ranges.insert(0, "[0-9]")
    for place, digit in enumerate(digits):
        lowest = 1 if place == 0 and len(digits) > 1 else 0
        highest = int(digit) - (place < len(digits) - 1)
        if highest >= lowest:
            rest = len(digits) - place - 1
            ranges.append(f"{digits[:place]}[{lowest}-{highest}]" + "[0-9]" * rest)
    return f"(?:{'|'.join(ranges)})"
