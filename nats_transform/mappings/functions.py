"""The tokens of a destination: literals and mapping functions.

Each kind of token is a small immutable class with named arguments and traits (`DestinationToken`).
`parse_token` reads a token as nats-server does (`indexPlaceHolders` in
`server/subject_transform.go`). `evaluate` gives its text for the tokens of a subject.
`nats_transform.kernel` makes tables from the same values. To add a function, add a class here and
list it in `_FUNCTIONS`.

A `position` is the 0-based place of a token in the subject. Offsets and sizes count bytes of the
token's UTF-8 form, as the server does (ADR-30 says characters), so a character can be cut in two.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, TypeAlias, TypeVar, cast

from nats_transform.errors import InvalidArgument, UnknownFunction, WrongArgumentCount
from nats_transform.mappings.arguments import (
    Refused,
    expect,
    int32,
    integer,
    integer_or_none,
    position_of,
)
from nats_transform.mappings.draw import random_of
from nats_transform.mappings.subject import SEPARATOR, decode, encode

_T = TypeVar("_T")


class DestinationToken:
    """A token of a destination. The traits have the values that most classes need.

    Not an `ABC`: that would make every `isinstance` of a token ten times as slow.
    """

    __slots__ = ()

    makes_one_token: ClassVar[bool] = True
    """Whether the result is exactly one token, whatever the subject is."""

    @property
    def reads(self) -> tuple[int, ...]:
        """The 0-based positions of the subject's tokens that the result depends on.

        Empty if the result depends on no token, or on the whole subject.
        """
        return ()

    @property
    def keeps_token(self) -> bool:
        """Whether the result has the whole text of the token that it reads."""
        return False

    def evaluate(self, tokens: Sequence[str], entropy: int | None) -> str:
        """The text in the result.

        Args:
            tokens: the tokens of the subject.
            entropy: 64 bits that decide each `random()`; None leaves it as it is written.
        """
        raise NotImplementedError


class MappingFunction(DestinationToken):
    """A function as people write it in a destination.

    Attributes:
        spelling: a regular expression of the names that nats-server accepts for it.
    """

    __slots__ = ()

    spelling: ClassVar[str]

    @classmethod
    def read(cls, arguments: list[str], slot: int, wildcards: Sequence[int] | None) -> Token:
        """The function with the arguments that `parse_token` found.

        Raises:
            Refused: with the error class of the rule that is broken.
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class OfToken(MappingFunction):
    """A function of one token of the subject."""

    position: int

    @property
    def reads(self) -> tuple[int, ...]:
        return (self.position,)


@dataclass(frozen=True, slots=True)
class OfTokenAndSize(OfToken):
    """A function of one token and a number of bytes; 0 or below leaves the token whole."""

    size: int

    @property
    def leaves_whole(self) -> bool:
        """Whether the function leaves every token as it is, because the number is 0 or below."""
        return self.size <= 0

    @property
    def keeps_token(self) -> bool:
        return self.leaves_whole or not self.makes_one_token

    @classmethod
    def read(cls, arguments: list[str], slot: int, wildcards: Sequence[int] | None) -> Token:
        expect(arguments, 2)
        index, size = integer(arguments[0]), integer(arguments[1])
        if not -(2**31) <= size < 2**31:
            raise Refused(InvalidArgument, "size-over-32-bits")
        build = cast("Callable[[int, int], Token]", cls)
        return build(position_of(index, wildcards), size)

    def evaluate(self, tokens: Sequence[str], entropy: int | None) -> str:
        return _by_byte(tokens[self.position], self._made, self.size)

    @classmethod
    def _made(cls, token: str, size: int) -> str:
        return cls._cut(token, size) if 0 < size < len(token) else token

    @staticmethod
    def _cut(token: str, size: int) -> str:
        """The result for a token that is longer than the size, which is above 0."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Literal(DestinationToken):
    """A token that is copied into the result."""

    text: str

    def evaluate(self, tokens: Sequence[str], entropy: int | None) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Tail(DestinationToken):
    """The `>` of a destination: all tokens from the source's `>` on."""

    makes_one_token = False

    position: int

    def evaluate(self, tokens: Sequence[str], entropy: int | None) -> str:
        return SEPARATOR.join(tokens[self.position :])


@dataclass(frozen=True, slots=True)
class Wildcard(OfToken):
    """`{{wildcard(n)}}` or `$n`: a token of the subject."""

    spelling = "[wW]ildcard"

    @property
    def keeps_token(self) -> bool:
        return True

    @classmethod
    def read(cls, arguments: list[str], slot: int, wildcards: Sequence[int] | None) -> Token:
        expect(arguments, 1)
        if arguments == [""]:
            raise Refused(WrongArgumentCount, "index-missing")
        return cls(position_of(integer(arguments[0]), wildcards))

    def evaluate(self, tokens: Sequence[str], entropy: int | None) -> str:
        return tokens[self.position]


