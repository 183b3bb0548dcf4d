"""The dry-run job of an archive, on a real instance."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from tests.support.dagster_project import Project
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
    job = project.load().resolve_job_def("east_dry_run")
    return job.execute_in_process(
        instance=project.instance,
        run_config={
            "ops": {"east_try_candidate": {"config": config}},
            "loggers": {"console": {"config": {"log_level": "CRITICAL"}}},
        },
        raise_on_error=False,
    )


def told(project: Project, result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    """The numbers of the run, as the instance keeps them."""
    for record in project.instance.all_logs(result.run_id):
        event = record.dagster_event
        if event is not None and event.is_step_failure:
            data = event.step_failure_data.user_failure_data
            assert data is not None, event.step_failure_data.error
            return {name: value.value for name, value in data.metadata.items()} | {
                "failure": data.description
            }
        if event is not None and event.is_successful_output:
            metadata = event.step_output_data.metadata
            return {name: value.value for name, value in metadata.items()}
    raise AssertionError("the run says nothing")


def test_a_candidate_is_tried(project: Project) -> None:
    folder = project.add("east", mapping=KEPT)
    project.made("east", ["messages"])
    (folder / "kept.conf").write_text(KEPT + "# as it is\n")
    (folder / "merged.conf").write_text(MERGED)
    (folder / "streams").mkdir()
    (folder / "streams" / "shop.json").write_text(
        json.dumps({"name": "SHOP", "subjects": ["shop.>"], "max_msgs_per_subject": 10})
    )
    # It is compared with the archive's own mappings, which merge nothing.
    result = run(
        project, candidate="merged.conf", streams="streams", simulate=True, day="2026-03-01"
    )
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
    result = run(project, candidate="kept.conf", day="2026-03-01")
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
