"""Coverage agrees with plain sets of sequences."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_transform.kernel.coverage import Coverage

ranges = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), max_size=6)


def members(of: list[tuple[int, int]]) -> set[int]:
    return {n for first, last in of for n in range(first, last + 1)}


@given(ranges, ranges)
def test_behaves_as_a_set(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    a, b = Coverage.of(one), Coverage.of(other)
    assert members(list((a | b).ranges)) == members(one) | members(other)
    assert members(list((a & b).ranges)) == members(one) & members(other)
    assert members(list((a - b).ranges)) == members(one) - members(other)
    assert {n for n in range(50) if n in a} == members(one)
    assert bool(a) == bool(members(one))


@given(ranges)
def test_is_canonical_and_survives_text(some: list[tuple[int, int]]) -> None:
    coverage = Coverage.of(some)
    assert Coverage.parse(str(coverage)) == coverage
    for (_, last), (first, _) in zip(coverage.ranges, coverage.ranges[1:], strict=False):
        assert last + 1 < first


@pytest.mark.parametrize(
    ("ranges", "text"),
    [
        pytest.param([], "", id="nothing"),
        pytest.param([(1, 5), (6, 9)], "1-9", id="neighbours-join"),
        pytest.param([(7, 7), (1, 2)], "1-2 7-7", id="sorted"),
        pytest.param([(5, 4)], "", id="backwards-is-empty"),
    ],
)
def test_text(ranges: list[tuple[int, int]], text: str) -> None:
    assert str(Coverage.of(ranges)) == text
