"""The statistics of an audit: intervals, tests, sample sizes and change points, on plain counts.

Everything rests on SciPy's special functions; each function cites its method, and the tests compare
with `scipy.stats`, which takes half a second to load. Shares are fractions, 0 to 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, pairwise
from math import comb
from typing import Any, TypeAlias

import numpy as np
import scipy  # not `from`: it loads a part when that is used
from numpy.typing import ArrayLike, NDArray

Floats: TypeAlias = NDArray[np.float64]
Counts: TypeAlias = NDArray[np.int64]

POWER = 0.95
"""The probability that an audit of `messages_to_decide` messages reaches the right verdict."""

EXACT_OUTCOMES = 20_000
"""The exact multinomial test lists every possible outcome, up to this many."""

ENOUGH = 5
"""The least expected count in each cell for which G is close to chi-square (Cochran 1954)."""

_SIMULATIONS = 9_999
_UNDECIDABLE = 10**12  # no archive is larger: the share sits on the edge of the tolerance


def intervals(counts: ArrayLike, totals: ArrayLike, confidence: ArrayLike) -> tuple[Floats, Floats]:
    """The lowest and highest shares that agree with the counts, one pair for each count.

    Clopper and Pearson, "The use of confidence or fiducial limits illustrated in the case of the
    binomial", Biometrika 26 (1934), in its beta form: coverage is never below `confidence`.
    Equals `scipy.stats.binomtest(count, total).proportion_ci(confidence, "exact")`. A total of 0
    gives 0 to 1.
    """
    k, n, level = np.broadcast_arrays(
        np.asarray(counts, np.float64), np.asarray(totals, np.float64), np.asarray(confidence)
    )
    tail = (1 - level) / 2
    low = np.zeros(k.shape)
    high = np.ones(k.shape)
    some, rest = k > 0, k < n
    low[some] = scipy.special.betaincinv(k[some], n[some] - k[some] + 1, tail[some])
    high[rest] = scipy.special.betainccinv(k[rest] + 1, n[rest] - k[rest], tail[rest])
    return low, high


@dataclass(frozen=True, slots=True)
class Fit:
    """How well counts fit configured shares.

    Attributes:
        method: the name of the test.
        p_value: the probability of counts at least as far off if the shares are right.
    """

    method: str
    p_value: float


def fits(samples: Sequence[Sequence[int]], shares: Sequence[float]) -> list[Fit]:
    """The goodness of fit of each sample of multinomial counts to shares that add up to 1.

    If all outcomes can be listed, the test is exact: it adds up those that are not likelier than
    the counts. If not, and some cell expects fewer than 5, it is a Monte Carlo test. Otherwise it
    is the G test (Sokal and Rohlf, "Biometry"; Cressie and Read 1984).
    """
    if not samples:
        return []
    counts = np.asarray(samples, np.int64)
    chances = np.asarray(shares, np.float64)
    used = chances > 0
    cells, totals = counts[:, used], counts.sum(axis=1)
    chances = chances[used] / chances.sum() if used.any() else chances[used]
    is_large = (cells.sum(axis=1) == totals) & (totals > 50) & (len(chances) > 1)
    is_large &= totals * chances.min(initial=1) >= ENOUGH
    tested: dict[int, Fit] = {}
    if is_large.any():
        expected = totals[is_large, None] * chances
        p_values = _g(cells[is_large], expected, len(chances) - 1)
        places = np.flatnonzero(is_large).tolist()
        tested = {n: Fit("G", float(p)) for n, p in zip(places, p_values, strict=True)}
    return [tested.get(n) or _fit(cells[n], int(total), chances) for n, total in enumerate(totals)]


def _g(counts: Counts, expected: Floats, freedom: int) -> Floats:
    """The p-values of the G test for rows of counts."""
    g = 2 * scipy.special.xlogy(counts, counts / expected).sum(axis=-1)
    # Of counts that are as expected, rounding can make it negative.
    return np.asarray(scipy.special.chdtrc(freedom, np.maximum(g, 0)), np.float64)


def _fit(seen: Counts, total: int, chances: Floats) -> Fit:
    """The fit of a sample that is too small for G, to shares above 0."""
    if seen.sum() < total:  # some were counted where there is no share
        return Fit("exact multinomial", 0.0)
    if total == 0 or len(seen) < 2:
        return Fit("exact multinomial", 1.0)
    name = "binomial" if len(seen) == 2 else "multinomial"
    here = _log_likelihood(seen, total, chances)
    if comb(total + len(seen) - 1, len(seen) - 1) <= EXACT_OUTCOMES:
        likelihoods = _log_likelihood(_outcomes(total, len(seen)), total, chances)
        # The margin that SciPy's binomtest takes for likelihoods that are equal but for rounding.
        p = np.exp(likelihoods[likelihoods <= here + 1e-7]).sum()
        return Fit(f"exact {name}", min(1.0, float(p)))
    if len(seen) == 2:
        p = scipy.stats.binomtest(int(seen[0]), total, float(chances[0])).pvalue
        return Fit(f"exact {name}", float(p))
    # A generator of its own, always seeded alike: the same counts give the same p-value.
    draws = np.random.RandomState(0).multinomial(total, chances, _SIMULATIONS)
    as_unlikely = int((_log_likelihood(draws, total, chances) <= here + 1e-7).sum())
    return Fit(f"Monte Carlo {name}", (as_unlikely + 1) / (_SIMULATIONS + 1))


def _log_likelihood(counts: Counts, total: int, chances: Floats) -> Floats:
    """The logarithm of the multinomial probability of each row of counts."""
    gammaln, xlogy = scipy.special.gammaln, scipy.special.xlogy
    ways = gammaln(total + 1) - gammaln(counts + 1).sum(axis=-1)
    return np.asarray(ways + xlogy(counts, chances).sum(axis=-1), np.float64)


def _outcomes(total: int, cells: int) -> Counts:
    """Every way to spread `total` over some cells, one row each: bars between stars."""
    slots = total + cells - 1
    bars = np.array(list(combinations(range(slots), cells - 1)), np.int64)
    edges = np.pad(bars, ((0, 0), (1, 1)), constant_values=((0, 0), (-1, slots)))
    return np.asarray(np.diff(edges, axis=1) - 1, np.int64)


def homogeneity(table: Sequence[Sequence[int]]) -> Fit:
    """Whether the rows of a table of counts share one split: the G test of independence.

    Empty rows and columns are left out. One row or column alone gives a p-value of 1.
    """
    counts = np.asarray(table)
    counts = counts[counts.sum(axis=1) > 0][:, counts.sum(axis=0) > 0]
    if min(counts.shape) < 2:
        return Fit("G", 1.0)
    rows, columns = counts.sum(axis=1), counts.sum(axis=0)
    expected = np.outer(rows, columns / counts.sum())
    freedom = (len(rows) - 1) * (len(columns) - 1)
    return Fit("G", float(_g(counts.ravel(), expected.ravel(), freedom)))


@lru_cache(maxsize=4096)
def messages_to_decide(
    share: float, tolerance: float, confidence: float, power: float = POWER
) -> int | None:
    """How many messages decide whether a share is within its tolerance; None if no number does.

    With this number or more, an interval of this confidence lies inside `share ± tolerance` with at
    least this power if the share is right, and outside it if the true share is off by twice the
    tolerance. The number comes from the exact binomial power of the Clopper-Pearson interval. That
    power rises with the size in the shape of a saw (Chernick and Liu, The American Statistician 56,
    2002), so the number lies after the last size whose power is too low.
    """
    tail = (1 - confidence) / 2
    edges = (share - tolerance, share + tolerance)
    off = [s for s in (share - 2 * tolerance, share + 2 * tolerance) if 0 <= s <= 1]

    def least_power(sizes: Counts) -> Floats:
        limits = _Limits(sizes, *edges, tail)
        powers = [limits.inside(share), *(limits.outside(truth) for truth in off)]
        return np.asarray(np.minimum.reduce(powers), np.float64)

    return _least_size(least_power, power)


@lru_cache(maxsize=4096)
def messages_to_settle(
    truth: float, share: float, tolerance: float, confidence: float, power: float = POWER
) -> int | None:
    """About the same as `messages_to_decide`, if the true share is the one that was seen so far.

    What was seen is not exact either, so the teeth of the saw are left alone.
    """
    tail = (1 - confidence) / 2

    def either(sizes: Counts) -> Floats:
        limits = _Limits(sizes, share - tolerance, share + tolerance, tail)
        return np.maximum(limits.inside(truth), limits.outside(truth))

    return _least_size(either, power, 50, 0)


class _Limits:
    """The counts at which an interval passes the edges of a tolerance, at each size.

    Clopper-Pearson turned round: the interval starts above an edge from the first count on that is
    this unlikely at the edge, and ends below an edge up to the last such count.
    """

    def __init__(self, sizes: Counts, bottom: float, top: float, tail: float) -> None:
        n = self._sizes = sizes.astype(np.float64)
        self._below_bottom, self._above_bottom = np.full(n.shape, -1.0), np.zeros(n.shape)
        if bottom > 0:
            self._below_bottom = _quantile(tail, n, bottom) - 1
            self._above_bottom = _quantile(1 - tail, n, bottom) + 1
        self._below_top, self._above_top = n, n + 1
        if top < 1:
            self._below_top = _quantile(tail, n, top) - 1
            self._above_top = _quantile(1 - tail, n, top) + 1

    def inside(self, truth: float) -> Floats:
        """The probability that the interval lies inside the tolerance, of a true share."""
        n = self._sizes
        inside = _up_to(self._below_top, n, truth) - _up_to(self._above_bottom - 1, n, truth)
        return np.maximum(inside, 0.0)

    def outside(self, truth: float) -> Floats:
        """The same of one that lies outside it."""
        n = self._sizes
        # Seen from the other end, a small probability keeps its digits.
        return _up_to(self._below_bottom, n, truth) + _up_to(n - self._above_top, n, 1 - truth)


def _up_to(counts: Floats, totals: Floats, chance: float) -> Floats:
    """The binomial probability of at most so many of some messages."""
    within = scipy.special.betaincc(
        np.maximum(counts, 0) + 1, np.maximum(totals - counts, 1), chance
    )
    return np.where(counts < 0, 0.0, np.where(counts >= totals, 1.0, within))


def _quantile(probability: float, totals: Floats, chance: float) -> Floats:
    """The least count whose `_up_to` reaches a probability; above 10**9 messages, about that."""
    passed = scipy.special.bdtrik(probability, totals, chance)
    counts: Floats = np.ceil(passed)
    near = np.flatnonzero(counts - passed > 0.9)  # rounding may have passed a count
    low = np.maximum(counts[near] - 1, 0)
    counts[near] = np.where(_up_to(low, totals[near], chance) >= probability, low, counts[near])
    return counts


def _least_size(
    power_at: Callable[[Counts], Floats], power: float, parts: int = 1000, teeth: int = 400
) -> int | None:
    """The lowest size from which on every size has the power; None if there is none.

    It is found to one of so many parts of itself, and so many sizes above it are looked at.
    """
    sizes = 2 ** np.arange(_UNDECIDABLE.bit_length())
    enough = np.flatnonzero(power_at(sizes) >= power)
    if not enough.size:
        return None
    high = int(sizes[enough[0]])
    low = high // 2
    has_power: dict[int, bool] = {}
    while high - low > max(1, low // parts):
        middle = (low + high) // 2
        if middle not in has_power:
            sizes = _middles(low, high)
            has_power = dict(zip(sizes.tolist(), power_at(sizes) >= power, strict=True))
        if has_power[middle]:
            high = middle
        else:
            low = middle
    if not teeth:
        return high
    nearby = np.unique(np.linspace(high, high + high // 4 + 40, teeth, dtype=np.int64))
    short = np.flatnonzero(power_at(nearby) < power)
    if not short.size:
        return high
    return int(nearby[min(short[-1] + 1, len(nearby) - 1)])


def _middles(low: int, high: int) -> Counts:
    """The sizes that the next five halvings can come to: one call of SciPy costs as much as 30."""
    sizes = [low, high]
    for _ in range(5):
        sizes = sorted({*sizes, *((one + other) // 2 for one, other in pairwise(sizes))})
    return np.array(sizes, np.int64)


def change_points(counts: ArrayLike, confidence: float) -> list[int]:
    """Where the split of a series changed: the first row of each new regime.

    This is optimal partitioning (Jackson et al. 2005; PELT, Killick et al. 2012) of multinomial
    counts. It finds the segments that lose the least log-likelihood. Each change must lower the
    deviance by more than the chi-square quantile of `confidence`, with a Bonferroni correction for
    its possible places. A regime needs enough messages for that quantile to hold: its smallest cell
    must expect 5.

    Args:
        counts: one row for each time bucket, one column for each destination.
        confidence: the probability that a steady series shows no change at all.
    """
    table = np.asarray(counts, np.int64)
    table = table[:, table.sum(axis=0) > 0]
    steps, cells = table.shape if table.size else (0, 0)
    if steps < 2 or cells < 2:
        return []
    totals = table.sum(axis=0)
    whole = int(totals.sum())
    least = min(ENOUGH * whole / int(totals.min()), whole / 10)
    penalty = float(scipy.special.chdtri(cells - 1, (1 - confidence) / steps))
    reached = np.vstack([np.zeros(cells, np.int64), table.cumsum(axis=0)])
    best = np.full(steps + 1, np.inf)
    best[0] = -penalty
    before = np.zeros(steps + 1, np.int64)
    for end in range(1, steps + 1):
        inside = (reached[end] - reached[:end]).astype(np.float64)
        sizes = inside.sum(axis=1)
        costs = best[:end] + _deviance(inside, sizes) + penalty
        costs[sizes < least] = np.inf
        before[end] = int(np.argmin(costs))
        best[end] = costs[before[end]]
    if not np.isfinite(best[steps]):
        return []
    places: list[int] = []
    place = int(before[steps])
    while place > 0:
        places.append(place)
        place = int(before[place])
    return places[::-1]


def _deviance(inside: Floats, sizes: Floats) -> Floats:
    """Minus twice the log-likelihood of each row under its own shares."""
    logs = np.log(np.where(inside > 0, inside, 1.0))
    whole = np.log(np.where(sizes > 0, sizes, 1.0))
    result: Any = -2 * ((inside * logs).sum(axis=1) - sizes * whole)
    return np.asarray(result, np.float64)
