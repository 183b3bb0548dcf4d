"""How `partition()` spreads the keys of an archive."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from nats_transform.errors import shown
from nats_transform.functions import Partition, fnv1a
from nats_transform.mapping import AccountMappings, Outcome
from nats_transform.migration.analysis import Analysis, Told
from nats_transform.migration.case import Case
from nats_transform.migration.count import PARTS, Amount, Count, hashed, whole
from nats_transform.migration.names import Names
from nats_transform.migration.rows import Groups, Largest, Store
from nats_transform.subject import encode
from nats_transform.words import plural

MOST_PARTITIONS = 4096
"""The balance is shown for up to this many partitions."""

NEARBY = 3
"""How many more and fewer partitions are tried, to suggest a better number."""

UNEVEN = 2.0
"""It is a finding if the busiest partition has more than this many times the average."""

MOST_HEAVY = 5

Key: TypeAlias = int | NDArray[np.uint64]
"""The `entry` of a key, or an array of those of subjects that are alike."""

HASH = 0xFFFF_FFFF
"""A mask for the lower 32 bits of a number."""


@dataclass(frozen=True, slots=True)
class Balance:
    """How one `partition()` spreads the messages.

    Attributes:
        source, destination: the source and destination of the mapping.
        partitions: the number of partitions.
        counts: the number of messages of each partition, from partition 0 on.
        keys: the number of distinct keys.
        busiest: the messages of the busiest partition, divided by the mean.
        largest: the largest keys, each with its partition and its messages.
        nearby: other numbers of partitions near this one, each with its `busiest`.
    """

    source: str
    destination: str
    partitions: int
    counts: tuple[float, ...]
    keys: int
    busiest: float
    largest: tuple[tuple[str, int, float], ...]
    nearby: tuple[tuple[int, float], ...]

    @property
    def better(self) -> int | None:
        """The nearby number of partitions that spreads clearly better, if there is one."""
        count, busiest = min(self.nearby, key=lambda pair: pair[1])
        return count if busiest < 0.9 * self.busiest else None


@dataclass(frozen=True, slots=True)
class Totals:
    """The sums over all keys of a destination.

    Attributes:
        keys: how many distinct keys there are.
        moved_keys: how many of them change their partition number.
        largest: the `entry` of each of the largest keys, with its parts.
        counts: for each number of partitions, the messages of each partition, in parts.
    """

    keys: int
    moved_keys: int
    largest: dict[int, int]
    counts: dict[int, list[int]]


class Spread:
    """Counts the keys of one destination.

    Attributes:
        source, destination: the source and destination of the mapping.
        partition: the `partition()` of the destination.
        moved: the subjects whose partition number changes.
    """

    def __init__(self, source: str, destination: str, partition: Partition, store: Store) -> None:
        self.source, self.destination, self.partition = source, destination, partition
        self.moved = Count()
        self._keys = Groups(store)
        self._moved = Groups(store)

    def add(self, key: Key, parts: Amount) -> None:
        """Count parts of the messages of a subject with a key."""
        self._keys.add(key, parts)

    def move(self, key: Key, case: Case, after: str | None, parts: Amount) -> None:
        """Count a subject whose partition changes from one number to another."""
        self.moved.add(case, after, parts)
        self._moved.add(key, parts)

    @cached_property
    def totals(self) -> Totals:
        """The sums over all keys, when all have been added."""
        count = max(1, self.partition.count)
        near = range(max(2, count - NEARBY), count + NEARBY + 1)
        sums = {
            of: np.zeros(of, dtype=np.int64) for of in (count, *near) if count <= MOST_PARTITIONS
        }
        distinct = 0
        largest = Largest(MOST_HEAVY)
        for keys, parts, _ in self._keys.sums():
            distinct += len(keys)
            largest.add(keys, parts)
            hashes = (keys & np.uint64(HASH)).astype(np.int64)
            for of, found in sums.items():
                np.add.at(found, hashes % of, parts)
        return Totals(
            distinct,
            sum(len(keys) for keys, _, _ in self._moved.sums()),
            largest.keys,
            {of: [int(value) for value in found] for of, found in sums.items()},
        )

    def balance(self, names: Mapping[int, str]) -> Balance | None:
        """The balance, or None if nothing came here or there are too many partitions.

        Args:
            names: the key of each `entry` in `Totals.largest`.
        """
        count = max(1, self.partition.count)
        totals = self.totals
        if not totals.counts or not totals.keys:
            return None
        busiest = {of: max(sums) * of / sum(sums) for of, sums in totals.counts.items()}
        return Balance(
            self.source,
            self.destination,
            count,
            tuple(whole(value) for value in totals.counts[count]),
            totals.keys,
            busiest.pop(count),
            tuple(
                (names[key], fnv1a(encode(names[key])) % count, whole(value))
                for key, value in totals.largest.items()
            ),
            tuple(sorted(busiest.items())),
        )


def entry(key: str) -> int:
    """A key in 64 bits. The upper half tells keys apart; the lower half gives the partition."""
    return upper(key) << 32 | fnv1a(encode(key))


def upper(key: str) -> int:
    """The upper half of an `entry`, which is quicker to compute."""
    return hashed(key) & HASH


class Partitions(Analysis):
    """Counts the keys of every `partition()` of the candidate."""

    def __init__(self, current: AccountMappings, candidate: AccountMappings, store: Store) -> None:
        self._store = store
        self._current, self._candidate = _transforms(current), _transforms(candidate)
        self.spreads: dict[tuple[str, str], Spread] = {}
        self._keyed: dict[str, set[Partition]] = defaultdict(set)
        for (source, _), partition in self._candidate.items():
            self._keyed[source].add(partition)

    def add_case(self, case: Case) -> None:
        numbers: dict[int, int] | None = None
        for outcome, percent in case.after:
            rule = _rule(outcome)
            partition = self._candidate.get(rule)
            if partition is None or outcome.subject is None:
                continue
            if numbers is None:
                numbers = self._numbers(case)
            spread = self._spread(rule, partition)
            text = partition.key(case.tokens)
            key = entry(text) if case.alike is None else case.alike.entries(rule[1])
            spread.add(key, percent * case.messages)
            more = percent - numbers.get(partition.number(fnv1a(encode(text))), 0)
            if numbers and more > 0:
                spread.move(key, case, outcome.subject, more * case.messages)

    def _numbers(self, case: Case) -> dict[int, int]:
        """The partitions under the current mapping, each with its percent."""
        numbers: dict[int, int] = {}
        for outcome, percent in case.before:
            partition = self._current.get(_rule(outcome))
            if partition is not None:
                key = partition.key(case.tokens_before)
                number = partition.number(fnv1a(encode(key)))
                numbers[number] = numbers.get(number, 0) + percent
        return numbers

    def _spread(self, rule: tuple[str, str], partition: Partition) -> Spread:
        if rule not in self.spreads:
            self.spreads[rule] = Spread(*rule, partition, self._store)
        return self.spreads[rule]

    @property
    def ordered(self) -> list[Spread]:
        """The counts of each destination, in the order of their names."""
        return [spread for _, spread in sorted(self.spreads.items(), key=itemgetter(0))]

    def told(self, names: Names) -> Iterator[Told]:
        for spread in self.ordered:
            about = f"mapping {shown(spread.source)} -> {shown(spread.destination)}"
            balance = spread.balance(names.keys)
            if spread.moved.subjects:
                told = f"{spread.totals.moved_keys:,}"
                if balance:
                    told += f" of {balance.keys:,}"
                told += " keys move to another partition"
                yield "partition-moves", about, told, spread.moved
            if balance is None or balance.partitions < 2:
                continue
            empty = sum(not count for count in balance.counts)
            if empty:
                told = f"{empty} of {balance.partitions} partitions get no message: "
                told += f"the subjects have only {plural(balance.keys, 'key')}"
                yield "partition-empty", about, told, Count()
            if balance.busiest > UNEVEN:
                told = f"the busiest partition has {balance.busiest:.2f} times the average"
                if better := balance.better:
                    told += f"; {better} partitions would spread better"
                yield "partition-imbalance", about, told, Count(int(max(balance.counts) * PARTS), 0)

    def keys(self, source: str, tokens: Sequence[str]) -> set[str]:
        """The keys that the candidate's mapping of a source makes of a subject, in any cluster."""
        return {partition.key(tokens) for partition in self._keyed[source]}


def _rule(outcome: Outcome) -> tuple[str, str]:
    return outcome.mapping_source or "", outcome.mapping_destination or ""


def _transforms(mappings: AccountMappings) -> dict[tuple[str, str], Partition]:
    """The `partition()` of each destination that has one."""
    return {
        (mapping.source, transform.destination): transform.partition
        for mapping in mappings.mappings
        for transform in mapping.transforms
        if transform.partition is not None
    }
