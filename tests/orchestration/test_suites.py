"""What a user adds to the checks of an archive."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import dagster as dg
import great_expectations as gx
import pytest
from great_expectations.checkpoint import ActionContext, CheckpointResult, ValidationAction

from jobs.warehouse.specs import QUARANTINED, TRANSFORMED
from jobs.warehouse.tables import data_files, open_table
from tests.support.archive import rows_of
from tests.support.dagster_project import Project, failures
from tests.support.jobs import verified
from tests.support.posted import receiver
from tests.support.saying import mistakes

pytestmark = pytest.mark.dagster

SEEN: list[tuple[str, bool]] = []


class Remember(ValidationAction):
    """An action as users write them."""

    type: Literal["remember"] = "remember"

    def run(
        self, checkpoint_result: CheckpointResult, action_context: ActionContext | None = None
    ) -> dict[str, Any]:
        SEEN.append((checkpoint_result.checkpoint_config.name, bool(checkpoint_result.success)))
        return {}


ACTIONS = """  actions:
    - type: slack
      name: tell
      slack_webhook: "{{ env.TEST_WEBHOOK }}"
      notify_on: all
    - class: tests.orchestration.test_suites:Remember
"""


ONE = ["mapping_version", "messages", "transformed_messages"]


def test_actions_follow_the_checks(bare_project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    SEEN.clear()
    bare_project.add("east", ACTIONS)
    with receiver() as (address, received):
        monkeypatch.setenv("TEST_WEBHOOK", address)
        bare_project.made("east", ONE)
    assert SEEN == [("messages", True), ("transformed_messages", True)]
    assert len(received) == 2
    assert "transformed_messages" in json.dumps(received[1])


def test_an_action_that_fails_loses_nothing(
    bare_project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare_project.add("east", ACTIONS)
    monkeypatch.setattr(Remember, "run", lambda *_, **__: 1 / 0)
    with receiver() as (address, _):
        monkeypatch.setenv("TEST_WEBHOOK", address)
        result = bare_project.made("east", ["mapping_version", "messages"])
    assert all(check.passed for check in result.get_asset_check_evaluations())


SUITE = """  expectations:
    - name: partners
      expectations:
        - type: expect_column_values_to_not_match_regex
          kwargs: {{ column: subject, regex: "^orders\\\\.us\\\\." }}
          severity: {severity}
    - name: sizes
      table: messages
      expectations:
        - type: expect_table_row_count_to_be_between
          kwargs: {{ min_value: 1 }}
"""


def evaluations(result: dg.ExecuteInProcessResult) -> dict[str, dg.AssetCheckEvaluation]:
    found = result.get_asset_check_evaluations()
    return {f"{one.asset_key.path[-1]}/{one.check_name}": one for one in found}


@pytest.mark.parametrize("severity", ["critical", pytest.param("warning", marks=pytest.mark.slow)])
def test_a_suite_of_a_user_is_a_check(bare_project: Project, severity: str) -> None:
    bare_project.add("east", SUITE.format(severity=severity))
    result = bare_project.materialize("east", ONE)
    found = evaluations(result)
    assert found["messages/sizes"].passed
    partners = found["transformed_messages/partners"]
    assert not partners.passed
    assert "75 of 300 rows break it" in str(partners.description)
    page = Path(str(partners.metadata["data docs"].value)).read_text("utf-8")
    assert "orders.us." in page
    assert result.success == (severity == "warning")
    table = open_table(bare_project.warehouse, TRANSFORMED)
    if severity == "critical":
        assert partners.severity is dg.AssetCheckSeverity.ERROR
        (why,) = failures(result).values()
        assert "nothing was published" in why
        assert not data_files(table)
    else:
        assert partners.severity is dg.AssetCheckSeverity.WARN
        assert sum(file.record_count for file in data_files(table)) == 300


QUARANTINE = """  expectations:
    - name: partners
      suite: partners.json
      quarantine: true
"""


@pytest.fixture(
    params=["bare_project", pytest.param("project", marks=[pytest.mark.spark, pytest.mark.slow])]
)
def any_project(request: pytest.FixtureRequest) -> Project:
    """A project whose runs do the work in their process, or ask for Spark."""
    return request.getfixturevalue(request.param)


def test_rows_in_quarantine_and_the_others_add_up(any_project: Project) -> None:
    folder = any_project.add("east", QUARANTINE)
    wanted = gx.expectations
    no_us = wanted.ExpectColumnValuesToNotMatchRegex(column="subject", regex=r"^orders\.us\.")
    draws = wanted.ExpectColumnValuesToBeInSet(column="draw", value_set=[*range(90)])
    suite = gx.ExpectationSuite("theirs", expectations=[no_us, draws])
    (folder / "partners.json").write_text(json.dumps(suite.to_json_dict()))
    result = any_project.made("east", ONE)
    warehouse = any_project.warehouse
    apart = rows_of(warehouse, "EAST", QUARANTINED)
    kept = rows_of(warehouse, "EAST", TRANSFORMED)
    assert sorted(row.seq for row in (*apart, *kept)) == [*range(1, 301)]
    reasons = Counter(row.quarantined for row in apart)
    of_us, of_draws = (f"partners: {one.expectation_type}" for one in (no_us, draws))
    assert reasons[of_us] == 75
    assert reasons.keys() == {of_us, of_draws}
    assert all((row.draw or 0) < 90 and b"orders.us." not in row.subject for row in kept)
    found = evaluations(result)
    assert found["transformed_messages/every_message_once"].passed
    partners = found["transformed_messages/partners"]
    assert (partners.passed, partners.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert "75 in quarantined" in str(partners.description)
    assert verified(warehouse, stream="EAST", tolerance=15).holds
    # Without the suite, all rows are back.
    any_project.edit("east", (QUARANTINE, ""))
    any_project.made("east", ["transformed_messages"])
    assert not rows_of(warehouse, "EAST", QUARANTINED)
    assert len(rows_of(warehouse, "EAST", TRANSFORMED)) == 300
    assert verified(warehouse, stream="EAST", tolerance=15).holds


def test_a_day_can_be_all_in_quarantine(bare_project: Project) -> None:
    entry = "{type: expect_column_values_to_match_regex, kwargs: {column: subject, regex: '^no$'}}"
    suite = f"{{name: none, quarantine: true, expectations: [{entry}]}}"
    bare_project.add("east", f"  expectations: [{suite}]\n")
    result = bare_project.made("east", ONE)
    assert len(rows_of(bare_project.warehouse, "EAST", QUARANTINED)) == 300
    assert not rows_of(bare_project.warehouse, "EAST", TRANSFORMED)
    found = evaluations(result)
    assert found["transformed_messages/every_message_once"].passed
    none = found["transformed_messages/none"]
    assert (none.passed, none.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert "300 in quarantined" in str(none.description)


@pytest.mark.parametrize(("yaml", "fault"), mistakes("suite"))
def test_what_cannot_be_stops_the_run(bare_project: Project, yaml: str, fault: str) -> None:
    bare_project.add("east", f"  {yaml}\n")
    assets = ["messages"] if yaml.startswith("actions") else ONE
    (why,) = failures(bare_project.materialize("east", assets)).values()
    assert re.search(fault, why), why
