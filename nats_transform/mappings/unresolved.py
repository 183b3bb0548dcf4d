"""Subjects in which `random()` stands as it is written, because each number is equally likely."""

from __future__ import annotations

import re

_RANDOM = re.compile(r"\{\{random\((-?\d+)\)\}\}")


def may_be(unresolved: str, subject: str) -> bool:
    """Whether a subject is an unresolved one with some number for each `random()`.

    Examples:
        >>> may_be("a.{{random(3)}}", "a.2"), may_be("a.{{random(3)}}", "a.3")
        (True, False)
        >>> may_be("a.{{random(-3)}}", "a.2"), may_be("a.{{random(0)}}", "a.1")
        (True, False)
    """
    if unresolved == subject:
        return True
    fixed = _RANDOM.split(unresolved)
    if len(fixed) == 1:
        return False
    counts = [int(count) for count in fixed[1::2]]
    pattern = "(0|[1-9][0-9]{0,9})".join(map(re.escape, fixed[::2]))
    match = re.fullmatch(pattern, subject, re.DOTALL)
    return match is not None and all(
        int(number) < max(abs(count), 1)
        for number, count in zip(match.groups(), counts, strict=True)
    )
