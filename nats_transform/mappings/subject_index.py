"""An index of filters by token, which finds the few that can match without trying all."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from nats_transform.mappings.subject import (
    ANY_TAIL,
    ANY_TOKEN,
    SEPARATOR,
    collide,
    is_subset,
    subscribes,
)

T = TypeVar("T")


@dataclass(slots=True)
class _Node:
    """What follows a run of tokens: filters that end here, and next tokens.

    Attributes:
        wild: next tokens that start with a wildcard; the server takes them to fit any token.
    """

    ends: list[int] = field(default_factory=list)
    literal: dict[str, _Node] = field(default_factory=dict)
    wild: dict[str, _Node] = field(default_factory=dict)


class Effort:
    """How many steps may still be taken. Wildcards can make all filters collide with all."""

    def __init__(self, steps: float = math.inf) -> None:
        self.left = steps

    def take(self) -> bool:
        """Take a step, if one is left."""
        self.left -= 1
        return self.left >= 0

    @property
    def is_spent(self) -> bool:
        """Whether a step was refused."""
        return self.left < 0


class SubjectIndex:
    """Filters, numbered from 0, by token.

    >>> SubjectIndex(["a.*", "b", "a.>"]).colliding("a.b")
    [0, 2]
    """

    def __init__(self, filters: Iterable[str], effort: Effort | None = None) -> None:
        self.filters = list(filters)
        self._effort = effort or Effort()
        self._root = _Node()
        for number, filter in enumerate(self.filters):
            node = self._root
            for token in filter.split(SEPARATOR):
                following = node.wild if _is_wild(token) else node.literal
                if token not in following:
                    following[token] = _Node()
                node = following[token]
                if token == ANY_TAIL:  # the rest of a filter that is not valid counts for nothing
                    break
            node.ends.append(number)

    def colliding(self, filter: str) -> list[int]:
        """The numbers of the filters that `collide` with one, ascending.

        Once the effort is spent, some are missing.
        """
        return self._those(filter, collide)

    def covering(self, filter: str) -> list[int]:
        """The numbers of the filters of which one `is_subset`, as for `colliding`.

        The server has filters that cover one and do not collide with it: `*a` and `a`.
        """
        return self._those(filter, is_subset)

    def subscribing(self, subject: str) -> list[int]:
        """The numbers of the filters that get a subject (`subscribes`), as for `colliding`."""
        return self._those(subject, lambda subject, filter: subscribes(filter, subject))

    def _those(self, filter: str, fits: Callable[[str, str], bool]) -> list[int]:
        if not self.filters:
            return []
        take = self._effort.take
        numbers = _candidates(self._root, filter.split(SEPARATOR), self._effort)
        return sorted([n for n in numbers if take() and fits(filter, self.filters[n])])


class Interest(Generic[T]):
    """Who has a filter that gets a subject.

    >>> Interest([("a.*", "Eve"), ("a.b", "Bob"), ("b", "Bob")]).of("a.x")
    {'Eve'}
    """

    def __init__(self, filters: Iterable[tuple[str, T]]) -> None:
        pairs = list(filters)
        self._owners = [owner for _, owner in pairs]
        self._index = SubjectIndex(filter for filter, _ in pairs)

    def of(self, subject: str) -> set[T]:
        """The owners of the filters that get a subject (`subscribes`)."""
        return {self._owners[number] for number in self._index.subscribing(subject)}


def _candidates(root: _Node, tokens: list[str], effort: Effort) -> list[int]:
    """The filters that can collide with or cover some tokens, and maybe a few more; none twice."""
    found: list[int] = []
    ways = [(root, 0)]
    while ways and effort.take():
        node, place = ways.pop()
        if place == len(tokens):
            found += node.ends
            continue
        token = tokens[place]
        if token == ANY_TAIL:
            found += node.ends
            ways += [(below, place) for below in (*node.literal.values(), *node.wild.values())]
            continue
        if token in node.literal:  # never one with a wildcard
            ways.append((node.literal[token], place + 1))
        elif _is_wild(token):
            ways += [(below, place + 1) for below in node.literal.values()]
        for name, below in node.wild.items():
            if name == ANY_TAIL:
                found += below.ends
            else:
                ways.append((below, place + 1))
    return found


def _is_wild(token: str) -> bool:
    return token[:1] in (ANY_TOKEN, ANY_TAIL)
