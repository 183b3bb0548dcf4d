"""Destinations as pieces: literal text, and what follows it.

The tokens of a destination become as few pieces as possible. Literal tokens and dots are one text.
Tokens of the subject that are neighbors in both are copied together. Functions whose arguments
leave a token as it is become a plain copy.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from nats_transform.kernel.texts import Texts
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
from nats_transform.mappings.subject import SEPARATOR

_DIGITS = 10  # of a number of 32 bits


class Function(IntEnum):
    """What follows a literal text; keep in step with transform.c."""

    NOTHING = 0
    TOKENS = 1
    TAIL = 2
    PARTITION = 3
    PARTITION_OF_ALL = 4
    RANDOM = 5
    LEFT = 6
    RIGHT = 7
    SPLIT_FROM_LEFT = 8
    SPLIT_FROM_RIGHT = 9
    SLICE_FROM_LEFT = 10
    SLICE_FROM_RIGHT = 11
    SPLIT = 12
    SPLIT_CHARACTERS = 13
    HASH = 14


_NUMBERS = (
    *(Function.NOTHING, Function.PARTITION, Function.PARTITION_OF_ALL),
    *(Function.RANDOM, Function.HASH),
)
"""These make text whose size does not grow with the subject."""
_DOUBLES = (Function.SLICE_FROM_LEFT, Function.SLICE_FROM_RIGHT, Function.SPLIT_CHARACTERS)
"""These can add a dot for each byte."""


@dataclass(frozen=True, slots=True)
class KeyHash(Partition):
    """A partition number that becomes the draw of a message, and no text of its new subject."""


@dataclass(slots=True)
class Piece:
    """Literal text, and what follows it.

    Attributes:
        text: the literal text.
        function: what follows the text.
        token: the 0-based position of the token that it reads; the first one for `TOKENS` and
            `TAIL`.
        end: for `TOKENS`, the position after the last token.
        hashed: for `PARTITION` and `HASH`, the positions of the tokens that are hashed.
        delimiter: the delimiter of `SPLIT`.
        slot: the slot of `RANDOM`.
        number: the count, offset or size.
    """

    text: str
    function: Function = Function.NOTHING
    token: int = 0
    end: int = 0
    hashed: tuple[int, ...] = ()
    delimiter: str = ""
    slot: int = 0
    number: int = 0

    @property
    def kept(self) -> int:
        """How many tokens of the subject the piece looks at."""
        if self.function in _NUMBERS:
            return max(self.hashed, default=-1) + 1
        return max(self.token + 1, self.end)

    @property
    def copies(self) -> int:
        """How many times the size of the subject the piece can add to the result, at most."""
        return 0 if self.function in _NUMBERS else 2 if self.function in _DOUBLES else 1


def pieces_of(tokens: Sequence[Token]) -> list[Piece]:
    """The pieces of a parsed destination."""
    pieces: list[Piece] = []
    text = ""
    for number, token in enumerate(tokens):
        text += SEPARATOR if number else ""
        value = _read(token)
        if isinstance(value, str):
            text += value
            continue
        last = pieces[-1] if pieces and text == SEPARATOR else None
        is_next = last is not None and last.function is Function.TOKENS and last.end == value.token
        if last is not None and is_next and value.function in (Function.TOKENS, Function.TAIL):
            last.function, last.end = value.function, value.end
        else:
            value.text = text
            pieces.append(value)
        text = ""
    return [*pieces, Piece(text)] if text else pieces


def _read(token: Token) -> str | Piece:
    match token:
        case Literal(text):
            return text
        case Partition(0) | Random(0):
            return "0"
        case Tail(position):
            return Piece("", Function.TAIL, position)
        case KeyHash(count, positions):
            return Piece("", Function.HASH, hashed=positions, number=count)
        case Partition(count, ()):
            return Piece("", Function.PARTITION_OF_ALL, number=count)
        case Partition(count, positions):
            return Piece("", Function.PARTITION, hashed=positions, number=count)
        case Random(count, slot):
            return Piece("", Function.RANDOM, slot=slot, number=abs(count))
        case Split(position, ""):
            return Piece("", Function.SPLIT_CHARACTERS, position)
        case Split(position, delimiter):
            return Piece("", Function.SPLIT, position, delimiter=delimiter)
        case OfTokenAndSize(position, size) if size > 0:
            return Piece("", _SIZED[type(token)], position, number=size)
        case Wildcard(position) | OfTokenAndSize(position):
            return Piece("", Function.TOKENS, position, position + 1)


_SIZED: dict[type[OfTokenAndSize], Function] = {
    Left: Function.LEFT,
    Right: Function.RIGHT,
    SplitFromLeft: Function.SPLIT_FROM_LEFT,
    SplitFromRight: Function.SPLIT_FROM_RIGHT,
    SliceFromLeft: Function.SLICE_FROM_LEFT,
    SliceFromRight: Function.SLICE_FROM_RIGHT,
}


class PieceTables:
    """The pieces of all destinations, as flat arrays of 32-bit numbers.

    Attributes:
        pieces: 9 numbers for each piece.
        hashed: the positions of the tokens that are hashed.
        kept: how many tokens of a subject are looked at.
    """

    def __init__(self, texts: Texts) -> None:
        self.pieces, self.hashed = array("I"), array("i")
        self.kept = 0
        self._texts = texts

    def add(self, tokens: Sequence[Token]) -> tuple[int, int, int, int]:
        """Adds a destination.

        Returns:
            The number of its first piece, the number after its last piece, and the largest size of
            a result: a number of bytes, plus a number of times the size of the subject.
        """
        first, fixed, copies = len(self.pieces) // 9, 0, 0
        for piece in pieces_of(tokens):
            text, size = self._texts.add(piece.text)
            token, end = piece.token, piece.end
            if piece.hashed:
                token = len(self.hashed)
                self.hashed.extend(piece.hashed)
                end = len(self.hashed)
            delimiter = self._texts.add(piece.delimiter)
            self.pieces.extend(
                (piece.function, token, end, text, size, *delimiter, piece.slot, piece.number)
            )
            self.kept = max(self.kept, piece.kept)
            fixed += size + _DIGITS
            copies += piece.copies
        return first, len(self.pieces) // 9, fixed, copies
