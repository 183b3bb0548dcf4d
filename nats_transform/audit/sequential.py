"""Audits that people may repeat at any time without more false alarms.

An ordinary interval is made for a single look. If people look every hour, it will miss the true
share some day though nothing is wrong. The results of this module hold at all looks together,
however many there are:

- `evidence` is an e-process: while the true share stays within its tolerance, the chance that the
  evidence ever reaches 1/a is at most a (Ville's inequality). In every hour it starts bets on a few
  shares beyond the edge of the tolerance (Robbins' mixture of likelihood ratios, "Statistical
  methods related to the law of the iterated logarithm", 1970; as bets: Waudby-Smith and Ramdas,
  "Estimating means of bounded random variables by betting", JRSS B 86, 2024). The share may change
  within the tolerance. The extra evidence that it takes to find a fault that starts in hour n grows
  with the logarithm of n only.
- `interval` is a confidence sequence: if the true share is constant, the probability that the
  interval misses it at any look is at most 1 - confidence (Howard, Ramdas, McAuliffe and Sekhon,
  "Time-uniform, nonparametric, nonasymptotic confidence sequences", Annals of Statistics 49, 2021,
  for a beta-binomial mixture).

Shares are fractions, 0 to 1; evidence is the natural logarithm of an e-value.
"""

from __future__ import annotations

import numpy as np
import scipy
from numpy.typing import ArrayLike

from nats_transform.audit.statistics import Floats

SLOWEST = 1.6
"""Of 100 looks at a canary that is right, or off by twice the tolerance, 95 decide it with at most
this many times the messages that one look needs; measured in simulations."""

_BETS = 2.0 ** np.arange(-1, 8)
"""How far beyond the edge each bet lies, in tolerances: from half of one to very many."""

_HALVINGS = 60  # halvings of an interval of length 1; a float cannot tell more apart


def weight(hour: ArrayLike) -> Floats:
    """The part of the allowed error for each hour, from hour 0 on; all parts add up to 1."""
    n = np.asarray(hour, np.float64)
    return np.asarray(1 / ((n + 1) * (n + 2)))


def bets(hits: ArrayLike, misses: ArrayLike, edge: float, tolerance: float) -> Floats:
    """The logarithm of the factor that each bet on a share above the edge wins.

    The result has one more axis than `hits`, the last, with one number for each bet. While the
    true share is not above the edge, the factor of each bet is at most 1 on average.
    """
    # No bet lies more than half-way from the edge to 1, and what would is one bet.
    shares = np.unique(np.minimum(edge + _BETS * tolerance, (1 + edge) / 2))
    up, down = np.log(shares / edge), np.log1p(-shares) - np.log1p(-edge)
    won = np.asarray(hits)[..., None] * up + np.asarray(misses)[..., None] * down
    return np.asarray(won, np.float64)


def above(hits: ArrayLike, misses: ArrayLike, edge: float, tolerance: float) -> Floats:
    """The evidence in one group of messages that the share is above the edge."""
    if not 0 < edge < 1:
        return np.zeros(np.shape(hits))
    won = bets(hits, misses, edge, tolerance)
    return np.asarray(scipy.special.logsumexp(won, axis=-1) - np.log(won.shape[-1]), np.float64)


def evidence(
    hits: ArrayLike, misses: ArrayLike, hours: ArrayLike, edge: float, tolerance: float
) -> Floats:
    """The evidence after each hour with messages that the share has been above the edge.

    Args:
        hits: messages that came to the destination, one number for each hour with messages. The
            last axis is time.
        misses: messages that did not come to the destination.
        hours: the numbers of these hours since the canary began, from 0 on, ascending.
        edge: the highest share that is within the tolerance.
        tolerance: the size of the smallest bets.
    """
    if not 0 < edge < 1:
        return np.zeros(np.shape(hits))
    won = bets(hits, misses, edge, tolerance)
    reached = np.cumsum(won, axis=-2)
    entered = np.log(weight(hours))[:, None] - (reached - won)
    # The worth of the bets that started in each hour so far, and the stake that is not placed yet.
    each = reached + np.logaddexp.accumulate(entered, axis=-2)
    placed = np.asarray(scipy.special.logsumexp(each, axis=-1) - np.log(won.shape[-1]))
    waiting = -np.log(np.asarray(hours, np.float64) + 2)
    return np.asarray(np.logaddexp(placed, waiting), np.float64)


def interval(
    counts: ArrayLike, totals: ArrayLike, share: float, tolerance: float, confidence: ArrayLike
) -> tuple[Floats, Floats]:
    """The lowest and highest shares that agree with the counts, at this look and at all others.

    Args:
        counts: messages that came to the destination.
        totals: all messages; without messages the interval is 0 to 1.
        share: the expected share; the interval is shortest for shares near it.
        tolerance: about the length that the interval is to reach there.
        confidence: the probability that the intervals of all looks hold the true share.
    """
    k, n, level = np.broadcast_arrays(
        np.asarray(counts, np.float64), np.asarray(totals, np.float64), np.asarray(confidence)
    )
    middle = min(max(share, tolerance / 4), 1 - tolerance / 4)
    size = max(1.0, middle * (1 - middle) / (tolerance / 2) ** 2 - 1)
    a, b = middle * size, (1 - middle) * size
    most = scipy.special.betaln(a + k, b + n - k) - scipy.special.betaln(a, b) + np.log1p(-level)
    seen = np.divide(k, n, out=np.full(k.shape, 0.5), where=n > 0)

    def edge(far: float) -> Floats:
        out, inside = np.full(k.shape, far), seen.copy()
        for _ in range(_HALVINGS):
            middle = (out + inside) / 2
            likelihood = scipy.special.xlogy(k, middle) + scipy.special.xlog1py(n - k, -middle)
            is_out = likelihood <= most
            out, inside = np.where(is_out, middle, out), np.where(is_out, inside, middle)
        return np.asarray(out, np.float64)

    low, high = edge(0.0), edge(1.0)
    return low, high
