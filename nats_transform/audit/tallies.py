"""The counts that an audit judges: messages by mapping, end, cluster and hour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from nats_transform.mapping import AccountMappings
from nats_transform.mapping import Mapping as SubjectMapping


@dataclass(frozen=True, slots=True, order=True)
class End:
    """One possible end of a mapping.

    Attributes:
        source: the source of the mapping.
        destination: as in `Outcome.mapping_destination`; "" for the part that is lost.
    """

    source: str
    destination: str


@dataclass(frozen=True, slots=True)
class Tally:
    """How many messages of one cluster and hour came to one end.

    Attributes:
        cluster: the cluster that they were published in; None if it is not known.
        start: when the hour began, or the period if that began later.
        ends: the ends they can have come to; more than one if that cannot be told.
        count: the number of messages.
        period: index of the mapping version in force.
    """

    cluster: str | None
    start: datetime
    ends: tuple[End, ...]
    count: int
    period: int = 0


@dataclass(frozen=True, slots=True)
class Period:
    """A mapping version and from when to when it was in force; None is open."""

    mappings: AccountMappings
    version: str = ""
    since: datetime | None = None
    until: datetime | None = None


Scope: TypeAlias = tuple[int, str, str | None]
"""What gets a verdict of its own: index of the period, source of the mapping, cluster."""

Hours: TypeAlias = Mapping[datetime, int] | int
"""Messages by hour, or all together."""


def is_audited(mapping: SubjectMapping) -> bool:
    """Whether a mapping has weights or cluster scopes that a split can be compared with."""
    return bool(mapping.clusters) or mapping.is_drawn()
