"""What is defined: by the project itself, and by YAML with and without mistakes."""

from __future__ import annotations

import re

import dagster as dg
import pytest
import yaml

from tests.support.command import printed
from tests.support.dagster_processes import run_dg
from tests.support.dagster_project import ASSETS, MAPPING, Project, key
from tests.support.programs import printed_in_python

pytestmark = pytest.mark.dagster

AUTOMATED = """  backfill: day_by_day
  nightly: { cron: "30 1 * * *", timezone: Europe/Berlin, days: 3 }
  weekly_audit: { cron: "0 6 * * 1", days: 7, running: false }
  mapping_sensor: { reprocess: stale_days }
  automation: stale_days
"""

# A renamed key loses its history, so it shows here.
SNAPSHOT = """
asset east/mapping.conf <-
asset east/mapping_version <- east/mapping.conf
asset east/messages <- [daily] checks: every_message_once no_unexplained_gaps subjects_are_legal
asset east/subject_census <- east/messages [daily]
asset east/transformed_messages <- east/mapping_version east/messages [daily] \
checks: every_message_once partitions_steady_and_even same_result_twice subjects_are_legal \
weights_within_tolerance
asset east/weight_audit <- east/mapping_version east/transformed_messages [daily]
job east_audit: east/weight_audit
job east_dry_run:
job east_reprocess: east/mapping_version east/messages east/subject_census \
east/transformed_messages
schedule east_nightly: 30 1 * * * Europe/Berlin RUNNING
schedule east_weekly_audit: 0 6 * * 1 UTC STOPPED
sensor default_automation_condition_sensor: STOPPED every 30 s
sensor east_mapping: RUNNING every 60 s
"""


def listed(defs: dg.Definitions) -> str:
    """Every definition on a line."""
    repository = defs.get_repository_def()
    graph = repository.asset_graph
    lines = []
    for one in sorted(graph.get_all_asset_keys()):
        node = graph.get(one)
        parents = "".join(f" {parent.to_user_string()}" for parent in sorted(node.parent_keys))
        daily = " [daily]" if node.partitions_def else ""
        names = sorted(check.name for check in node.check_keys)
        checks = f" checks: {' '.join(names)}" if names else ""
        lines.append(f"asset {one.to_user_string()} <-{parents}{daily}{checks}")
    for job in repository.get_all_jobs():
        if not job.name.startswith("__"):
            keys = sorted(one.to_user_string() for one in job.asset_layer.selected_asset_keys)
            lines.append(f"job {job.name}: {' '.join(keys)}".rstrip())
    for schedule in sorted(repository.schedule_defs, key=lambda schedule: schedule.name):
        when = f"{schedule.cron_schedule} {schedule.execution_timezone}"
        lines.append(f"schedule {schedule.name}: {when} {schedule.default_status.value}")
    for sensor in sorted(repository.sensor_defs, key=lambda sensor: sensor.name):
        every = f"every {sensor.minimum_interval_seconds} s"
        lines.append(f"sensor {sensor.name}: {sensor.default_status.value} {every}")
    return "\n".join(lines)


def test_what_an_archive_defines(bare_project: Project) -> None:
    bare_project.add("east", AUTOMATED)
    assert listed(bare_project.load()) == SNAPSHOT.strip()


def test_without_automation(bare_project: Project) -> None:
    bare_project.add("east")
    repository = bare_project.load().get_repository_def()
    assert not repository.schedule_defs
    assert not repository.sensor_defs


def test_the_definitions_of_this_checkout_load() -> None:
    from orchestration.definitions import defs

    repository = defs().get_repository_def()
    assert dg.AssetKey(["shop", "weight_audit"]) in repository.asset_graph.get_all_asset_keys()
    assert repository.get_sensor_def("failed_runs")


def test_loading_imports_nothing_that_takes_long() -> None:
    """Every code server and every run loads the definitions; few of them check or audit."""
    code = (
        "import sys; from orchestration.definitions import defs; defs().get_repository_def(); "
        "print(*{'great_expectations', 'scipy.stats', 'scipy.special'} & sys.modules.keys())"
    )
    assert printed_in_python(code) == "\n"


def test_one_pool_for_an_archive_and_backfills_as_told(bare_project: Project) -> None:
    bare_project.add("east", "  backfill: day_by_day\n")
    bare_project.add("west")
    graph = bare_project.load().resolve_asset_graph()
    for archive, most in (("east", 1), ("west", None)):
        for asset in ASSETS[1:]:
            node = graph.get(key(f"{archive}/{asset}"))
            assert node.pools == {f"archive_{archive}"}
            assert node.backfill_policy.max_partitions_per_run == most


def test_dg_check_yaml_names_file_and_line(bare_project: Project) -> None:
    bare_project.add("east", "  colour: red\n")
    told = run_dg(bare_project, "check", "yaml", code=1)
    assert re.search(r"east/defs\.yaml:14 - .*colour", told), told


@pytest.mark.slow
def test_scaffolded_listed_and_checked(bare_project: Project) -> None:
    """`dg` writes an archive that it then finds nothing wrong with."""
    kind = "nats_transform.dagster.SubjectArchive"
    run_dg(bare_project, "scaffold", "defs", kind, "new-shop")
    text = (bare_project.defs_folder / "new-shop" / "defs.yaml").read_text()
    assert "# First day" in text
    assert yaml.safe_load(text)["attributes"]["name"] == "new_shop"
    run_dg(bare_project, "check", "yaml")
    run_dg(bare_project, "check", "defs")
    assert kind in run_dg(bare_project, "list", "components")


def test_the_archive_that_init_writes_loads(
    bare_project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = bare_project.defs_folder.parent
    monkeypatch.chdir(folder)
    (folder / "new.conf").write_text(MAPPING)
    line = ("init", "--candidate", "new.conf", "--stream", "ORDERS-1", "--dagster")
    assert "wrote defs/orders_1/defs.yaml\n" in printed(*line)
    loaded = listed(bare_project.load())
    assert "asset orders_1/messages <- nats/ORDERS_1 [daily]" in loaded
    assert "job orders_1_reprocess: " in loaded
