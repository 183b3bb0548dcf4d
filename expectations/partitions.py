"""Whether partition numbers are in range, equal for equal keys, and evenly used."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import lru_cache
from typing import Any

import numpy as np

from expectations.expectation import Expectation, Judgement
from expectations.measures.partitions import PartitionedEnd, partitioned_ends
from expectations.measures.transformed import TransformedMeasures
from nats_transform import AccountMappings
from nats_transform.audit import End
from nats_transform.words import plural

SHOWN_NUMBERS = 64
"""Up to so many partitions, the details have the messages of each."""


def numbers_in_range(mappings: AccountMappings) -> Expectation:
    """In every subject, the number that `partition(n)` gave is one of 0 to n - 1."""
    legal = {one.end: {*map(str, range(one.count))} for one in partitioned_ends(mappings)}

    def judge(measures: TransformedMeasures) -> Judgement:
        wrong = [
            {**_names(end), "number": number, "messages": rows}
            for end, numbers in measures.numbers.items()
            for number, rows in numbers.items()
            if number not in legal[end]
        ]
        numbered = sum(numbers.total() for numbers in measures.numbers.values())
        observed = f"{plural(numbered, 'message')} with a partition number"
        if wrong:
            observed += f", {sum(row['messages'] for row in wrong):,} of them out of range"
        return Judgement(not wrong, observed, wrong)

    return Expectation(
        "ExpectPartitionNumbersInRange", "partitions",
        "Every number that partition(n) gave lies between 0 and n - 1.",
        "No consumer reads a partition that does not exist.",
        judge,
    )  # fmt: skip


def keys_stay() -> Expectation:
    """All messages of a key are in one partition: exactly, for a sample of the keys."""

    def judge(measures: TransformedMeasures) -> Judgement:
        keys: dict[tuple[End, int], list[str]] = defaultdict(list)
        for end, numbers in measures.keys.items():
            for (key, number), rows in numbers.items():
                keys[end, key].append(f"{number} ({rows:,}x)")
        split = [
            {**_names(end), "key (hash)": f"{key:08x}", "partitions": ", ".join(sorted(numbers))}
            for (end, key), numbers in keys.items()
            if len(numbers) > 1
        ]
        observed = f"{plural(len(keys), 'key')}, {len(split):,} of them in more than one partition"
        return Judgement(not split, observed, split)

    return Expectation(
        "ExpectKeysToKeepTheirPartition", "partitions",
        "All messages with the same key are in the same partition.",
        "A consumer of one partition relies on seeing every message of its keys, in order.",
        judge,
    )  # fmt: skip


def partitions_balanced(mappings: AccountMappings, confidence: float = 0.9999) -> Expectation:
    """The keys are spread over the partitions as evenly as by chance.

    Args:
        mappings: those that wrote the rows.
        confidence: the probability, 0 to 1, that keys which are spread by chance pass.
    """

    def judge(measures: TransformedMeasures) -> Judgement:
        ends = [one for one in partitioned_ends(mappings) if one.end in measures.keys]
        rows = [_spread(one, measures, confidence) for one in ends]
        uneven = [
            row
            for row in rows
            if row["fewest keys"] < row["at least"] or row["most keys"] > row["at most"]
        ]
        observed = f"{len(rows) - len(uneven)} of {plural(len(rows), 'partition function')} even"
        return Judgement(
            not uneven,
            observed if rows else "no message with a partition number",
            uneven,
            rows,
            {
                one.end: [measures.numbers[one.end][str(number)] for number in range(one.count)]
                for one in ends
                if one.count <= SHOWN_NUMBERS
            },
        )

    return Expectation(
        "ExpectPartitionsToBeBalanced", "partitions",
        "Each of n partitions has 1/n of the keys, give or take what chance explains at "
        f"confidence {confidence}.",
        "The limits are binomial, corrected for the number of partitions. A partition with too "
        "many keys gets too many messages. So does one with a few busy keys, but this expectation "
        "doesn't see that.",
        judge, arguments={"confidence": confidence}, blocks=False,
    )  # fmt: skip


def _spread(
    one: PartitionedEnd, measures: TransformedMeasures, confidence: float
) -> dict[str, Any]:
    rows, keyed = measures.numbers[one.end], measures.keys[one.end]
    keys = len({key for key, _ in keyed})
    # A key that is in two partitions counts in both; that it is so fails elsewhere.
    held = Counter(number for _, number in keyed)
    each = [held[str(number)] for number in range(one.count)]
    least, most = key_limits(keys, one.count, (1 - confidence) / (2 * one.count))
    return {
        **_names(one.end),
        "n": one.count,
        "keys": keys,
        "fewest keys": min(each),
        "at least": least,
        "most keys": max(each),
        "at most": most,
        "busiest over mean": f"{max(rows.values()) * one.count / rows.total():.2f}",
    }


def _names(end: End) -> dict[str, Any]:
    return {"mapping": end.source, "destination": end.destination}


@lru_cache
def key_limits(keys: int, partitions: int, tail: float) -> tuple[int, int]:
    """The fewest and the most keys of a partition that chance gives one; `tail` is beyond each.

    Equals `ppf` and `isf` of `scipy.stats.binom`, which takes four times as long to import.
    """
    from scipy import special  # most mappings do not need it

    counts = np.arange(keys + 1)
    below = special.bdtr(counts, keys, 1 / partitions)
    above = special.bdtrc(counts, keys, 1 / partitions)
    return int(np.argmax(below >= tail)), int(np.argmax(above <= tail))
