"""Tests of chance: whether destinations come as if each message had been drawn for by itself.

nats-server draws anew for each message. So neither the order of the messages nor their keys say
anything about their destinations. Three things that a share alone does not show are tested, each
given the share that there was:

- `runs`: how often a destination follows itself, in stretches of 256 messages. In a stretch with
  given counts every order is equally likely, so the number of runs has a known distribution
  (Wald and Wolfowitz, "On a test whether two samples are from the same population", Annals of
  Mathematical Statistics 11, 1940).
- `spacing`: how evenly a destination is spread over the two halves of each stretch; its count in
  one half is hypergeometric.
- `keys`: whether all keys have the same split: Pearson's test of independence of the destinations
  and a hash of the key.

A share that moves from one stretch to the next says nothing against the first two. Their p-values
are bounds that hold for any number of messages (Chernoff, "A measure of asymptotic efficiency for
tests of a hypothesis based on the sum of observations", 1952), from the exact distributions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import scipy  # not `from`: it loads `stats`, which takes long, when that is used

from nats_transform.audit.levels import intervals_of
from nats_transform.audit.statistics import Counts, Floats
from nats_transform.audit.tallies import End

STRETCH = 256
"""Messages in a row that are looked at together. One of many more would see fewer changes of the
share as what they are; one of fewer would see less of an order that repeats seldom."""

HALF = STRETCH // 2
KEYS = 1024
"""Keys are told apart by a hash below this."""

_ENOUGH = 20
"""The least count that each cell of the table of keys must expect, for Pearson's test to hold even
far out in its tail."""

_SLOPES = np.geomspace(1e-6, 4, 40)
"""Where the bound is looked for; a slope that is near the best one loses next to nothing."""

Of: TypeAlias = Callable[[int], tuple[Floats, Floats]]
"""The values that a test has in a stretch with a count, and the logarithms of their chances."""


@dataclass(frozen=True)
class Draws:
    """What the order and the keys of the messages of one mapping in one cluster show.

    Attributes:
        ends: the ends of the mapping; all else has a row or column for each.
        stretches: how many stretches have 0, 1, 2, ... messages of the end.
        repeats: messages that came to the end right after another one, within a stretch.
        unevenness: the sum of the squared differences between the halves of each stretch.
        keys: how many messages there are of each hash and end; a row for each hash.
    """

    ends: tuple[End, ...]
    stretches: Counts
    repeats: Counts
    unevenness: Counts
    keys: Counts

    @classmethod
    def none(cls, ends: Sequence[End]) -> Draws:
        """The draws of no message."""
        count = len(ends)
        shapes = ((count, STRETCH + 1), (count,), (count,), (KEYS, count))
        return cls(tuple(ends), *(np.zeros(shape, np.int64) for shape in shapes))

    def __add__(self, other: Draws) -> Draws:
        return Draws(
            self.ends,
            self.stretches + other.stretches,
            self.repeats + other.repeats,
            self.unevenness + other.unevenness,
            self.keys + other.keys,
        )

    def add_order(self, places: np.ndarray) -> None:
        """Counts the places in `ends` of messages in a row; their number is one of stretches."""
        rows = places.reshape(-1, STRETCH)
        for end in range(len(self.ends)):
            here = rows == end
            halves = here.view(np.uint8).reshape(-1, 2, HALF).sum(axis=2, dtype=np.uint8)
            first, second = halves.astype(np.int64).T
            self.stretches[end] += np.bincount(first + second, minlength=STRETCH + 1)
            self.repeats[end] += np.count_nonzero(here[:, 1:] & here[:, :-1])
            self.unevenness[end] += ((first - second) ** 2).sum()

    def add_keys(self, hashes: np.ndarray, places: np.ndarray) -> None:
        """Counts the hash of the key of each message, and its place in `ends`."""
        cells = np.bincount(hashes * len(self.ends) + places, minlength=self.keys.size)
        self.keys[:] += cells.reshape(self.keys.shape)


class Finding(NamedTuple):
    """A test of chance with its own p-value, or a bound of it; `ChanceTest` has the same fields."""

    test: Literal["runs", "spacing", "keys"]
    destination: str | None
    messages: int
    seen: float
    expected: float
    p_value: float


def findings(draws: Draws) -> Iterator[Finding]:
    """The tests of the draws of a mapping; those that have no message to look at are left out."""
    counts = np.arange(STRETCH + 1)
    sizes = draws.stretches @ counts
    # Those of other clusters have none. Of two ends, one follows from the other: the rarer counts.
    places = sorted(np.flatnonzero(sizes).tolist(), key=sizes.__getitem__)
    for place in places[:1] if intervals_of(len(places)) == 1 else places:
        stretches = draws.stretches[place]
        messages = int(stretches.sum()) * STRETCH
        for name, of_count, seen in (
            ("runs", _repeats, draws.repeats[place]),
            ("spacing", _unevenness, draws.unevenness[place]),
        ):
            expected, p_value = _bound(stretches, of_count, float(seen))
            end = draws.ends[place].destination
            yield Finding(name, end, messages, float(seen), expected, p_value)  # type: ignore[arg-type]
    table = _pooled(draws.keys)
    if min(table.shape) > 1:
        test = scipy.stats.chi2_contingency(table, correction=False)
        free = (table.shape[0] - 1) * (table.shape[1] - 1)
        yield Finding(
            "keys", None, int(table.sum()), float(test.statistic), free, float(test.pvalue)
        )


def _pooled(keys: Counts) -> Counts:
    """The table of keys, with so few rows that each cell expects enough."""
    table = keys[:, keys.sum(axis=0) > 0]
    if table.shape[1] < 2:
        return table
    part = table.sum(axis=0).min() / table.sum()
    while len(table) > 2 and table.sum() * part < _ENOUGH * len(table):
        table = table[::2] + table[1::2]
    few = table.sum(axis=1) * part < _ENOUGH
    table = np.vstack([table[~few], table[few].sum(axis=0, keepdims=True)])
    return np.asarray(table[table.sum(axis=1) * part >= _ENOUGH])


def _bound(stretches: Counts, test: Of, seen: float) -> tuple[float, float]:
    """What a sum over stretches is on average, and a bound of the chance that it is as far off."""
    average, exponents = 0.0, np.zeros((2, len(_SLOPES)))
    for count in np.flatnonzero(stretches).tolist():
        mean, logs = _exponents(test, count)
        average += stretches[count] * mean
        exponents += stretches[count] * logs
    off = seen - average
    least = (exponents - off * np.array([_SLOPES, -_SLOPES])).min()
    return average, min(1.0, 2 * float(np.exp(least)))


@cache
def _exponents(test: Of, count: int) -> tuple[float, Floats]:
    """The mean in a stretch that has `count` of an end, and the logarithms of the moments around it
    that the bound is made of: a row for too many and one for too few, a column for each slope."""
    values, logs = test(count)
    mean = float(np.exp(logs) @ values)
    tilted = logs + np.array([_SLOPES, -_SLOPES])[..., None] * (values - mean)
    most = tilted.max(axis=-1)
    return mean, np.asarray(most + np.log(np.exp(tilted - most[..., None]).sum(axis=-1)))


def _repeats(count: int) -> tuple[Floats, Floats]:
    """How often an end follows itself in a stretch that has `count` of it: values, log chances."""
    if not count:
        return np.zeros(1), np.zeros(1)
    runs = np.arange(1, min(count, STRETCH - count + 1) + 1)
    chances = _ways(count - 1, runs - 1) + _ways(STRETCH - count + 1, runs)
    return _known(count - runs, chances)


def _unevenness(count: int) -> tuple[Floats, Floats]:
    """The square of the difference between the halves of a stretch that has `count` of an end."""
    first = np.arange(max(0, count - HALF), min(count, HALF) + 1)
    return _known((2.0 * first - count) ** 2, _ways(HALF, first) + _ways(HALF, count - first))


def _known(values: Any, logs: Floats) -> tuple[Floats, Floats]:
    return np.asarray(values, np.float64), np.asarray(logs - scipy.special.logsumexp(logs))


def _ways(size: int, chosen: Any) -> Floats:
    """The logarithm of the number of ways to choose some of `size`."""
    gammaln = scipy.special.gammaln
    return np.asarray(gammaln(size + 1) - gammaln(chosen + 1) - gammaln(size - chosen + 1))