@dataclass(frozen=True, slots=True)
class Partition(MappingFunction):
    """`{{partition(count, ...)}}`: FNV-1a of a key, modulo `count`.

    Attributes:
        count: the number of partitions, 0 to 2**32 - 1; 0 gives partition 0.
        positions: the tokens that are joined without a separator to make the key; if empty, the key
            is the whole subject with its dots.
    """

    spelling = "[pP]artition"

    count: int
    positions: tuple[int, ...] = ()

    @property
    def reads(self) -> tuple[int, ...]:
        return self.positions

    def key(self, tokens: Sequence[str]) -> str:
        """The text that is hashed for the tokens of a subject."""
        if self.positions:
            return "".join([tokens[position] for position in self.positions])
        return SEPARATOR.join(tokens)

    def number(self, hash: int) -> int:
        """The partition of the 32-bit hash of a key."""
        return hash % self.count if self.count else 0

    def evaluate(self, tokens: Sequence[str], entropy: int | None) -> str:
        return str(self.number(fnv1a(encode(self.key(tokens)))))

    @classmethod
    def read(cls, arguments: list[str], slot: int, wildcards: Sequence[int] | None) -> Token:
        count = int32(arguments[0])
        indexes = [integer(argument) for argument in arguments[1:]]
        if wildcards is None:
            indexes = []
        return cls(count % 2**32, tuple(position_of(index, wildcards) for index in indexes))


@dataclass(frozen=True, slots=True)
class Split(OfToken):
    """`{{split(n, delimiter)}}`: a token cut at each delimiter, empty parts dropped.

    One corner is kept from the server: two or more leading delimiters leave one empty token.
    """

    spelling = "[sS]plit"
    makes_one_token = False

    delimiter: str

    @property
    def keeps_token(self) -> bool:
        return True

    @classmethod
    def read(cls, arguments: list[str], slot: int, wildcards: Sequence[int] | None) -> Token:
        expect(arguments, 2)
        index = integer(arguments[0])
        if " " in arguments[1]:
            raise Refused(InvalidArgument, "delimiter-has-blank")
        return cls(position_of(index, wildcards), arguments[1])

    def evaluate(self, tokens: Sequence[str], entropy: int | None) -> str:
        token = tokens[self.position]
        if not self.delimiter:
            return SEPARATOR.join(token)
        # A delimiter that is not UTF-8 can be inside a character, so this looks at bytes.
        return _by_byte(token, self._split, _latin(self.delimiter))

    @staticmethod
    def _split(token: str, delimiter: str) -> str:
        parts = token.split(delimiter)
        text = SEPARATOR.join([part for part in parts if part])
        return f"{SEPARATOR}{text}" if text and len(parts) > 2 and not any(parts[:2]) else text


@dataclass(frozen=True, slots=True)
class SplitFromLeft(OfTokenAndSize):
    """`{{splitfromleft(n, offset)}}`: a token cut in two, `offset` bytes from its left."""

    spelling = "[sS]plit[fF]rom[lL]eft"
    makes_one_token = False

    @staticmethod
    def _cut(token: str, size: int) -> str:
        return f"{token[:size]}.{token[size:]}"


@dataclass(frozen=True, slots=True)
class SplitFromRight(OfTokenAndSize):
    """`{{splitfromright(n, offset)}}`: a token cut in two, `offset` bytes from its right."""

    spelling = "[sS]plit[fF]rom[rR]ight"
    makes_one_token = False

    @staticmethod
    def _cut(token: str, size: int) -> str:
        return f"{token[:-size]}.{token[-size:]}"


@dataclass(frozen=True, slots=True)
class SliceFromLeft(OfTokenAndSize):
    """`{{slicefromleft(n, size)}}`: a token cut every `size` bytes, the short piece last."""

    spelling = "[sS]lice[fF]rom[lL]eft"
    makes_one_token = False

    @staticmethod
    def _cut(token: str, size: int) -> str:
        return SEPARATOR.join([token[i : i + size] for i in range(0, len(token), size)])


@dataclass(frozen=True, slots=True)
class SliceFromRight(OfTokenAndSize):
    """`{{slicefromright(n, size)}}`: a token cut every `size` bytes, the short piece first."""

    spelling = "[sS]lice[fF]rom[rR]ight"
    makes_one_token = False

    @staticmethod
    def _cut(token: str, size: int) -> str:
        short = len(token) % size
        slices = [token[i : i + size] for i in range(short, len(token), size)]
        return SEPARATOR.join([token[:short], *slices] if short else slices)


@dataclass(frozen=True, slots=True)
class Left(OfTokenAndSize):
    """`{{left(n, size)}}`: the first `size` bytes of a token; all of it if it is shorter."""

    spelling = "[lL]eft"

    @staticmethod
    def _cut(token: str, size: int) -> str:
        return token[:size]


