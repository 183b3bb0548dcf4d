"""The second reading of a census: finds the names of the hashes that will be shown."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from nats_transform.migration.count import EXAMPLES, Count

MOST_NAMES = 5
"""How many names a message has."""

Limited: TypeAlias = tuple[int, str, int]
"""A subject that a stream stores: the number of the `Delivery`, the stream, and the hash."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The hashes whose names are to be shown.

    Attributes:
        merged: the hashes of results that several subjects become.
        limited: subjects that streams store.
        keys: the hashes of partition keys, as `partitions.entry` makes them.
    """

    merged: frozenset[int]
    limited: frozenset[Limited]
    keys: frozenset[int]

    def __bool__(self) -> bool:
        return bool(self.merged or self.limited or self.keys)


@dataclass(slots=True)
class Names:
    """The names that the second reading finds.

    Attributes:
        merged: for the hash of each result, the subjects that become that result.
        limited: for each hash of a stored subject, the subjects that share it.
        keys: for each `partitions.entry` of a key, the key.
    """

    merged: dict[int, Count] = field(default_factory=lambda: defaultdict(Count))
    limited: dict[Limited, Count] = field(default_factory=lambda: defaultdict(Count))
    keys: dict[int, str] = field(default_factory=dict)


def of_groups(groups: Iterable[Count], parts: int, subjects: int) -> Count:
    """A count whose examples are the largest members of some groups."""
    ordered = sorted(groups, key=lambda count: -count.parts)
    # Two examples of each group are enough to show what the group is.
    examples = [one for count in ordered for one in count.examples[:2]][:EXAMPLES]
    return Count.of(parts, subjects, examples)


def listed(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more
