"""Subjects in which `random()` stands as it is written, because each number is equally likely."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from itertools import islice, product
from math import prod

from nats_transform.mappings.arguments import integer_or_none
from nats_transform.mappings.subject import SEPARATOR

MOST_NUMBERS = 64
"""Up to this many subjects are looked at one by one."""

_MOST_NAMED = 4096
# Of 32 bits, as mappings write it; publishers can write longer ones.
_RANDOM = re.compile(r"\{\{random\((-?[0-9]{1,10})\)\}\}")


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


def numbered(unresolved: str, names: Collection[str]) -> list[str]:
    """The subjects that an unresolved one stands for.

    If there are more than `MOST_NUMBERS`, those with the numbers that filters name, and with one
    that none names: no filter tells the others apart.

    Args:
        unresolved: the subject, in which each `random()` is a token.
        names: the tokens of the filters.

    Examples:
        >>> numbered("a.{{random(3)}}", ())
        ['a.0', 'a.1', 'a.2']
        >>> numbered("a.{{random(100)}}", ["a", "0", "7", "100"])
        ['a.0', 'a.7', 'a.1']
    """
    choices: list[Sequence[object]] = []
    for token in unresolved.split(SEPARATOR):
        match = _RANDOM.fullmatch(token)
        choices.append(range(max(abs(int(match[1])), 1)) if match else [token])
    if prod(map(len, choices)) > MOST_NUMBERS:
        known = {n for name in names if (n := integer_or_none(name)) is not None and str(n) == name}
        choices = [
            [*sorted(n for n in known if n in c), *islice((n for n in c if n not in known), 1)]
            if isinstance(c, range)
            else c
            for c in choices
        ]
    return [SEPARATOR.join(map(str, one)) for one in islice(product(*choices), _MOST_NAMED)]
