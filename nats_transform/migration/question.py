"""What a dry run is asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nats_transform.accounts.sharing import SharedStream, Shares
from nats_transform.config.permissions import User
from nats_transform.mappings.mapping import AccountMappings
from nats_transform.streams.consumer import Consumer
from nats_transform.streams.network import Network
from nats_transform.streams.stream import StreamConfig

if TYPE_CHECKING:
    from nats_transform.migration.tables.census import CensusPart  # it needs pyarrow


@dataclass(frozen=True, slots=True)
class Question:
    """The mappings that a dry run compares, and everything that depends on their results.

    Attributes:
        candidate: the mappings to try.
        current: the mappings that are in force; without any, every subject stays as it is.
        streams: the streams of the account that the archive is from.
        consumers: the consumers of these streams.
        users: the users that have permissions.
        clusters: the names of all clusters; if empty, those that the census names.
        shared: what the account exports, and what other accounts import from it.
        archived: the streams of which the census has every subject.
        names: the names by which accounts call the account.
        shares: the exports and imports of each account, by its name.
        known_as: all names of these accounts, of which others import by any.
        named: the values of headers that name subjects, as a census, by the name of the header.
        leaf_node: the mappings on the other side of a leaf node connection.
        has_leaf_nodes: whether the files show such a connection of the account.
    """

    candidate: AccountMappings
    current: AccountMappings
    streams: tuple[StreamConfig, ...] = ()
    consumers: tuple[Consumer, ...] = ()
    users: tuple[User, ...] = ()
    clusters: tuple[str, ...] = ()
    shared: tuple[SharedStream, ...] = ()
    archived: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    shares: Mapping[str, Shares] = field(default_factory=dict)
    known_as: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    named: Mapping[str, CensusPart] = field(default_factory=dict)
    leaf_node: AccountMappings | None = None
    has_leaf_nodes: bool = False

    @property
    def network(self) -> Network:
        """The way of messages through the streams."""
        return Network(self.streams, self.consumers)

    @property
    def filters(self) -> Iterator[tuple[str, str]]:
        """Every filter that a subject is compared with once it is mapped, and whose it is."""
        yield from self.network.filters
        for shared in self.shared:
            yield f"the {shared}", shared.subject
        for consumer in self.consumers:
            yield from ((f"consumer {consumer.name}", filter) for filter in consumer.filters)
        for user in self.users:
            for side in (user.publish, user.subscribe):
                yield from ((f"user {user.name}", s) for s in (*(side.allow or ()), *side.deny))
