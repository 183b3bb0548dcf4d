"""The destination that the cluster and the draw choose, by number."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from nats_transform.mapping import DRAWS, AccountMappings, Mapping, Share
from nats_transform.spark.destination import Template, template
from nats_transform.spark.lookup import literal, pick


@dataclass(frozen=True, slots=True)
class _Numbered:
    """A share, with what is asked about it."""

    share: Share
    is_drawn: bool
    template: Template | None


class Shares:
    """The shares of all mappings in all clusters, numbered.

    A scope is a mapping in one cluster, or in all that have no destinations of their own. The
    shares of a scope have consecutive numbers.
    """

    def __init__(self, mappings: AccountMappings) -> None:
        rules = mappings.mappings
        self._clusters = list(dict.fromkeys(c for mapping in rules for c in mapping.clusters))
        self._shares: list[_Numbered] = []
        self._first: list[int] = []
        self._offsets: list[int] = []
        self._scopes: list[int] = []
        tables: dict[tuple[int, ...], int] = {}
        for rule, mapping in enumerate(rules):
            numbers: dict[str | None, int] = {}
            for cluster in mapping.scopes:
                numbers[cluster] = len(self._first)
                self._first.append(len(self._shares))
                table = _by_draw(mapping.shares(cluster))
                self._offsets.append(tables.setdefault(table, DRAWS * len(tables)))
                self._shares += _numbered(mapping, cluster, rule)
            self._scopes += [numbers.get(c, numbers[None]) for c in (None, *self._clusters)]
        self._by_draw = [place for table in tables for place in table]
        self.templates = [numbered.template for numbered in self._shares]
        self._can_empty = [
            s.share.transform is not None and s.share.transform.can_make_empty_token
            for s in self._shares
        ]
        self.can_make_empty_token = any(self._can_empty)

    def scope(self, cluster: Column, rule: Column) -> Column:
        """The number of the scope for a cluster's name and the number of a mapping."""
        if not self._clusters:
            return pick(self._scopes, rule, "int")
        chain = F.when(cluster == literal(self._clusters[0]), 1)
        for number, name in enumerate(self._clusters[1:], 2):
            chain = chain.when(cluster == literal(name), number)
        columns = len(self._clusters) + 1
        return pick(self._scopes, rule * columns + chain.otherwise(0), "int")

    def number(self, scope: Column, draw: Column) -> Column:
        """The number of the share that a draw chooses in a scope."""
        place = pick(self._by_draw, pick(self._offsets, scope, "int") + draw, "int")
        return pick(self._first, scope, "int") + place

    def loses(self, number: Column) -> Column:
        """Whether the share is the lost part."""
        return pick([s.share.destination is None for s in self._shares], number, "boolean")

    def crashes(self, number: Column) -> Column:
        """Whether the share has an empty destination."""
        flags = [s.share.destination is not None and not s.share.transform for s in self._shares]
        return number.isNotNull() & pick(flags, number, "boolean")

    def can_be_empty(self, number: Column) -> Column:
        """Whether the share can make an empty token."""
        return number.isNotNull() & pick(self._can_empty, number, "boolean")

    def is_drawn(self, number: Column) -> Column:
        """Whether the share is drawn at all."""
        return pick([s.is_drawn for s in self._shares], number, "boolean")

    def destination(self, number: Column) -> Column:
        """The destination of the share as it is written; null for the lost part."""
        return pick([s.share.destination for s in self._shares], number, "string")


def _by_draw(shares: tuple[Share, ...]) -> tuple[int, ...]:
    """For each draw the place of the share that it chooses."""
    return tuple(
        next(place for place, share in enumerate(shares) if draw < share.below)
        for draw in range(DRAWS)
    )


def _numbered(mapping: Mapping, cluster: str | None, rule: int) -> list[_Numbered]:
    # As in AccountMappings: the source that is tried first is no subject to be cut into tokens.
    uncut = mapping.source if rule == 0 and mapping.filter.is_literal else None
    return [
        _Numbered(
            share,
            mapping.is_drawn(cluster),
            template(share.transform.tokens, uncut) if share.transform else None,
        )
        for share in mapping.shares(cluster)
    ]
