"""Whether partition numbers are in range, equal for equal keys, and evenly used."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from expectations.expectation import Expectation, Judgement, count
from expectations.measures.partitions import PartitionedEnd, partitioned_ends
from expectations.measures.transformed import TransformedMeasures
from nats_transform import AccountMappings
from nats_transform.audit import End

SHOWN_NUMBERS = 64
"""Up to so many partitions, the details have the messages of each."""


def counted_ends(mappings: AccountMappings) -> list[PartitionedEnd]:
    """The partition functions whose messages are counted by number."""
    return [one for one in partitioned_ends(mappings) if one.is_counted]


@dataclass(frozen=True)
class _PartitionExpectation(Expectation):
    """An expectation about partition functions.

    Args:
        mappings: those that wrote the rows.
    """

    mappings: AccountMappings


@dataclass(frozen=True)
class ExpectPartitionNumbersInRange(_PartitionExpectation):
    """In every subject, the number that `partition(n)` gave is one of 0 to n - 1."""

    statement = "Every number that partition(n) gave lies between 0 and n - 1."
    reason = "No consumer reads a partition that does not exist."

    def judge(self, measures: TransformedMeasures) -> Judgement:
        examples: list[dict[str, Any]] = []
        for partitioned in counted_ends(self.mappings):
            legal = {str(number) for number in range(partitioned.count)}
            examples += [
                {**_names(partitioned.end), "number": number, "messages": rows}
                for number, rows in measures.numbers.get(partitioned.end, {}).items()
                if number not in legal
            ]
        numbered = sum(sum(numbers.values()) for numbers in measures.numbers.values())
        wrong = sum(example["messages"] for example in examples)
        observed = f"{count(numbered, 'message')} with a partition number"
        if wrong:
            observed += f", {wrong:,} of them out of range"
        details = {"messages": numbered, "out_of_range": wrong}
        return Judgement(not wrong, observed, examples, details=details)


@dataclass(frozen=True)
class ExpectKeysToKeepTheirPartition(Expectation):
    """All messages of a key are in one partition: exactly, for a sample of the keys."""

    statement = "All messages with the same key are in the same partition."
    reason = "A consumer of one partition relies on seeing every message of its keys, in order."

    def judge(self, measures: TransformedMeasures) -> Judgement:
        split = [
            {
                **_names(end),
                "key (hash)": f"{key & (2**64 - 1):016x}",
                "partitions": ", ".join(f"{n} ({rows:,}x)" for n, rows in sorted(numbers.items())),
            }
            for (end, key), numbers in measures.keys.items()
            if len(numbers) > 1
        ]
        looked = len(measures.keys)
        observed = count(looked, "key")
        if measures.key_share > 1:
            observed += f" (one in {measures.key_share:,})"
        if split:
            observed += f", {len(split):,} of them in more than one partition"
        details = {"keys": looked, "split": len(split), "one_in": measures.key_share}
        return Judgement(not split, observed, split, details=details)


@dataclass(frozen=True)
class ExpectPartitionsToBeBalanced(_PartitionExpectation):
    """The keys are spread over the partitions as evenly as by chance.

    Args:
        mappings: those that wrote the rows.
        confidence: the probability, 0 to 1, that keys which are spread by chance pass.
    """

    confidence: float = 0.9999

    shown = ("confidence",)
    statement = (
        "Each of n partitions has 1/n of the keys, give or take what chance explains at "
        "confidence $confidence."
    )
    reason = (
        "The limits are binomial, corrected for the number of partitions. A partition with too "
        "many keys gets too many messages. So does one with a few busy keys, but this expectation "
        "doesn't see that."
    )

    def judge(self, measures: TransformedMeasures) -> Judgement:
        keys: dict[End, list[Mapping[str, int]]] = defaultdict(list)
        for (end, _), numbers in measures.keys.items():
            keys[end].append(numbers)
        rows = [
            self._row(partitioned, keys[partitioned.end], measures.numbers[partitioned.end])
            for partitioned in counted_ends(self.mappings)
            if partitioned.end in keys
        ]
        uneven = [row for row in rows if row["fewest keys"] < row["at least"]]
        uneven += [row for row in rows if row["most keys"] > row["at most"] and row not in uneven]
        observed = f"{len(rows) - len(uneven)} of {count(len(rows), 'partition function')} even"
        return Judgement(
            not uneven,
            observed if rows else "no message with a partition number",
            uneven,
            rows,
            {"functions": len(rows), "uneven": len(uneven), "balance": self._balance(measures)},
        )

    def _balance(self, measures: TransformedMeasures) -> list[dict[str, Any]]:
        """Messages of each partition, of functions with few enough to look at."""
        return [
            {
                "source": one.end.source,
                "destination": one.end.destination,
                "counts": [rows.get(str(number), 0) for number in range(one.count)],
            }
            for one in counted_ends(self.mappings)
            if one.count <= SHOWN_NUMBERS and (rows := measures.numbers.get(one.end))
        ]

    def _row(
        self,
        partitioned: PartitionedEnd,
        keys: Sequence[Mapping[str, int]],
        rows: Mapping[str, int],
    ) -> dict[str, Any]:
        n = partitioned.count
        # A key that is in two partitions counts in both; that it is so fails elsewhere.
        held = Counter(number for numbers in keys for number in numbers)
        each = [held[str(number)] for number in range(n)]
        least, most = key_limits(len(keys), n, (1 - self.confidence) / (2 * n))
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
