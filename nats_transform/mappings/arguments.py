"""The arguments of a mapping function, read as nats-server reads them.

Source: nats-server `indexPlaceHolders` in `server/subject_transform.go`; Go's `strconv.Atoi`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from nats_transform.errors import (
    IndexOutOfRange,
    InvalidArgument,
    InvalidTransform,
    WrongArgumentCount,
)
from nats_transform.words import plural

_INT32_MAX = 2**31 - 1
_INTEGER = re.compile(r"([+-]?)0*([0-9]{1,19})")


class Refused(Exception):
    """A token is refused. `Transform` turns this into the error that the user sees."""

    def __init__(self, error: type[InvalidTransform], detail: str = "", **fields: object) -> None:
        self.error = error
        self.detail = detail
        self.fields = fields
        super().__init__(detail)


def position_of(index: int, wildcards: Sequence[int] | None) -> int:
    """The 0-based position in the subject that an index of a wildcard stands for."""
    if wildcards is None:
        raise Refused(IndexOutOfRange, "source-without-wildcard")
    if index > len(wildcards):
        has = plural(len(wildcards), "wildcard")
        raise Refused(IndexOutOfRange, "source-wildcards", wildcards=has)
    # The server looks up an index of 0 or below in a Go map, which gives 0, the first token.
    return wildcards[index - 1] if index > 0 else 0


def expect(arguments: list[str], count: int) -> None:
    """Refuse a function that has more or fewer arguments than this."""
    if len(arguments) != count:
        raise Refused(WrongArgumentCount, "argument-count", expected=count, given=len(arguments))


def integer(text: str) -> int:
    """A whole number. Blanks around it are allowed."""
    number = integer_or_none(text.strip(" "))
    if number is None:
        raise Refused(InvalidArgument, "not-a-whole-number")
    return number


def integer_or_none(text: str) -> int | None:
    """A whole number of 64 bits, or None."""
    # Go's strconv.Atoi: no underscore, no Unicode digit, 64 bits.
    if not (match := _INTEGER.fullmatch(text)):
        return None
    number = int(match[1] + match[2])
    return number if -(2**63) <= number < 2**63 else None


def int32(text: str) -> int:
    """A count, converted to 32 bits as in Go."""
    number = integer(text)
    if number > _INT32_MAX:
        raise Refused(InvalidArgument, "count-over-32-bits")
    # Go's int32(n) keeps the low 32 bits of a number far below zero.
    return (number + 2**31) % 2**32 - 2**31
