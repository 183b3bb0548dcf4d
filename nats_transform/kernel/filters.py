"""Filters as tables, in which the kernel finds the first that covers a subject.

Filters of the same shape (length, open or not, and where they have literal tokens) differ in those
tokens only, so one look into a hash table finds the one that covers a subject. For each count of
tokens there is a list of the shapes that fit, in the order of their first rule: shapes whose first
rule is later than what is found already need no look.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise

import xxhash

from nats_transform.kernel.texts import Texts
from nats_transform.mappings.subject import ANY_TOKEN, SEPARATOR, Filter

_NO_RULE = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Pattern:
    """What a subject must look like.

    Attributes:
        tokens: those before a `>`; None stands for any token.
        is_open: whether there is a `>`.
    """

    tokens: tuple[str | None, ...]
    is_open: bool

    @classmethod
    def of_source(cls, filter: Filter) -> Pattern:
        """The source of a transform, where a token that only starts with `*` covers any token."""
        return cls._of(filter, lambda token: token.startswith(ANY_TOKEN))

    @classmethod
    def of_subscription(cls, filter: Filter) -> Pattern:
        """A filter of a subscription, where such a token covers itself alone."""
        return cls._of(filter, lambda token: token == ANY_TOKEN)

    @classmethod
    def of_subject(cls, filter: Filter) -> Pattern:
        """The one subject that reads as the filter."""
        return cls(filter.tokens, False)

    @classmethod
    def _of(cls, filter: Filter, is_any: Callable[[str], bool]) -> Pattern:
        tokens = filter.tokens[:-1] if filter.is_open else filter.tokens
        return cls(tuple(None if is_any(token) else token for token in tokens), filter.is_open)


@dataclass(frozen=True, slots=True)
class _Shape:
    """What patterns of one kind have in common.

    Attributes:
        length: how many tokens stand before a `>`.
        is_open: whether there is a `>`.
        runs: the literal tokens: from, and up to but not with, these positions.
    """

    length: int
    is_open: bool
    runs: tuple[tuple[int, int], ...]


class FilterTables:
    """`filters` of transform.c, as flat arrays of 32-bit numbers.

    Args:
        patterns: with the number of the rule that each belongs to, in ascending order.
        texts: takes the literal tokens.

    Attributes:
        shapes, runs, slots, order, starts: one array for each table.
        longest: the last count of tokens with a list of its own.
        kept: how many tokens of a subject are looked at.
    """

    def __init__(self, patterns: Iterable[tuple[Pattern, int]], texts: Texts) -> None:
        by_shape: dict[_Shape, dict[tuple[str, ...], int]] = {}
        for pattern, rule in patterns:
            shape = _shape(pattern)
            key = tuple(
                SEPARATOR.join(token or "" for token in pattern.tokens[first:end])
                for first, end in shape.runs
            )
            by_shape.setdefault(shape, {}).setdefault(key, rule)
        self.shapes, self.runs, self.slots = array("i"), array("i"), array("I")
        for shape, rules in by_shape.items():
            first_run = len(self.runs) // 2
            self.runs.extend(place for run in shape.runs for place in run)
            first_slot = len(self.slots) // 4
            mask = self._add_slots(rules, texts)
            best = min(rules.values())
            self.shapes.extend((best, first_run, len(self.runs) // 2, first_slot, mask))
        self.longest = max((shape.length for shape in by_shape), default=0) + 1
        self.kept = max((run[1] for shape in by_shape for run in shape.runs), default=0)
        self._add_order(list(by_shape), [min(rules.values()) for rules in by_shape.values()])

    def _add_slots(self, rules: dict[tuple[str, ...], int], texts: Texts) -> int:
        """One hash table, by linear probing; the number of its slots less one."""
        size = 1 if len(rules) == 1 else 1 << (2 * len(rules) - 1).bit_length()
        slots: list[tuple[int, int, int, int] | None] = [None] * size
        for key, rule in rules.items():
            hash64 = 0
            for run in key:
                hash64 = xxhash.xxh64_intdigest(texts.encoded(run), hash64)
            place = hash64 & (size - 1)
            while slots[place] is not None:
                place = (place + 1) & (size - 1)
            slots[place] = (hash64 >> 32, rule, *texts.add(SEPARATOR.join(key)))
        for slot in slots:
            self.slots.extend(slot or (0, _NO_RULE, 0, 0))
        return size - 1

    def _add_order(self, shapes: list[_Shape], best: list[int]) -> None:
        """For each count of tokens, the shapes that fit, their first rules ascending."""
        closed: dict[int, list[int]] = {}
        opened: dict[int, list[int]] = {}
        for number, shape in enumerate(shapes):
            (opened if shape.is_open else closed).setdefault(shape.length, []).append(number)
        self.order, self.starts = array("i"), array("i")
        open_ones: list[int] = []
        for count in range(self.longest + 1):
            # A `>` stands for one token or more.
            open_ones += opened.get(count - 1, [])
            self.starts.append(len(self.order))
            fit = [*open_ones, *closed.get(count, [])]
            self.order.extend(sorted(fit, key=lambda number: best[number]))
        self.starts.append(len(self.order))


def _shape(pattern: Pattern) -> _Shape:
    places = [place for place, token in enumerate(pattern.tokens) if token is not None]
    gaps = [place for place, (one, other) in enumerate(pairwise(places), 1) if other > one + 1]
    ends = [0, *gaps, len(places)] if places else [0]
    runs = tuple((places[first], places[end - 1] + 1) for first, end in pairwise(ends))
    return _Shape(len(pattern.tokens), pattern.is_open, runs)
