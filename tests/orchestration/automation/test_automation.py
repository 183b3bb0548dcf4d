"""Schedule ticks, how days become runs, and what happens when a run fails."""

from __future__ import annotations

from datetime import UTC, date, datetime

import dagster as dg
import pytest

from orchestration import failures
from orchestration.automation.runs import run_requests
from orchestration.components import SubjectArchive
from orchestration.failures import FailedRun, failed_runs
from orchestration.hooks import hook_of
from tests.support.dagster_project import DAYS, Project, materialized

pytestmark = pytest.mark.dagster


def archive_of(project: Project) -> SubjectArchive:
    tree = dg.ComponentTree.for_project(project.root)
    (archive,) = tree.get_all_components(of_type=SubjectArchive)
    return archive


def days_of(requests: list[dg.RunRequest]) -> list[str]:
    return [str(request.run_key).removeprefix("east ") for request in requests]


NIGHT, FIRST_NIGHT = (datetime(2026, 3, day, 1, 30, tzinfo=UTC) for day in (10, 1))


@pytest.mark.parametrize(
    ("more", "now", "expected"),
    [
        ("nightly: { cron: '30 1 * * *' }", NIGHT, ["2026-03-09"]),
        ("nightly: { cron: '30 1 * * *', days: 3 }", NIGHT, ["2026-03-07..2026-03-09"]),
        (
            "nightly: { cron: '30 1 * * *', days: 3 }\n  backfill: day_by_day",
            NIGHT,
            ["2026-03-07", "2026-03-08", "2026-03-09"],
        ),
        # An audit is one report.
        (
            "weekly_audit: { cron: '0 6 * * 1', days: 7 }\n  backfill: day_by_day",
            NIGHT,
            ["2026-03-03..2026-03-09"],
        ),
        ("nightly: { cron: '30 1 * * *', days: 1000000 }", NIGHT, ["2026-03-01..2026-03-09"]),
        (
            "nightly: { cron: '30 1 * * *' }",
            FIRST_NIGHT,
            "no day is over yet since the start, 2026-03-01",
        ),
    ],
)
def test_schedule_tick(
    bare_project: Project, more: str, now: datetime, expected: list[str] | str
) -> None:
    bare_project.add("east", f"  {more}\n")
    data = bare_project.ticked_at(now, f"east_{more.partition(':')[0]}")
    assert (days_of(data.run_requests or []) or data.skip_message) == expected


def test_a_stretch_of_days_with_a_gap_is_two_runs(bare_project: Project) -> None:
    bare_project.add("east")
    days = [date(2026, 3, day) for day in (1, 2, 4, 5, 6, 9)]
    requests = list(run_requests(archive_of(bare_project), days, assets=["messages"]))
    stretches = ["2026-03-01..2026-03-02", "2026-03-04..2026-03-06", "2026-03-09"]
    assert days_of(requests) == stretches
    assert requests[2].partition_key == "2026-03-09"


def test_a_failed_run_is_told(bare_project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = bare_project.add("east")
    (folder / "mapping.conf").unlink()
    result = bare_project.materialize("east", ["mapping_version"])
    failed = list[FailedRun]()
    monkeypatch.setattr("orchestration.failures.log", failed.append)

    with dg.build_run_status_sensor_context(
        "failed_runs",
        dagster_event=result.get_run_failure_event(),
        dagster_instance=bare_project.instance,
        dagster_run=result.dagster_run,
    ).for_run_failure() as context:
        failed_runs(context)

    (told,) = failed
    assert told.run_id == result.run_id
    assert told.assets == ("east/mapping_version",)
    assert told.reasons[0].startswith("east/mapping_version: ")
    assert "mapping.conf" in told.reasons[0]


def test_the_hook_is_the_function_that_the_environment_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert hook_of(failures.VARIABLE, failures.log) is failures.log
    monkeypatch.setenv(failures.VARIABLE, "builtins:print")
    assert hook_of(failures.VARIABLE, failures.log) is print
    monkeypatch.setenv(failures.VARIABLE, "builtins:no_such")
    with pytest.raises(ImportError, match=r"NATS_TRANSFORM_ON_FAILURE=builtins:no_such: .*module:"):
        hook_of(failures.VARIABLE, failures.log)


@pytest.mark.spark
def test_a_scheduled_run_succeeds(project: Project) -> None:
    """What a tick asks for, launched as the daemon does, in this process."""
    project.add("east", "  nightly: { cron: '30 1 * * *', days: 2 }\n", count=40)
    now = datetime(2026, 3, 3, 1, 30, tzinfo=UTC)
    (request,) = project.ticked_at(now, "east_nightly").run_requests
    result = project.run("east_reprocess", tags=dict(request.tags))
    assert result.success
    transformed = {("east/transformed_messages", day.isoformat()) for day in DAYS}
    assert {("east/mapping_version", None), *transformed} <= materialized(result)
