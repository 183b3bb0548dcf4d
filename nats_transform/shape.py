"""The subjects that a destination can make, as a regular expression.

With it an audit finds, from the subject of a message alone, which destinations can have made it.
The expressions hold for Python's `re` and for Java's, anchored by the caller, and look at subjects
as Latin-1 text, one character a byte (`view`), because mapping functions count bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from nats_transform.functions import (
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
from nats_transform.subject import ANY_TAIL, ANY_TOKEN, SEPARATOR, Filter, encode
from nats_transform.transform import Transform

_BYTE = "[^.]"
_TOKEN = f"{_BYTE}+"
_DOT = r"\."
# One character of UTF-8, or a byte that is none.
_CHARACTER = r"(?:[^.\x80-\xff]|[\xc2-\xf4][\x80-\xbf]{1,3}|[\x80-\xff])"


@dataclass(frozen=True, slots=True)
class Shape:
    """What all subjects of a destination have in common.

    Attributes:
        pattern: a pattern that the whole `view` of a subject matches; perhaps a little too wide.
        prefix: the literal text that every one of them starts with, as in the `view`.
        filter: a filter that covers all of them.
        rest: how many tokens follow the prefix, if they are any tokens at all; -1 for one or
            more; None if there are further conditions, which the pattern has.
        places: 0-based place of each wildcard of the source, by its number from 1 on, for those
            that stand in the result whole and at a fixed place.
    """

    pattern: str
    prefix: str
    filter: str
    rest: int | None
    places: dict[int, int]

    def fits(self, subject: str) -> bool:
        """Whether the destination can have made this subject."""
        return re.fullmatch(self.pattern, view(subject), re.DOTALL) is not None


def view(subject: str) -> str:
    """A subject as Latin-1 text: one character a byte."""
    return encode(subject).decode("latin-1")


def shape_of(transform: Transform) -> Shape:
    """The shape of what a transform makes."""
    shaper = _Shaper(transform.filter)
    parts = [shaper.part(token) for token in transform.tokens]
    literals = []
    for token in transform.tokens:
        if not isinstance(token, Literal):
            break
        literals.append(token.text)
    return Shape(
        _DOT.join(parts),
        _prefix(literals, len(parts)),
        transform.filter_of_results,
        _rest(parts[len(literals) :]),
        dict(_places(transform)),
    )


def shape_of_filter(filter: str) -> Shape:
    """The shape of the subjects that a filter covers."""
    tokens = filter.split(SEPARATOR)
    literals = list(takewhile(lambda t: t != ANY_TAIL and not t.startswith(ANY_TOKEN), tokens))
    parts = [
        _tokens() if token == ANY_TAIL else _TOKEN if token.startswith(ANY_TOKEN) else _text(token)
        for token in tokens
    ]
    return Shape(
        _DOT.join(parts), _prefix(literals, len(tokens)), filter, _rest(parts[len(literals) :]), {}
    )


def _rest(parts: Sequence[str]) -> int | None:
    """How many tokens some parts of a pattern stand for, if they are any tokens at all."""
    if list(parts) == [_tokens()]:
        return -1
    return len(parts) if all(part in (_TOKEN, f"({_TOKEN})") for part in parts) else None


def _prefix(literals: Sequence[str], tokens: int) -> str:
    """The literal tokens that a subject of so many starts with, and the dot after them."""
    complete = len(literals) == tokens
    return view(SEPARATOR.join(literals) + ("" if complete or not literals else SEPARATOR))


class _Shaper:
    """Makes the pattern of one destination: a wildcard used again must be the same text again."""

    def __init__(self, source: Filter) -> None:
        self._source = source
        self._groups: dict[int, int] = {}

    def part(self, token: Token) -> str:
        match token:
            case Literal(text):
                return _text(text)
            case Tail():
                return _tokens()
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
        return _TOKEN if token.makes_one_token else _tokens()

    def _wildcard(self, position: int) -> str:
        source = self._source.tokens[position]
        if not source.startswith(ANY_TOKEN):
            return _text(source)  # an index of 0 or below: the first token, whatever it is
        if position in self._groups:
            return rf"(?:\{self._groups[position]})"
        self._groups[position] = len(self._groups) + 1
        return f"({_TOKEN})"


def _places(transform: Transform) -> Iterator[tuple[int, int]]:
    for place, token in enumerate(transform.tokens):
        if not token.makes_one_token:
            return  # how many tokens it makes depends on the subject
        if isinstance(token, Wildcard) and token.position in transform.filter.wildcards:
            yield transform.filter.wildcards.index(token.position) + 1, place


def _text(text: str) -> str:
    """Literal text; only what is special is escaped, so that both dialects agree."""
    return re.sub(r"([^A-Za-z0-9_\x80-\xff])", r"\\\1", view(text))


def _tokens() -> str:
    return f"{_TOKEN}(?:{_DOT}{_TOKEN})*"


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
