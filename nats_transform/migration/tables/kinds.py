"""Kinds of subjects: each of some filters covers all subjects of a kind, or none of them.

Most of millions of subjects differ only in tokens that no filter names. So what is known of one
subject holds for all subjects of its kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from nats_transform.mappings.subject import ANY_TAIL, ANY_TOKEN, NOT_LITERAL, SEPARATOR

Kind: TypeAlias = tuple[object, ...]

MOST_KINDS = 20_000
"""The most kinds that are worth their memory. If there are more, few subjects share a kind."""


class Kinds:
    """The kinds that some filters make.

    Attributes:
        wanted: for each place where a filter has a name, the names.
    """

    def __init__(self, filters: Iterable[str]) -> None:
        wanted: dict[int, dict[str, str]] = {}
        for filter in filters:
            for place, token in enumerate(filter.split(SEPARATOR)):
                if token not in (ANY_TOKEN, ANY_TAIL):
                    wanted.setdefault(place, {})[token] = token
        self.wanted = sorted(wanted.items())

    def of(self, tokens: Sequence[str]) -> Kind | None:
        """The kind of a subject: its number of tokens, and the tokens that a filter names.

        A subject that is not a legal literal one has no kind.
        """
        if not NOT_LITERAL.isdisjoint(tokens):
            return None
        count = len(tokens)
        kind: list[object] = [count]
        for place, names in self.wanted:
            if place >= count:
                break
            kind.append(names.get(tokens[place]))
        return tuple(kind)
