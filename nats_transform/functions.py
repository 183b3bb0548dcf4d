"""The tokens of a destination: literals and mapping functions.

Each is one small immutable type with its arguments named. `parse_token` reads one as nats-server
does (`indexPlaceHolders` in `server/subject_transform.go`); `evaluate` gives its text for the
tokens of a subject; `nats_transform.spark` compiles the same values to Columns.

A `position` is the 0-based place of a token in the subject. Offsets and sizes count bytes of the
token's UTF-8 form, as the server does (ADR-30 says characters), so a character can be cut in two.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias, TypeVar

from nats_transform.draw import random_of
from nats_transform.errors import (
    IndexOutOfRange,
    InvalidArgument,
    InvalidTransform,
    UnknownFunction,
    WrongArgumentCount,
)
from nats_transform.subject import SEPARATOR, decode, encode

_INT32_MAX = 2**31 - 1
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Literal:
    """A token that stands in the result as it is written."""

    text: str

    def evaluate(self, tokens: Sequence[str], entropy: int | None) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Tail:
    """The `>` of a destination: all tokens from the source's `>` on."""

    position: int

    def evaluate(self, tokens: Sequence[str], entropy: int | None) -> str:
        return SEPARATOR.join(tokens[self.position :])


@dataclass(frozen=True, slots=True)
class Wildcard:
    """`{{wildcard(n)}}` or `$n`: a token of the subject."""

    position: int

    def evaluate(self, tokens: Sequence[str], entropy: int | None) -> str:
        return tokens[self.position]


@dataclass(frozen=True, slots=True)
class Partition:
    """`{{partition(count, ...)}}`: FNV-1a of a key, modulo `count`.

    Attributes:
        count: number of partitions, 0 to 2**32 - 1; 0 gives partition 0.
        positions: the tokens joined without a separator into the key; none at all stands for the
            whole subject, dots included.
    """

    count: int
    positions: tuple[int, ...] = ()

    def evaluate(self, tokens: Sequence[str], entropy: int | None) -> str:
        if not self.count:
            return "0"
        if self.positions:
            key = "".join([tokens[position] for position in self.positions])
        else:
            key = SEPARATOR.join(tokens)
        return str(fnv1a(encode(key)) % self.count)


@dataclass(frozen=True, slots=True)
class Split:
    """`{{split(n, delimiter)}}`: a token cut at each delimiter, empty parts dropped.

    One corner is kept from the server: two or more leading delimiters leave one empty token.
    """

    position: int
    delimiter: str

    def evaluate(self, tokens: Sequence[str], entropy: int | None) -> str:
        token = tokens[self.position]
        if not self.delimiter:
            return SEPARATOR.join(token)
        # A delimiter that is not UTF-8 can stand inside a character: look at bytes.
        return _by_byte(token, self._split, _latin(self.delimiter))

    @staticmethod
    def _split(token: str, delimiter: str) -> str:
        parts = token.split(delimiter)
        text = SEPARATOR.join([part for part in parts if part])
        return f"{SEPARATOR}{text}" if text and len(parts) > 2 and not any(parts[:2]) else text


@dataclass(frozen=True, slots=True)
class SplitFromLeft:
    """`{{splitfromleft(n, offset)}}`: a token cut in two, `offset` bytes from its left."""

    position: int
    offset: int

    def evaluate(self, tokens: Sequence[str], entropy: int | None) -> str:
        return _by_byte(tokens[self.position], self._split, self.offset)

    @staticmethod
    def _split(token: str, offset: int) -> str:
        return f"{token[:offset]}.{token[offset:]}" if 0 < offset < len(token) else token


@dataclass(frozen=True, slots=True)
class SplitFromRight:
    """`{{splitfromright(n, offset)}}`: a token cut in two, `offset` bytes from its right."""

    position: int
    offset: int

    def evaluate(self, tokens: Sequence[str], entropy: int | None) -> str:
        return _by_byte(tokens[self.position], self._split, self.offset)

    @staticmethod
    def _split(token: str, offset: int) -> str:
        return f"{token[:-offset]}.{token[-offset:]}" if 0 < offset < len(token) else token


@dataclass(frozen=True, slots=True)
class SliceFromLeft:
    """`{{slicefromleft(n, size)}}`: a token cut every `size` bytes, the short piece last."""

    position: int
    size: int

    def evaluate(self, tokens: Sequence[str], entropy: int | None) -> str:
        return _by_byte(tokens[self.position], self._slice, self.size)

    @staticmethod
    def _slice(token: str, size: int) -> str:
        if not 0 < size < len(token):
            return token
        return SEPARATOR.join([token[i : i + size] for i in range(0, len(token), size)])


