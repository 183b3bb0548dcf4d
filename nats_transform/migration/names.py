"""The second reading of a census: finds the names of the hashes that will be shown."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from nats_transform.migration.count import EXAMPLES, Count


@dataclass(frozen=True, slots=True)
class Wanted:
    """The hashes whose names are to be shown.

    Attributes:
        merged: hashes of what subjects become.
        limited: streams with a hash of a stored subject each.
        keys: hashes of keys of partitions, as `entry` gives them.
    """

    merged: frozenset[int]
    limited: frozenset[tuple[str, int]]
    keys: frozenset[int]

    def __bool__(self) -> bool:
        return bool(self.merged or self.limited or self.keys)


@dataclass(slots=True)
class Names:
    """What the second reading finds.

    Attributes:
        merged: subjects that become the same as others, by hash of that.
        limited: subjects that share a stored subject, by stream and hash of that.
        keys: keys of partitions, by their `entry`.
    """

    merged: dict[int, Count] = field(default_factory=lambda: defaultdict(Count))
    limited: dict[tuple[str, int], Count] = field(default_factory=lambda: defaultdict(Count))
    keys: dict[int, str] = field(default_factory=dict)


def of_groups(groups: Iterable[Count], parts: int, subjects: int) -> Count:
    """A count whose examples are the largest members of some groups."""
    ordered = sorted(groups, key=lambda count: -count.parts)
    # Two of each group tell what it is; the first group may fill the rest.
    examples = [one for count in ordered for one in count.examples[:2]][:EXAMPLES]
    return Count.of(parts, subjects, examples)
