"""Subjects that may be any bytes, in Spark, whose string functions keep UTF-8 only.

A subject that is not UTF-8 is looked at as Latin-1 text, one character a byte, and turned back at
the end. If the mappings hold text that is not ASCII, all subjects are, so that both look the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from pyspark.sql import Column
from pyspark.sql import functions as F

from nats_transform.functions import (
    Left,
    Right,
    SliceFromLeft,
    SliceFromRight,
    Split,
    SplitFromLeft,
    SplitFromRight,
)
from nats_transform.subject import (
    ANY_TAIL,
    ANY_TOKEN,
    EMPTY_TOKEN,
    NO_SUBJECT,
    SEPARATOR,
    WILDCARD_TOKEN,
    encode,
)

# A UTF-8 sequence, or else a single byte, as Latin-1 text: what Go takes for one character.
_UTF8_CHARACTER = (
    r"[\x00-\x7f]|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]"
    r"|[\xe1-\xec\xee\xef][\x80-\xbf]{2}|\xed[\x80-\x9f][\x80-\xbf]"
    r"|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}"
    r"|\xf4[\x80-\x8f][\x80-\xbf]{2}|[\x80-\xff]"
)
_LATIN_1 = "ISO-8859-1"

Cut: TypeAlias = (
    Left | Right | Split | SplitFromLeft | SplitFromRight | SliceFromLeft | SliceFromRight
)
"""The functions that cut one token."""


@dataclass(frozen=True)
class View:
    """A subject as text that Spark's functions can be trusted with.

    Attributes:
        is_text: where the subject is its own view; elsewhere it is Latin-1.
        text: the view.
        tokens: its tokens.
        is_ascii: whether literal texts look the same in both kinds of view.
    """

    is_text: Column
    text: Column
    tokens: Column
    is_ascii: bool

    def of(self, subject: Column) -> Column:
        """The view of a subject."""
        return F.when(self.is_text, subject).otherwise(_latin1(subject.cast("binary")))

    def real(self, text: Column) -> Column:
        """The bytes of a view, as a string."""
        return F.when(self.is_text, text).otherwise(F.encode(text, _LATIN_1).cast("string"))

    def data(self, text: Column) -> Column:
        """The bytes of a view."""
        return F.when(self.is_text, text.cast("binary")).otherwise(F.encode(text, _LATIN_1))

    def text_of(self, data: Column) -> Column:
        """The view of some bytes."""
        return F.when(self.is_text, data.cast("string")).otherwise(_latin1(data))

    def literal(self, text: str) -> str:
        """What literal text looks like."""
        return text if self.is_ascii else encode(text).decode("latin-1")

    def token(self, position: int | Column) -> Column:
        """One token, 0-based."""
        return F.get(self.tokens, F.lit(position) if isinstance(position, int) else position)

    def tail(self, start: Column) -> Column:
        """The tokens from a 0-based position on."""
        count = start - F.size(self.tokens)
        return F.call_function("substring_index", self.text, F.lit(SEPARATOR), count)


def fault(subject: Column, tokens: Column) -> Column:
    """Why a subject is not a legal literal one; null if it is."""
    wildcard = F.array_contains(tokens, ANY_TOKEN) | F.array_contains(tokens, ANY_TAIL)
    return (
        F.when(subject.isNull(), NO_SUBJECT)
        .when(F.array_contains(tokens, ""), EMPTY_TOKEN)
        .when(wildcard, WILDCARD_TOKEN)
    )


def has_empty_token(text: Column) -> Column:
    """Whether two dots, or a dot and an end, stand beside each other."""
    return (
        F.contains(text, F.lit(".."))
        | F.startswith(text, F.lit("."))
        | F.endswith(text, F.lit("."))
        | (text == "")
    )


def evaluate(function: Cut, data: Column) -> Column:
    """What a function makes of the bytes of a token."""
    length, dot = F.octet_length(data), F.lit(SEPARATOR.encode())
    match function:
        case Left(_, size):
            return F.substring(data, 1, size)
        case Right(_, size):
            cut = F.substring(data, -size, size)
        case SplitFromLeft(_, size):
            cut = F.overlay(data, dot, size + 1, 0)
        case SplitFromRight(_, size):
            cut = F.overlay(data, dot, length - size + 1, F.lit(0))
        case SliceFromLeft(_, size):
            cut = F.encode(_slices(_latin1(data), size), _LATIN_1)
        case SliceFromRight(_, size):
            first = F.pmod(length - 1, F.lit(size)) + 1
            rest = _slices(_latin1(F.substring(data, first + 1, length)), size)
            cut = F.concat(F.substring(data, F.lit(1), first), dot, F.encode(rest, _LATIN_1))
        case Split(_, delimiter):
            parts = _split(_latin1(data), encode(delimiter).decode("latin-1"))
            return F.encode(parts, _LATIN_1)
    return F.when(length > size, cut).otherwise(data)


def _latin1(data: Column) -> Column:
    """Bytes as text, one character a byte, for functions that know only text."""
    return F.decode(data, _LATIN_1)


def _slices(text: Column, size: int) -> Column:
    return F.regexp_replace(text, f"(?s)(.{{{size}}})(?=.)", "$1.")


def _split(text: Column, delimiter: str) -> Column:
    if not delimiter:
        # \G and atomic: no character, the last one neither, is to be tried from within.
        return F.regexp_replace(text, rf"(?s)\G((?>{_UTF8_CHARACTER}))(?=.)", "$1.")
    parts = F.split(text, _quoted(delimiter), -1)
    joined = F.array_join(F.array_remove(parts, ""), SEPARATOR)
    leads = F.startswith(text, F.lit(delimiter * 2)) & (joined != "")
    return F.when(leads, F.concat(F.lit(SEPARATOR), joined)).otherwise(joined)


def _quoted(text: str) -> str:
    """A regular expression that matches this Latin-1 text and nothing else."""
    return "".join(c if c.isalnum() or ord(c) > 0x7F else "\\" + c for c in text)
