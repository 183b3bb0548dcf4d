"""The partition number of a mapped subject, and the key it was made of, as Columns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from expectations.measures.rows import CHECK
from nats_transform import AccountMappings
from nats_transform.audit import End
from nats_transform.subject import encode

MAX_NUMBERS = 4096
"""Rows of a `partition(n)` are counted by number up to this n; above it only the range is."""

NUMBER = CHECK + "number"
KEY = CHECK + "key"


@dataclass(frozen=True, slots=True)
class PartitionedEnd:
    """A destination with a `partition()`: where the number and the key of its first one are.

    Attributes:
        end: the source of the mapping, and the destination.
        count: the number of partitions.
        place: `Transform.partition_place`: of the number among the tokens of the mapped subject.
        key: 0-based places of the key's tokens in the subject; none stands for the whole subject.
    """

    end: End
    count: int
    place: int | None
    key: tuple[int, ...]

    @property
    def is_counted(self) -> bool:
        """Whether rows are counted by number: its place is fixed, and there are not too many."""
        return self.place is not None and self.count <= MAX_NUMBERS


def partitioned_ends(mappings: AccountMappings) -> list[PartitionedEnd]:
    """The destinations that have a partition function."""
    found = []
    for mapping in mappings.mappings:
        for _, share in mapping.ends():
            partition = share.transform.partition if share.transform else None
            if partition is None or share.transform is None or share.destination is None:
                continue
            end = End(mapping.source, share.destination)
            place = share.transform.partition_place
            found.append(PartitionedEnd(end, max(partition.count, 1), place, partition.positions))
    return found


def partition_columns(ends: Sequence[PartitionedEnd], sample: int) -> list[Column]:
    """The partition number as it is written and, of one key in `sample`, the hash of the key.

    Ends that look alike share a branch: a CASE over a thousand ends would cost more than the
    transform.
    """
    layouts: dict[tuple[int, tuple[int, ...]], list[End]] = defaultdict(list)
    for found in ends:
        if found.is_counted and found.place is not None:
            layouts[found.place, found.key].append(found.end)
    of_destination: dict[str, set[Any]] = defaultdict(set)
    for layout, alike in layouts.items():
        for end in alike:
            of_destination[end.destination].add(layout)
    number, key = F.when(F.lit(False), ""), F.when(F.lit(False), F.lit(0).cast("long"))
    for (place, positions), alike in layouts.items():
        is_here = _is_end(alike, {d for d, found in of_destination.items() if len(found) == 1})
        text = _token(F.col("mapped_subject"), place)
        tokens = [_token(F.col("subject"), position + 1) for position in positions]
        hashed = F.xxhash64(*tokens) if tokens else F.xxhash64("subject")
        # What is longer than any number is cut, or garbage would make a group of every row.
        number = number.when(is_here, F.left(text, F.lit(len(str(MAX_NUMBERS)) + 1)))
        key = key.when(is_here, hashed)
    is_kept = F.pmod(key, F.lit(sample)) == 0
    return [
        number.alias(NUMBER),
        F.when(is_kept, key).alias(KEY, metadata={"one_in": sample}),
    ]


def _is_end(ends: Sequence[End], telling: Collection[str]) -> Column:
    """Whether a row came to one of some ends; a destination in `telling` says it alone."""
    alone = [_literal(end.destination) for end in ends if end.destination in telling]
    found = F.col("mapping_destination").isin(alone) if alone else F.lit(False)
    for end in ends:
        if end.destination not in telling:
            found |= (F.col("mapping_source") == _literal(end.source)) & (
                F.col("mapping_destination") == _literal(end.destination)
            )
    # A message that became invalid has a destination too, and no subject to find a number in.
    return found & F.col("mapped_subject").isNotNull()


def _literal(text: str) -> Column:
    # As bytes, because it need not be UTF-8.
    return F.lit(encode(text)).cast("string")


def _token(subject: Column, place: int) -> Column:
    """A token of a subject, 1-based, from the end if negative."""
    if place < 0:
        return F.substring_index(F.substring_index(subject, ".", place), ".", 1)
    return F.substring_index(F.substring_index(subject, ".", place), ".", -1)
