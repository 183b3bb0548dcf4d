"""Where mapped subjects have the number of their partition."""

from __future__ import annotations

from dataclasses import dataclass

from nats_transform.audit.tallies import End
from nats_transform.mappings.mapping import AccountMappings


@dataclass(frozen=True, slots=True)
class PartitionedEnd:
    """A destination with a `partition()`: where the number of its first one is.

    Attributes:
        end: the source of the mapping, and the destination.
        count: the number of partitions.
        place: `Transform.partition_place`: of the number among the tokens of the mapped subject.
    """

    end: End
    count: int
    place: int


def partitioned_ends(mappings: AccountMappings, most: int) -> list[PartitionedEnd]:
    """The destinations whose partition function is at a fixed place, with so many at most."""
    return [
        PartitionedEnd(End(mapping.source, share.destination), max(partition.count, 1), place)
        for mapping in mappings.mappings
        for share in mapping.ends()
        if share.destination is not None and share.transform is not None
        if (partition := share.transform.partition) is not None
        if (place := share.transform.partition_place) is not None
        if partition.count <= most
    ]
