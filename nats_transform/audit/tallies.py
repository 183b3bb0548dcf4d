"""The counts that an audit judges: messages by mapping, end, cluster and hour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from nats_transform.mappings.mapping import AccountMappings
from nats_transform.mappings.mapping import Mapping as SubjectMapping


@dataclass(frozen=True, slots=True, order=True)
class End:
    """One possible end of a mapping.

    Attributes:
        source: the source of the mapping.
        destination: the same as `Outcome.mapping_destination`; "" for the part that is lost.
    """

    source: str
    destination: str


@dataclass(frozen=True, slots=True)
class Tally:
    """How many messages of one cluster and hour came to one end.

    Attributes:
        cluster: the cluster that the messages were published in; None if it is not known.
        start: when the hour began, or when the period began if that was later.
        ends: the ends that the messages can have come to; more than one if the end is not certain.
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
    """A mapping version and the time in which it was in force, the end excluded.

    Without `since` the version was in force from the start, without `until` to the end.
    """

    mappings: AccountMappings
    version: str = ""
    since: datetime | None = None
    until: datetime | None = None


Scope: TypeAlias = tuple[int, str, str | None]
"""The index of a period, the source of a mapping, and a cluster. Each scope gets a verdict."""

Hours: TypeAlias = Mapping[datetime, int] | int
"""The number of messages: one for each hour, or one for the whole time."""


def is_audited(mapping: SubjectMapping) -> bool:
    """Whether a mapping has weights or cluster scopes that a split can be compared with."""
    return bool(mapping.clusters) or mapping.is_drawn()
