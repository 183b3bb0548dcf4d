"""Whether partition numbers are in range, equal for equal keys, and evenly used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from expectations.expectation import Expectation, Judgement, Row, no_row
from expectations.measures import TransformedMeasures
from nats_transform import AccountMappings
from nats_transform.audit import End
from nats_transform.audit.partitions import PartitionedEnd, partitioned_ends
from nats_transform.kernel.counting import Coded, combinations
from nats_transform.kernel.proof import Opinion
from nats_transform.kernel.rules import State
from nats_transform.words import plural

MAX_NUMBERS = 4096
"""Rows of a `partition(n)` are counted up to this n."""

SHOWN_NUMBERS = 64
"""Up to so many partitions, the details have the messages of each."""

_NUMBERS = {str(number).encode(): number for number in range(MAX_NUMBERS)}
_NONE, _OUTSIDE = -1, -2  # of rows without a partition number, and of those with an impossible one


class Partitions:
    """Counts messages by partition number; it can be sent to a task.

    Args:
        mappings: what wrote the messages.
        states: what messages can come to.
        one_key_in: of one key in so many, messages are counted apart.
    """

    def __init__(self, mappings: AccountMappings, states: Iterable[State], one_key_in: int) -> None:
        known = {end.end: end for end in partitioned_ends(mappings, MAX_NUMBERS)}
        none = PartitionedEnd(End("", ""), 0, 0)
        self._ends = [known.get(End(s.source or "", s.destination or ""), none) for s in states]
        self._counts = np.array([end.count for end in self._ends])
        self._one_key_in = one_key_in

    def count(
        self,
        measures: TransformedMeasures,
        mapped: pa.Array,
        opinion: Opinion,
        is_right: np.ndarray,
        is_of_end: np.ndarray,
    ) -> dict[str, np.ndarray]:
        """Counts the rows of a batch, judged by `Outcomes`, and says which of them break a rule."""
        if not self._counts.any():
            return {}
        rows = np.flatnonzero(self._counts[opinion.states])
        states, keys = opinion.states[rows], opinion.hashes[rows].astype(np.int64)
        expected = keys % self._counts[states]
        # Where the subject is right, its number is, too; else it is read there.
        numbers = np.where(is_right[rows], expected, _NONE)
        others = np.flatnonzero(~is_right[rows] & is_of_end[rows])
        subjects = mapped.take(pa.array(rows[others])).view(pa.binary()).to_pylist()
        for place, subject in zip(others.tolist(), subjects, strict=True):
            if subject is not None:
                numbers[place] = _number_in(subject, self._ends[states[place]])
        there = np.flatnonzero(numbers >= 0)
        ends, every = [end.end for end in self._ends], range(self._counts.max())
        of_ends, numbered = Coded(states[there], ends), Coded(numbers[there], every)
        for (end, number), count in combinations(of_ends, numbered):
            measures.numbers[end][number] += count
        there = there[sample_hashes(keys[there]) % self._one_key_in == 0]
        of_ends, numbered = Coded(states[there], ends), Coded(numbers[there], every)
        keyed = Coded(keys[there], range(2**32))
        for (end, key, number), count in combinations(of_ends, keyed, numbered):
            measures.keys[end][key, number] += count
        outside, strayed = np.zeros((2, len(mapped)), bool)
        outside[rows] = numbers == _OUTSIDE
        strayed[rows] = (numbers != _NONE) & (numbers != expected)
        return {"outside": outside, "strayed": strayed}


def _number_in(subject: bytes, of: PartitionedEnd) -> int:
    """The number that a subject has at its place, or in the nearest token."""
    tokens = subject.split(b".")
    place = of.place - (of.place > 0)
    number = _NUMBERS.get(tokens[max(-len(tokens), min(place, len(tokens) - 1))], _OUTSIDE)
    return number if number < of.count else _OUTSIDE


def sample_hashes(numbers: np.ndarray) -> np.ndarray:
    """Whole numbers, mixed so that those with any remainder are a sample (SplitMix64)."""
    mixed = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (mixed ^ (mixed >> np.uint64(31))).view(np.int64)


def numbers_in_range() -> Expectation:
    """In every subject, the number that `partition(n)` gave is one of 0 to n - 1."""
    return no_row(
        "ExpectPartitionNumbersInRange", "partitions", "outside",
        "Every number that partition(n) gave lies between 0 and n - 1.",
        "No consumer reads a partition that does not exist.",
        "with the number of no partition",
    )  # fmt: skip


def keys_stay() -> Expectation:
    """Every message is in the partition of its key, so all messages of a key are in one."""
    return no_row(
        "ExpectKeysToKeepTheirPartition", "partitions", "strayed",
        "Every message is in the partition of its key, so all messages of a key are in one.",
        "A consumer of one partition relies on seeing every message of its keys, in order.",
        "in a partition that is not that of the key",
    )  # fmt: skip


def partitions_balanced(mappings: AccountMappings, confidence: float = 0.9999) -> Expectation:
    """The keys are spread over the partitions as evenly as by chance.

    Args:
        confidence: the probability, 0 to 1, that keys which are spread by chance pass.
    """

    def judge(measures: TransformedMeasures) -> Judgement:
        ends = [end for end in partitioned_ends(mappings, MAX_NUMBERS) if end.end in measures.keys]
        error = (1 - confidence) / max(1, len(ends))
        rows = [_spread(end, measures.keys[end.end], error) for end in ends]
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
                end.end: [measures.numbers[end.end][number] for number in range(end.count)]
                for end in ends
                if end.count <= SHOWN_NUMBERS
            },
        )

    return Expectation(
        "ExpectPartitionsToBeBalanced", "partitions",
        "Each of n partitions has 1/n of the keys, give or take what chance explains at "
        f"confidence {confidence}.",
        "The limits are binomial, corrected for the number of all partitions. A partition with too "
        "many keys gets too many messages. So does one with a few busy keys, but this expectation "
        "doesn't see that.",
        judge, arguments={"confidence": confidence}, blocks=False,
    )  # fmt: skip


def _spread(end: PartitionedEnd, keyed: Iterable[tuple[int, int]], error: float) -> Row:
    # A key that is in two partitions counts in both; that it is so fails elsewhere.
    keys_in = Counter(number for _, number in keyed)
    each, keys = [keys_in[number] for number in range(end.count)], len({key for key, _ in keyed})
    least, most = key_limits(keys, end.count, error / (2 * end.count))
    return {
        "mapping": end.end.source,
        "destination": end.end.destination,
        "n": end.count,
        "keys": keys,
        "fewest keys": min(each),
        "at least": least,
        "most keys": max(each),
        "at most": most,
    }


def key_limits(keys: int, partitions: int, tail: float) -> tuple[int, int]:
    """The fewest and the most keys of a partition that chance gives one; `tail` is beyond each.

    Equals `ppf` and `isf` of `scipy.stats.binom`, which takes four times as long to import.
    """
    from scipy import special  # most mappings do not need it

    counts = np.arange(keys + 1)
    below = special.bdtr(counts, keys, 1 / partitions)
    above = special.bdtrc(counts, keys, 1 / partitions)
    return int(np.argmax(below >= tail)), int(np.argmax(above <= tail))
