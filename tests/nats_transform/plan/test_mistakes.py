"""Planted mistakes are refused or planned around, and what is right is not refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from nats_transform.errors import InvalidConfig
from nats_transform.plan.build import NoPlan
from tests.nats_transform.plan.situations import PLANNED, SITUATIONS, Situation, steps

REFUSED = pytest.mark.parametrize("wrong", [pytest.param(one, id=one.id) for one in SITUATIONS])


@REFUSED
def test_a_mistake_is_refused_in_one_line(wrong: Situation, tmp_path: Path) -> None:
    assert wrong.refused is not None
    code, part = wrong.refused
    with pytest.raises(NoPlan) as caught:
        wrong.plan(tmp_path)
    (found,) = [one for one in caught.value.blocked if one.code == code][:1]
    assert part in f"{found.about}: {found.message}"
    assert found.cure
    assert "\n" not in str(caught.value)


@REFUSED
def test_the_same_without_the_mistake_has_a_plan(wrong: Situation, tmp_path: Path) -> None:
    right = wrong.without_the_mistake()
    made = right.plan(tmp_path)
    assert made.steps or right.mappings == right.current


@pytest.mark.parametrize("one", [pytest.param(one, id=one.id) for one in PLANNED])
def test_what_is_planned_around(one: Situation, tmp_path: Path) -> None:
    assert steps(one.plan(tmp_path)) == [one.text(line) for line in one.planned]


@pytest.mark.parametrize(
    ("mappings", "told"),
    [
        pytest.param(
            '"a": [{destination: b, weight: 60}, {destination: c, weight: 50}]',
            "brings the weights for all clusters to 110; at most 100",
            id="weights above 100",
        ),
        pytest.param('"a.*": "b.$2"', "b.$2", id="a wildcard that is not there"),
        pytest.param(
            '"a": [{destination: b, weight: 50}, {destination: b, weight: 50, cluster: x}]',
            "listed twice",
            id="a destination twice",
        ),
    ],
)
def test_mappings_that_the_server_refuses(mappings: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig) as caught:
        Situation("refused", mappings).plan(tmp_path)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.line == 1
