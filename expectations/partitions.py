"""Whether partition numbers are in range, equal for equal keys, and evenly used."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from expectations.expectation import Expectation, Judgement, Severity
from expectations.measures.partitions import PartitionedEnd, partitioned_ends
from expectations.measures.transformed import TransformedMeasures
from nats_transform import AccountMappings
from nats_transform.audit import End
from nats_transform.words import plural

SHOWN_NUMBERS = 64
"""Up to so many partitions, the details have the messages of each."""


def counted_ends(mappings: AccountMappings) -> list[PartitionedEnd]:
    """The partition functions whose messages are counted by number."""
    return [one for one in partitioned_ends(mappings) if one.is_counted]


def numbers_in_range(mappings: AccountMappings) -> Expectation:
    """In every subject, the number that `partition(n)` gave is one of 0 to n - 1."""

    def judge(measures: TransformedMeasures) -> Judgement:
        wrong = {
            (one.end, number): rows
            for one in counted_ends(mappings)
            for legal in [{str(number) for number in range(one.count)}]
            for number, rows in measures.numbers.get(one.end, {}).items()
            if number not in legal
        }
        numbered = sum(numbers.total() for numbers in measures.numbers.values())
        observed = f"{plural(numbered, 'message')} with a partition number"
        if wrong:
            observed += f", {sum(wrong.values()):,} of them out of range"
        examples = [
            {**_names(end), "number": number, "messages": rows}
            for (end, number), rows in wrong.items()
        ]
        return Judgement(not wrong, observed, examples)

    return Expectation(
        "ExpectPartitionNumbersInRange", "partitions",
        "Every number that partition(n) gave lies between 0 and n - 1.",
        "No consumer reads a partition that does not exist.",
        judge,
    )  # fmt: skip


def keys_stay() -> Expectation:
    """All messages of a key are in one partition: exactly, for a sample of the keys."""

    def judge(measures: TransformedMeasures) -> Judgement:
        split = [
            {
                **_names(end),
                "key (hash)": f"{key & (2**64 - 1):016x}",
                "partitions": ", ".join(f"{n} ({rows:,}x)" for n, rows in sorted(numbers.items())),
            }
            for (end, key), numbers in measures.keys.items()
            if len(numbers) > 1
        ]
        observed = plural(len(measures.keys), "key")
        if measures.key_share > 1:
            observed += f" (one in {measures.key_share:,})"
        if split:
            observed += f", {len(split):,} of them in more than one partition"
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
        keys: dict[End, list[Mapping[str, int]]] = defaultdict(list)
        for (end, _), numbers in measures.keys.items():
            keys[end].append(numbers)
        ends = [one for one in counted_ends(mappings) if measures.numbers.get(one.end)]
        rows = [
            _spread(one, keys[one.end], measures.numbers[one.end], confidence)
            for one in ends
            if one.end in keys
        ]
        uneven = [row for row in rows if row["fewest keys"] < row["at least"]]
        uneven += [row for row in rows if row["most keys"] > row["at most"] and row not in uneven]
        observed = f"{len(rows) - len(uneven)} of {plural(len(rows), 'partition function')} even"
        balance = [
            {
                "source": one.end.source,
                "destination": one.end.destination,
                "counts": [measures.numbers[one.end][str(number)] for number in range(one.count)],
            }
            for one in ends
            if one.count <= SHOWN_NUMBERS
        ]
        return Judgement(
            not uneven,
            observed if rows else "no message with a partition number",
            uneven,
            rows,
            {"balance": balance},
        )

    return Expectation(
        "ExpectPartitionsToBeBalanced", "partitions",
        "Each of n partitions has 1/n of the keys, give or take what chance explains at "
        f"confidence {confidence}.",
        "The limits are binomial, corrected for the number of partitions. A partition with too "
        "many keys gets too many messages. So does one with a few busy keys, but this expectation "
        "doesn't see that.",
        judge, Severity.WARNS, arguments={"confidence": confidence},
    )  # fmt: skip


def _spread(
    partitioned: PartitionedEnd,
    keys: Sequence[Mapping[str, int]],
    rows: Mapping[str, int],
    confidence: float,
) -> dict[str, Any]:
    n = partitioned.count
    # A key that is in two partitions counts in both; that it is so fails elsewhere.
    held = Counter(number for numbers in keys for number in numbers)
    each = [held[str(number)] for number in range(n)]
    least, most = key_limits(len(keys), n, (1 - confidence) / (2 * n))
    return {
        **_names(partitioned.end),
        "n": n,
        "keys": len(keys),
        "fewest keys": min(each),
        "at least": least,
        "most keys": max(each),
        "at most": most,
        "busiest over mean": f"{max(rows.values()) * n / sum(rows.values()):.2f}",
    }


def _names(end: End) -> dict[str, str]:
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
