"""The mapping version drives staleness, the sensor and the automation condition."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import dagster as dg
import pytest

from orchestration.automation.mapping_sensor import DERIVED
from tests.support.dagster_project import (
    DAY_KEYS,
    MAPPING,
    OTHER_WEIGHTS,
    Project,
    failures,
    told_of,
)
from tests.support.saying import saying

pytestmark = pytest.mark.dagster

AUTOMATED = """  mapping_sensor: { reprocess: stale_days }
  automation: stale_days
"""


def stale(project: Project) -> set[tuple[str, str]]:
    """Every asset and day that was made under another version than `mapping_version` has now."""
    instance, version = project.instance, dg.AssetKey(["east", "mapping_version"])
    made = instance.get_latest_materialization_event(version)
    now = (made.asset_materialization.tags or {})["dagster/data_version"]
    found = set()
    for asset, day in product(DERIVED, DAY_KEYS):
        of_day = dg.AssetRecordsFilter(dg.AssetKey(["east", asset]), asset_partitions=[day])
        (record,) = instance.fetch_materializations(of_day, limit=1).records
        tags = record.asset_materialization.tags or {}
        if tags["dagster/input_data_version/east/mapping_version"] != now:
            found.add((asset, day))
    return found


def recorded(project: Project) -> dict[str, object]:
    """What a new materialization of the mapping version says."""
    result = project.materialize("east", ["mapping_version"])
    return told_of(result, "east/mapping_version")


def tick(project: Project) -> list[dg.RunRequest] | str:
    """What the sensor asks for; a reason if nothing. Its cursor is kept as the daemon keeps it."""
    data = project.ticked("east_mapping", project.__dict__.get("cursor"))
    project.__dict__["cursor"] = data.cursor
    return list(data.run_requests or []) or str(data.skip_message)


def automation(project: Project, cursor: Any = None) -> Any:
    """What the conditions of the assets ask for."""
    return dg.evaluate_automation_conditions(project.load(), project.instance, cursor=cursor)


def requested(requests: list[dg.RunRequest] | str) -> Iterator[tuple[list[str], str | None]]:
    """The assets and the days of each request."""
    assert not isinstance(requests, str), requests
    for request in requests:
        days = request.partition_key_range
        range_ = None if days is None else f"{days.start}..{days.end}"
        assets = [key.path[-1] for key in request.asset_selection or []]
        yield assets, request.partition_key or range_


def test_a_comment_changes_nothing_and_a_weight_what_is_downstream(bare_project: Project) -> None:
    folder = bare_project.add("east", AUTOMATED, count=120)
    file = folder / "mapping.conf"
    assert list(requested(tick(bare_project))) == [(["mapping_version"], None)]
    bare_project.made("east")
    assert stale(bare_project) == set()
    assert "is still version" in str(tick(bare_project))
    automated = automation(bare_project)
    assert automated.total_requested == 0

    file.write_text("# a comment\n" + MAPPING)
    again = recorded(bare_project)
    assert again["difference"] == "none: the mappings do the same as before"
    assert again["versions so far"] == 1
    assert stale(bare_project) == set()
    assert "is still version" in str(tick(bare_project))
    automated = automation(bare_project, automated.cursor)
    assert automated.total_requested == 0

    file.write_text(OTHER_WEIGHTS)
    assert list(requested(tick(bare_project))) == [(["mapping_version"], None)]
    changed = recorded(bare_project)
    assert changed["version"] != again["version"]
    assert "60 %" in str(changed["difference"])
    assert "50 %" in str(changed["difference"])
    assert stale(bare_project) == {(asset, day) for asset in DERIVED for day in DAY_KEYS}

    # Both ways to have it done by itself ask for the same days.
    assert list(requested(tick(bare_project))) == [
        (["transformed_messages", "weight_audit"], "2026-03-01..2026-03-02")
    ]
    automated = automation(bare_project, automated.cursor)
    key = dg.AssetKey(["east", "transformed_messages"])
    assert automated.get_requested_partitions(key) == set(DAY_KEYS)

    bare_project.made("east", ["transformed_messages", "weight_audit"])
    assert stale(bare_project) == set()
    assert "is still version" in str(tick(bare_project))


@pytest.mark.slow
def test_days_are_transformed_under_the_version_that_was_materialized(
    bare_project: Project,
) -> None:
    folder = bare_project.add("east", count=40)
    bare_project.made("east")
    (folder / "mapping.conf").write_text("mappings { this is none")

    bare_project.made("east", ["transformed_messages", "weight_audit"])


def test_a_version_that_comes_back_is_recorded_again(bare_project: Project) -> None:
    """Dagster starts no second run with the same key."""
    file = bare_project.add("east", AUTOMATED, count=1) / "mapping.conf"
    keys = []
    for text in (MAPPING, OTHER_WEIGHTS, MAPPING, OTHER_WEIGHTS):
        file.write_text(text)
        for _ in range(2):  # the run of the first tick has failed
            (request,) = tick(bare_project)
            assert list(requested([request])) == [(["mapping_version"], None)]
        keys.append(request.run_key)
        bare_project.made("east", ["mapping_version"])
        assert "is still version" in str(tick(bare_project))
    assert len({*keys}) == 4


def test_what_a_run_of_the_sensor_makes_is_not_asked_for_twice(bare_project: Project) -> None:
    bare_project.add("east", AUTOMATED, count=1)
    key = dg.AssetKey(["east", "mapping_version"])
    run = bare_project.instance.create_run_for_job(
        bare_project.load().resolve_implicit_global_asset_job_def(),
        asset_selection=frozenset({key}),
        tags={"dagster/sensor_name": "east_mapping"},
        status=dg.DagsterRunStatus.STARTED,
    )
    assert "a run records version" in str(tick(bare_project))
    bare_project.instance.report_run_failed(run)
    assert list(requested(tick(bare_project))) == [(["mapping_version"], None)]


def test_days_without_a_partition_are_not_asked_for(bare_project: Project) -> None:
    """`start_date` has moved on, or `include_today` was taken back, since they were transformed."""
    bare_project.add("east", AUTOMATED, count=1)
    bare_project.made("east", ["mapping_version"])
    key = dg.AssetKey(["east", "transformed_messages"])
    tomorrow = datetime.now(UTC).date() + timedelta(days=1)
    for day in ("2026-02-27", "2026-02-28", "2026-03-01", str(tomorrow)):
        made = dg.AssetMaterialization(key, partition=day)
        bare_project.instance.report_runless_asset_event(made)
    assert list(requested(tick(bare_project))) == [
        (["transformed_messages", "weight_audit"], "2026-03-01")
    ]


def test_mappings_of_another_account_are_refused_in_one_line(bare_project: Project) -> None:
    bare_project.add("east", mapping="accounts { SHOP { mappings { a: b } } }", count=1)
    told = failures(bare_project.materialize("east", ["mapping_version"]))["east/mapping_version"]
    assert "SHOP" in told
    assert "\n" not in told


def test_a_refused_file_fails_the_tick(bare_project: Project) -> None:
    folder = bare_project.add("east", AUTOMATED)
    (folder / "mapping.conf").write_text('mappings { "a": [{ destination: b, weight: 101% }] }')
    with pytest.raises(Exception, match=saying("weight-out-of-range")):
        tick(bare_project)
