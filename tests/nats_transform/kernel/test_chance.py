"""Draws and `random()`: uniform, also one sequence after another, and independent.

The sequences are fixed, so a p-value is the same in every run: it says something about the hash and
nothing about luck.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from scipy.stats import chi2_contingency, chisquare

from nats_transform.kernel import compile_mappings
from tests.support.rules import mappings

SIZES = [
    pytest.param(200_000, id="quick"),
    pytest.param(10_000_000, id="ten-million", marks=[pytest.mark.slow]),
]
FACES = 10
# A dozen p-values are looked at: by chance alone one in a thousand runs would have one below this.
ALARM = 1e-4
NONE = -1


@lru_cache(maxsize=1)
def chances(count: int) -> dict[str, np.ndarray]:
    """For each sequence what two mappings draw and what two `random()` of one of them give.

    The arrays: here (0..99), there (0..99), first, second (0..9, or NONE).
    """
    random = f"{{{{random({FACES})}}}}"
    one, other = mappings({"a": [(f"{random}.{random}", 99)]}), mappings({">": [("x.>", 50)]})
    sequences = pa.array(np.arange(1, count + 1))
    subjects = pa.repeat(pa.scalar("a"), count)
    here = compile_mappings(one).run(subjects, stream="ORDERS", seq=sequences)
    there = compile_mappings(other).run(subjects, stream="ORDERS", seq=sequences)
    # Where the remainder keeps the subject there is no random(): one draw of a hundred.
    made = pc.if_else(pc.equal(here.subjects, b"a"), None, here.subjects)
    assert set(pc.binary_length(made).unique().to_pylist()) <= {3, None}
    faces = [
        pc.fill_null(pc.binary_slice(made, place, place + 1).cast(pa.string()).cast("int64"), NONE)
        for place in (0, 2)
    ]
    return {
        "here": here.draws.to_numpy(),
        "there": there.draws.to_numpy(),
        "first": faces[0].to_numpy(),
        "second": faces[1].to_numpy(),
    }


def counts(*values: np.ndarray) -> np.ndarray:
    """How often each value, or pair of values, comes up; what has a NONE is left out."""
    there = np.logical_and.reduce([value != NONE for value in values])
    shape = [1 + int(value.max()) for value in values]
    places = np.ravel_multi_index([value[there] for value in values], shape)
    return np.bincount(places, minlength=int(np.prod(shape))).reshape(shape)


@pytest.mark.parametrize("count", SIZES)
def test_uniform_and_independent(count: int) -> None:
    found = chances(count)
    for name, faces in (("here", 100), ("there", 100), ("first", FACES), ("second", FACES)):
        table = counts(found[name])
        assert len(table) == faces
        assert table.sum() >= 0.98 * count
        assert chisquare(table).pvalue > ALARM, name
    for one, other in (
        ("here", "there"),
        ("first", "second"),
        ("here", "first"),
        ("there", "second"),
    ):
        table = counts(found[one], found[other])
        seen = table[table.any(axis=1)]
        assert chi2_contingency(seen).pvalue > ALARM, (one, other)


@pytest.mark.parametrize("count", SIZES)
def test_one_sequence_tells_nothing_about_the_next(count: int) -> None:
    draws = chances(count)["here"]
    for step in (1, 2, 64):
        assert chi2_contingency(counts(draws[:-step], draws[step:])).pvalue > ALARM, step
