"""Planted mistakes are refused or planned around, and what is right is not refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobs.dry_run.question import read_question
from nats_transform.errors import InvalidConfig
from nats_transform.lint.findings import Severity
from nats_transform.mappings.moves import moves
from nats_transform.migration.findings import STOPS_PLAN
from nats_transform.migration.room.dependents import wide
from nats_transform.plan.build import NoPlan
from tests.nats_transform.plan.situations import PLANNED, SITUATIONS, Situation, steps
from tests.support.command import findings
from tests.support.refused import refused

REFUSED = pytest.mark.parametrize("wrong", [pytest.param(one, id=one.id) for one in SITUATIONS])


@pytest.mark.parametrize("one", [pytest.param(one, id=one.id) for one in PLANNED])
def test_what_is_planned_around(one: Situation, tmp_path: Path) -> None:
    assert steps(one.plan(tmp_path)) == [one.text(line) for line in one.planned]


def test_mappings_that_the_server_refuses(tmp_path: Path) -> None:
    with refused(InvalidConfig, "refused", reason="index-out-of-range") as caught:
        Situation("refused", '"a.*": "b.$2"').plan(tmp_path)
    assert caught.value.line == 1


@REFUSED
def test_a_plan_refuses_it_in_one_line_and_a_dry_run_finds_it(
    wrong: Situation, tmp_path: Path
) -> None:
    code, part = wrong.refused
    with pytest.raises(NoPlan) as caught:
        wrong.plan(tmp_path)
    found = next(one for one in caught.value.blocked if one.code == code)
    assert part in f"{found.about}: {found.message}"
    assert found.cure
    assert "\n" not in str(caught.value)
    question = read_question(wrong.settings(tmp_path))
    tried = wrong.dry_run(question)
    known = {(one.code, one.about) for one in (*tried.findings, *tried.with_room)}
    assert {(one.code, one.about) for one in caught.value.blocked} <= known
    # The dry run of what a plan makes first has nothing more to refuse.
    both, refused = wide(question, moves(question.current, question.candidate))
    last = wrong.dry_run(both).findings
    blocked = {one.code.removeprefix("check-") for one in caught.value.blocked}
    assert blocked >= {one.code for one in refused}
    assert blocked >= {
        one.code.removeprefix("check-")
        for one in last
        if one.severity is Severity.ERROR or one.code in STOPS_PLAN
    }


@REFUSED
def test_check_finds_what_the_configuration_shows(wrong: Situation, tmp_path: Path) -> None:
    settings = replace(wrong, current=wrong.mappings).settings(tmp_path)
    files = [settings.permissions, *sorted((tmp_path / "streams").glob("*.json"))]
    asked = ("--account", wrong.account, "--fail-on", "never")
    codes = {finding["code"] for finding in findings("check", *files, *asked)}
    assert bool(wrong.checked) != bool(wrong.not_checked)
    assert not wrong.checked or wrong.checked in codes


@REFUSED
def test_without_it_there_is_a_plan_and_no_finding(wrong: Situation, tmp_path: Path) -> None:
    right = wrong.without_the_mistake()
    made = right.plan(tmp_path)
    assert made.steps or right.mappings == right.current
    found = right.dry_run(read_question(right.settings(tmp_path)))
    stop = {one.code for one in (*found.findings, *found.with_room) if one.stops_plan}
    assert wrong.refused[0] not in stop