@dataclass(frozen=True, slots=True)
class SliceFromRight:
    """`{{slicefromright(n, size)}}`: a token cut every `size` bytes, the short piece first."""

    position: int
    size: int

    def evaluate(self, tokens: Sequence[str], entropy: int | None) -> str:
        return _by_byte(tokens[self.position], self._slice, self.size)

    @staticmethod
    def _slice(token: str, size: int) -> str:
        if not 0 < size < len(token):
            return token
        short = len(token) % size
        slices = [token[i : i + size] for i in range(short, len(token), size)]
        return SEPARATOR.join([token[:short], *slices] if short else slices)


@dataclass(frozen=True, slots=True)
class Left:
    """`{{left(n, size)}}`: the first `size` bytes of a token; all of it if it is shorter."""

    position: int
    size: int

    def evaluate(self, tokens: Sequence[str], entropy: int | None) -> str:
        return _by_byte(tokens[self.position], self._cut, self.size)

    @staticmethod
    def _cut(token: str, size: int) -> str:
        return token[:size] if 0 < size < len(token) else token


@dataclass(frozen=True, slots=True)
class Right:
    """`{{right(n, size)}}`: the last `size` bytes of a token; all of it if it is shorter."""

    position: int
    size: int

    def evaluate(self, tokens: Sequence[str], entropy: int | None) -> str:
        return _by_byte(tokens[self.position], self._cut, self.size)

    @staticmethod
    def _cut(token: str, size: int) -> str:
        return token[-size:] if 0 < size < len(token) else token


@dataclass(frozen=True, slots=True)
class Random:
    """`{{random(count)}}`: a number from 0 to count - 1 for each message.

    Attributes:
        count: how many numbers; 0 gives 0.
        slot: 0-based position in the destination, so that two functions draw apart.
    """

    count: int
    slot: int

    def evaluate(self, tokens: Sequence[str], entropy: int | None) -> str:
        if entropy is None:
            return f"{{{{random({self.count})}}}}"
        return str(random_of(entropy, self.slot, self.count))


MappingFunction: TypeAlias = (
    Wildcard
    | Partition
    | Split
    | SplitFromLeft
    | SplitFromRight
    | SliceFromLeft
    | SliceFromRight
    | Left
    | Right
    | Random
)
Token: TypeAlias = Literal | Tail | MappingFunction

_Sized: TypeAlias = SplitFromLeft | SplitFromRight | SliceFromLeft | SliceFromRight | Left | Right
_SIZED: dict[str, Callable[[int, int], _Sized]] = {
    "splitfromleft": SplitFromLeft,
    "splitfromright": SplitFromRight,
    "slicefromleft": SliceFromLeft,
    "slicefromright": SliceFromRight,
    "right": Right,
    "left": Left,
}

# In the order in which the server tries them. Blanks are those of Go's \s.
_PATTERNS = [
    (name, re.compile(rf"{{{{[\t\n\f\r ]*{spelling}[\t\n\f\r ]*\((.*)\)[\t\n\f\r ]*}}}}"))
    for name, spelling in [
        ("wildcard", "[wW]ildcard"),
        ("partition", "[pP]artition"),
        ("splitfromleft", "[sS]plit[fF]rom[lL]eft"),
        ("splitfromright", "[sS]plit[fF]rom[rR]ight"),
        ("slicefromleft", "[sS]lice[fF]rom[lL]eft"),
        ("slicefromright", "[sS]lice[fF]rom[rR]ight"),
        ("right", "[rR]ight"),
        ("left", "[lL]eft"),
        ("split", "[sS]plit"),
        ("random", "[rR]andom"),
    ]
]
_COMMA = re.compile(r",[\t\n\f\r ]*")
_INTEGER = re.compile(r"[+-]?[0-9]+")


class Refused(Exception):
    """A token that the server refuses; `Transform` turns it into the error the user sees."""

    def __init__(self, error: type[InvalidTransform], detail: str = "") -> None:
        self.error = error
        self.detail = detail
        super().__init__(detail)


def looks_like_function(token: str) -> bool:
    """Whether the server reads a destination token as `{{...}}` and not as literal text."""
    return len(token) > 4 and token.startswith("{{") and token.endswith("}}")