@dataclass(frozen=True, slots=True)
class Right(OfTokenAndSize):
    """`{{right(n, size)}}`: the last `size` bytes of a token; all of it if it is shorter."""

    spelling = "[rR]ight"

    @staticmethod
    def _cut(token: str, size: int) -> str:
        return token[-size:]


@dataclass(frozen=True, slots=True)
class Random(MappingFunction):
    """`{{random(count)}}`: a number from 0 to count - 1 for each message.

    Attributes:
        count: how many numbers there are; 0 gives 0.
        slot: 0-based position in the destination, so that two functions draw different numbers.
    """

    spelling = "[rR]andom"

    count: int
    slot: int

    @classmethod
    def read(cls, arguments: list[str], slot: int, wildcards: Sequence[int] | None) -> Token:
        expect(arguments, 1)
        return cls(int32(arguments[0]), slot)

    def evaluate(self, tokens: Sequence[str], entropy: int | None) -> str:
        if entropy is None:
            return f"{{{{random({self.count})}}}}"
        return str(random_of(entropy, self.slot, self.count))


Token: TypeAlias = (
    Literal
    | Tail
    | Wildcard
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

_FUNCTIONS: tuple[type[MappingFunction], ...] = (
    Wildcard,
    Partition,
    SplitFromLeft,
    SplitFromRight,
    SliceFromLeft,
    SliceFromRight,
    Right,
    Left,
    Split,
    Random,
)
"""All functions, in the order in which the server tries them."""

# Blanks are those of Go's \s.
_OPENINGS = [
    (function, re.compile(rf"{{{{[\t\n\f\r ]*{function.spelling}[\t\n\f\r ]*\("))
    for function in _FUNCTIONS
]
_ARGUMENTS = re.compile(r"(.*)\)[\t\n\f\r ]*}}")
_COMMA = re.compile(r",[\t\n\f\r ]*")


def looks_like_function(token: str) -> bool:
    """Whether the server reads a destination token as `{{...}}` and not as literal text."""
    return len(token) > 4 and token.startswith("{{") and token.endswith("}}")


def parse_token(token: str, slot: int, wildcards: Sequence[int] | None) -> Token:
    """One destination token as the server reads it. The caller handles `>`.

    Args:
        token: the text between two dots.
        slot: 0-based position of the token in the destination.
        wildcards: 0-based positions of the `*` tokens of the source, or None if the source has no
            wildcard. Then only `random` and `partition`, whose indexes are ignored, are allowed.

    Raises:
        Refused: with the error class of the rule that is broken.
    """
    if token.startswith("$") and len(token) > 1:
        index = integer_or_none(token[1:])
        # Other parts of NATS rely on tokens that start with `$`, so these are literal text.
        return Literal(token) if index is None else Wildcard(position_of(index, wildcards))
    if not looks_like_function(token):
        return Literal(token)
    for function, opening in _OPENINGS:
        arguments = _arguments(opening, token)
        if arguments is not None:
            return function.read(_COMMA.split(arguments), slot, wildcards)
    raise Refused(UnknownFunction)


def is_placeholder(token: str) -> bool:
    """Whether the reverse of an import reads a token as the place of a wildcard.

    This accepts more than `parse_token`: the server's `transformUntokenize` looks only at the start
    of a `$n`, and finds a `wildcard()` anywhere in the token.
    """
    if len(token) > 1 and token[0] == "$" and token[1] in "123456789":
        return True
    arguments = _arguments(_OPENINGS[0][1], token)
    return bool(arguments and "," not in arguments)


def _arguments(opening: re.Pattern[str], token: str) -> str | None:
    """What stands in the brackets of the first function that is closed; None if none is.

    The server searches with one pattern. Here that would take quadratic time in what is not closed.
    """
    looked_at = -1
    for start in opening.finditer(token):
        if start.end() > looked_at:
            if match := _ARGUMENTS.match(token, start.end()):
                return match[1]
            # What a line has no end for, it has no end for further on. "\n" ends the arguments.
            looked_at = token.find("\n", start.end())
            if looked_at < 0:
                break
    return None


@lru_cache(maxsize=2**16)  # keys come again and again, and a loop over bytes is slow
def fnv1a(data: bytes) -> int:
    """The 32-bit FNV-1a hash of some bytes, as Go's hash/fnv computes it."""
    value = 2166136261
    for byte in data:
        value = ((value ^ byte) * 16777619) & 0xFFFFFFFF
    return value


def _by_byte(token: str, cut: Callable[[str, _T], str], argument: _T) -> str:
    """The result of `cut` on a token that is read as one character for each byte."""
    if token.isascii():
        return cut(token, argument)
    return decode(cut(_latin(token), argument).encode("latin-1"))


def _latin(text: str) -> str:
    return text if text.isascii() else encode(text).decode("latin-1")
