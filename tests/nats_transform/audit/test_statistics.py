"""The statistics against SciPy's own answers and against simulation."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from nats_transform.audit import statistics


@given(st.integers(0, 5000), st.integers(0, 5000), st.sampled_from([0.9, 0.99, 1 - 1e-6]))
def test_intervals_are_those_of_scipy(count: int, rest: int, confidence: float) -> None:
    total = count + rest
    low, high = statistics.intervals(count, total, confidence)
    if not total:
        assert (low, high) == (0, 1)
        return
    wanted = stats.binomtest(count, total).proportion_ci(confidence, "exact")
    assert float(low) == pytest.approx(wanted.low, abs=1e-9)
    assert float(high) == pytest.approx(wanted.high, abs=1e-9)


def fit(counts: Sequence[int], shares: Sequence[float]) -> statistics.Fit:
    """The fit of one sample."""
    (found,) = statistics.fits([counts], shares)
    return found


def test_samples_are_tested_one_by_one() -> None:
    samples = [[200, 9800, 0], [1, 9, 0], [5, 5, 5], [0, 0, 0], [9, 991, 0]]
    shares = [0.02, 0.98, 0]
    assert statistics.fits(samples, shares) == [fit(counts, shares) for counts in samples]
    assert statistics.fits([], shares) == statistics.fits([], []) == []


@pytest.mark.parametrize(
    ("counts", "shares", "method"),
    [
        ([3, 7], [0.5, 0.5], "exact binomial"),
        ([2, 3, 1], [0.2, 0.3, 0.5], "exact multinomial"),
        ([0, 2, 300], [0.001, 0.009, 0.99], "Monte Carlo multinomial"),
        ([200, 9800], [0.02, 0.98], "G"),
        ([5, 5], [1.0, 0.0], "exact multinomial"),
        ([5, 0], [1.0, 0.0], "exact multinomial"),
        ([0, 0], [0.5, 0.5], "exact multinomial"),
    ],
)
def test_which_fit_is_made(counts: list[int], shares: list[float], method: str) -> None:
    assert fit(counts, shares).method == method


def test_the_exact_multinomial_test_adds_up_what_is_no_likelier() -> None:
    counts, shares = [4, 1, 1], [0.2, 0.3, 0.5]
    here = stats.multinomial.pmf(counts, 6, shares)
    wanted = sum(
        p
        for a, b in product(range(7), repeat=2)
        if a + b <= 6
        for p in [stats.multinomial.pmf([a, b, 6 - a - b], 6, shares)]
        if p <= here * (1 + 1e-7)
    )
    assert fit(counts, shares).p_value == pytest.approx(wanted)


@given(st.integers(0, 60), st.integers(0, 60), st.floats(0.01, 0.99))
def test_two_cells_are_tested_as_by_scipy(count: int, rest: int, share: float) -> None:
    total = count + rest
    if 0 < total <= 50:
        wanted = stats.binomtest(count, total, share).pvalue
        assert fit([count, rest], [share, 1 - share]).p_value == pytest.approx(wanted)
        assert fit([count, rest, 0], [share, 1 - share, 0]).p_value == pytest.approx(wanted)


CELLS = st.lists(st.integers(0, 10_000), min_size=3, max_size=3)


@given(CELLS, st.sampled_from([(0.2, 0.3, 0.5), (0.02, 0.08, 0.9)]))
def test_g_is_that_of_scipy(counts: list[int], shares: tuple[float, ...]) -> None:
    found = fit(counts, shares)
    if found.method == "G":
        expected = np.array(shares) * sum(counts)
        wanted = stats.power_divergence(counts, expected, lambda_="log-likelihood").pvalue
        assert found.p_value == pytest.approx(wanted, rel=1e-6, abs=1e-300)


@given(st.lists(CELLS, min_size=2, max_size=4))
def test_homogeneity_is_that_of_scipy(table: list[list[int]]) -> None:
    counts = np.array(table) + 1
    wanted = stats.chi2_contingency(counts, correction=False, lambda_="log-likelihood").pvalue
    found = statistics.homogeneity(counts.tolist()).p_value
    assert found == pytest.approx(wanted, rel=1e-6, abs=1e-300)


@given(
    st.integers(1, 10**9),
    st.floats(1e-6, 1 - 1e-6),
    st.sampled_from([0.05, 0.005, 1e-6, 0.95, 0.995, 1 - 1e-6]),
    st.integers(-2, 2),
)
def test_binomial_limits_are_those_of_scipy(total: int, chance: float, p: float, off: int) -> None:
    sizes = np.array([total], np.float64)
    (limit,) = statistics._quantile(p, sizes, chance)
    assert limit == stats.binom.ppf(p, total, chance)
    (found,) = statistics._up_to(np.array([limit + off]), sizes, chance)
    assert found == pytest.approx(stats.binom.cdf(limit + off, total, chance), rel=1e-6)


def test_a_count_that_cannot_be() -> None:
    assert fit([1, 9], [0.0, 1.0]).p_value == 0


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.02, 0.98), (0.1, 0.3, 0.6), (0.01, 0.09, 0.9)])
@pytest.mark.parametrize("total", [8, 40, 700])
def test_p_values_keep_their_rate(shares: tuple[float, ...], total: int) -> None:
    rng = np.random.default_rng(1)
    samples = [rng.multinomial(total, shares).tolist() for _ in range(300)]
    p = [found.p_value for found in statistics.fits(samples, shares)]
    # At most 5 % below 0.05, with the room that 300 draws need (0.001 of the binomial).
    assert sum(value < 0.05 for value in p) <= stats.binom.isf(0.001, 300, 0.06)


@pytest.mark.parametrize("confidence", [0.99, 0.9999])
@pytest.mark.parametrize("tolerance", [0.01, 0.03])
@pytest.mark.parametrize("share", [0.0, 0.005, 0.02, 0.3, 0.5, 0.98, 1.0])
def test_the_messages_to_decide_do_decide(
    share: float, tolerance: float, confidence: float
) -> None:
    size = statistics.messages_to_decide(share, tolerance, confidence)
    rng = np.random.default_rng(2)

    def rate(truth: float, outside: bool) -> float:
        counts = rng.binomial(size, truth, 4000)
        low, high = statistics.intervals(counts, size, confidence)
        if outside:
            return float(np.mean((high < share - tolerance) | (low > share + tolerance)))
        return float(np.mean((low >= share - tolerance) & (high <= share + tolerance)))

    assert rate(share, outside=False) >= 0.94
    for truth in (share - 2 * tolerance, share + 2 * tolerance):
        if 0 <= truth <= 1:
            assert rate(truth, outside=True) >= 0.94


def test_the_messages_to_decide_are_not_many_too_many() -> None:
    fewer = statistics.messages_to_decide(0.02, 0.01, 0.99) * 8 // 10
    counts = np.random.default_rng(8).binomial(fewer, (0.02, 0.0, 0.04), (4000, 3))
    low, high = statistics.intervals(counts, fewer, 0.99)
    within = np.mean((low[:, 0] >= 0.01) & (high[:, 0] <= 0.03))
    outside = [np.mean(high[:, 1] < 0.01), np.mean(low[:, 2] > 0.03)]
    assert min(within, *outside) < 0.94


def test_a_share_on_the_edge_is_never_settled() -> None:
    assert statistics.messages_to_settle(0.03, 0.02, 0.01, 0.99) is None
    near, nearer = (
        statistics.messages_to_settle(share, 0.02, 0.01, 0.99) for share in (0.029, 0.0299)
    )
    assert near < nearer


def test_no_counts_are_homogeneous() -> None:
    assert statistics.homogeneity([[5, 5], [0, 0]]).p_value == 1


SERIES = [((0.02, 0.98), 2000, 72), ((0.01, 0.99), 30, 100), ((0.01, 0.01, 0.98), 300, 72)]


@pytest.mark.parametrize(("shares", "mean", "hours"), SERIES)
def test_a_steady_split_shows_no_change(shares: tuple[float, ...], mean: int, hours: int) -> None:
    rng = np.random.default_rng(4)
    changed = sum(
        bool(statistics.change_points(rng.multinomial(rng.poisson(mean, hours), shares), 0.99))
        for _ in range(150)
    )
    assert changed <= stats.binom.isf(0.001, 150, 0.01)


def test_changes_are_found_where_they_are() -> None:
    rng = np.random.default_rng(5)
    for _ in range(20):
        parts = [((0.02, 0.98), 30), ((0.05, 0.95), 12), ((0.0, 1.0), 20), ((0.02, 0.98), 10)]
        counts = np.vstack([rng.multinomial(2000, shares, n) for shares, n in parts])
        found = statistics.change_points(counts, 0.99)
        assert len(found) == 3
        assert all(abs(a - b) <= 1 for a, b in zip(found, (30, 42, 62), strict=True))


@pytest.mark.parametrize(
    "counts", [[], [[1, 2]], [[5], [6]], [[0, 5], [0, 9]], [[0, 0], [0, 0]]], ids=str
)
def test_nothing_that_could_change(counts: list[list[int]]) -> None:
    assert statistics.change_points(counts, 0.99) == []
