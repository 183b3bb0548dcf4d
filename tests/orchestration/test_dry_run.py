"""The dry-run job of an archive, on a real instance."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from tests.support.dagster_project import Project, values
from tests.support.files import write_files
from tests.support.saying import saying

pytestmark = [pytest.mark.dagster, pytest.mark.spark]

KEPT = """mappings {
  "orders.*.*": "shop.$1.$2"
  "paid.*": "paid.{{partition(3,1)}}.$1"
}
"""
MERGED = 'mappings { "orders.*.*": "shop.$1", "paid.*": "paid.done.$1" }'


def run(project: Project, **config: Any) -> dg.ExecuteInProcessResult:
    """One run of the job."""
    return project.run("east_dry_run", ops={"east_try_candidate": config})


def told(project: Project, result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    """The numbers of the run, as the instance keeps them."""
    for record in project.instance.all_logs(result.run_id):
        event = record.dagster_event
        if event is not None and event.is_step_failure:
            data = event.step_failure_data.user_failure_data
            assert data is not None, event.step_failure_data.error
            return values(data.metadata) | {"failure": data.description}
        if event is not None and event.is_successful_output:
            return values(event.step_output_data.metadata)
    raise AssertionError("the run says nothing")


def test_a_candidate_is_tried(project: Project) -> None:
    folder = project.add("east", mapping=KEPT)
    project.made("east", ["messages"])
    shop = {"name": "SHOP", "subjects": ["shop.>"], "max_msgs_per_subject": 10}
    mappings = {"kept.conf": KEPT + "# as it is\n", "merged.conf": MERGED}
    write_files(folder, mappings | {"streams/shop.json": shop})
    # It is compared with the archive's own mappings, which merge nothing.
    first = {"day": "2026-03-01"}
    result = run(project, candidate="merged.conf", streams="streams", simulate=True, **first)
    assert not result.success
    found = told(project, result)
    page = Path(str(found["page"]))
    assert found["failure"].startswith("error collision: mapping orders.*.*: 76 subjects become 2")
    assert found["failure"].endswith(f"see {page}")
    assert (found["messages"], found["changed messages"]) == (150, 113)
    assert found["number of error findings"] > 0
    assert "| SHOP | 20 | 56 | 0 |" in found["simulated streams"]
    assert page.read_text().startswith("<!doctype html>")
    document = json.loads(page.with_suffix(".json").read_text())
    assert document["summary"]["run_id"] == result.run_id
    assert document["summary"]["current"] == "mapping.conf"
    # The mappings there are change nothing.
    result = run(project, candidate="kept.conf", **first)
    assert result.success
    assert told(project, result)["changed messages"] == 0


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ({"candidate": "none.conf"}, "file-unreadable"),
        ({"candidate": "bad.conf"}, "index-out-of-range"),
        ({"candidate": "mapping.conf", "day": "soon"}, "not-a-day"),
        ({"candidate": "mapping.conf", "simulate": True}, "simulate-without-streams"),
        ({"candidate": "mapping.conf"}, "no-table"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_mistake_is_one_line(project: Project, config: dict[str, Any], code: str) -> None:
    folder = project.add("east")
    (folder / "bad.conf").write_text('mappings { "a.*": "b.$9" }')
    failure = told(project, run(project, **config))["failure"]
    assert re.search(saying(code), failure)
    assert "\n" not in failure


def test_the_configuration_is_typed(bare_project: Project) -> None:
    bare_project.add("east")
    with pytest.raises(dg.DagsterInvalidConfigError, match="fail_on"):
        run(bare_project, candidate="a.conf", fail_on="sometimes")
    with pytest.raises(dg.DagsterInvalidConfigError, match="colour"):
        run(bare_project, candidate="a.conf", colour="red")