def parse_token(token: str, slot: int, wildcards: Sequence[int] | None) -> Token:
    """One destination token as the server reads it; `>` is the caller's.

    Args:
        token: the text between two dots.
        slot: 0-based position of the token in the destination.
        wildcards: 0-based positions of the `*` tokens of the source, or None if the source has
            no wildcard at all: then only `partition`, its indexes ignored, and `random` may stand.

    Raises:
        Refused: with the error class of the rule that is broken.
    """
    if token.startswith("$") and len(token) > 1:
        index = _integer_or_none(token[1:])
        # Other things rely on tokens that start with `$`: they are literal text.
        return Literal(token) if index is None else Wildcard(_position(index, wildcards))
    if not looks_like_function(token):
        return Literal(token)
    for name, pattern in _PATTERNS:
        if found := pattern.search(token):
            return _build(name, _COMMA.split(found[1]), slot, wildcards)
    raise Refused(UnknownFunction)


def is_placeholder(token: str) -> bool:
    """Whether the way back of an import takes a token for the place of a wildcard.

    Looser than `parse_token`: the server's `transformUntokenize` looks at the start of a `$n` and
    anywhere for a `wildcard()`.
    """
    if len(token) > 1 and token[0] == "$" and token[1] in "123456789":
        return True
    found = _PATTERNS[0][1].search(token)
    return found is not None and found[1] != "" and not _COMMA.search(found[1])


def _build(name: str, arguments: list[str], slot: int, wildcards: Sequence[int] | None) -> Token:
    match name:
        case "wildcard":
            _expect(arguments, 1)
            if arguments == [""]:
                raise Refused(WrongArgumentCount, "an index is missing")
            return Wildcard(_position(_integer(arguments[0]), wildcards))
        case "partition":
            count = _int32(arguments[0])
            indexes = [_integer(argument) for argument in arguments[1:]]
            if wildcards is None:
                indexes = []
            positions = tuple(_position(index, wildcards) for index in indexes)
            return Partition(count % 2**32, positions)
        case "random":
            _expect(arguments, 1)
            return Random(_int32(arguments[0]), slot)
        case "split":
            _expect(arguments, 2)
            index = _integer(arguments[0])
            if " " in arguments[1]:
                raise Refused(InvalidArgument, "a delimiter cannot hold a blank")
            return Split(_position(index, wildcards), arguments[1])
        case _:
            _expect(arguments, 2)
            index, size = _integer(arguments[0]), _integer(arguments[1])
            if not -(2**31) <= size <= _INT32_MAX:
                raise Refused(InvalidArgument, "a size must fit in 32 bits")
            return _SIZED[name](_position(index, wildcards), size)


def _position(index: int, wildcards: Sequence[int] | None) -> int:
    if wildcards is None:
        raise Refused(IndexOutOfRange, "the source has no wildcard")
    if index > len(wildcards):
        raise Refused(IndexOutOfRange, f"{index} of {len(wildcards)}")
    # The server looks an index of 0 or below up in a Go map, which answers 0: the first token.
    return wildcards[index - 1] if index > 0 else 0


def _expect(arguments: list[str], count: int) -> None:
    if len(arguments) != count:
        raise Refused(WrongArgumentCount, f"{len(arguments)} given, {count} wanted")


def _integer(text: str) -> int:
    number = _integer_or_none(text.strip(" "))
    if number is None:
        raise Refused(InvalidArgument, "not a whole number")
    return number


def _integer_or_none(text: str) -> int | None:
    # Go's strconv.Atoi: no underscore, no Unicode digit, 64 bits.
    if not _INTEGER.fullmatch(text):
        return None
    digits = text.lstrip("+-").lstrip("0") or "0"
    if len(digits) > 19:
        return None
    number = -int(digits) if text.startswith("-") else int(digits)
    return number if -(2**63) <= number < 2**63 else None


def _int32(text: str) -> int:
    number = _integer(text)
    if number > _INT32_MAX:
        raise Refused(InvalidArgument, "a count must fit in 32 bits")
    # Go's int32(n) keeps the low 32 bits of a number far below zero.
    return (number + 2**31) % 2**32 - 2**31


@lru_cache(maxsize=2**16)  # keys come again and again, and a loop over bytes is slow
def fnv1a(data: bytes) -> int:
    """The 32-bit FNV-1a hash of some bytes, as Go's hash/fnv computes it."""
    value = 2166136261
    for byte in data:
        value = ((value ^ byte) * 16777619) & 0xFFFFFFFF
    return value


def _by_byte(token: str, cut: Callable[[str, _T], str], argument: _T) -> str:
    """What `cut` makes of a token that it sees as one character a byte."""
    if token.isascii():
        return cut(token, argument)
    return decode(cut(_latin(token), argument).encode("latin-1"))


def _latin(text: str) -> str:
    return text if text.isascii() else encode(text).decode("latin-1")
