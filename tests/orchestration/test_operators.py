"""Two operators who do not know of each other: each a process of its own, on one or two instances.

The first stops at a known moment until the other has done something, so they are really at once.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pyarrow.compute as pc
import pytest

from jobs.maintain import maintain
from jobs.settings.maintain import MaintenanceSettings
from jobs.warehouse import specs
from jobs.warehouse.tables import open_table, snapshot_properties
from nats_transform.config import load_mappings, mapping_version
from orchestration.automation.mapping_sensor import days_of_other_versions
from orchestration.days import range_tags
from orchestration.failures import reason_of
from tests.orchestration.automation.test_automation import archive_of
from tests.support.dagster_processes import environment
from tests.support.dagster_project import DAYS, OTHER_WEIGHTS, Project, key
from tests.support.saying import says

pytestmark = [pytest.mark.dagster, pytest.mark.slow]

# Runs `dagster`; before the first call of each named function it says so in a file, and waits until
# it may go on: for another file, or for the end of the other operator.
CHILD = """
import importlib, os, runpy, sys, time
from pathlib import Path

me, other, moments, *sys.argv = sys.argv[1:]
parent = os.getppid()

def meeting(name, function):
    def wrapped(*given, **more):
        place = Path(f"{me}.{name}")
        if not place.exists():
            place.touch()
            ways = [Path(f"{other}.{name}"), Path(f"{other}.ended"), Path(f"{me}.go")]
            while os.getppid() == parent and not any(way.exists() for way in ways):
                time.sleep(0.01)
        return function(*given, **more)
    return wrapped

for moment in moments.split(","):
    path, _, name = moment.rpartition(".")
    module = importlib.import_module(path)
    setattr(module, name, meeting(moment, getattr(module, name)))
try:
    runpy.run_module("dagster", run_name="__main__")
finally:
    Path(f"{me}.ended").touch()
"""


class Operator:
    """Somebody who runs the job `east_reprocess` over both days, and stops at some moments."""

    def __init__(self, project: Project, me: str, other: str, home: Path, *moments: str) -> None:
        self.project, self.me, self.home, self.moments = project, me, home, moments
        given = (str(project.root / me), str(project.root / other), ",".join(moments), "dagster")
        job = ["job", "execute", "-j", "east_reprocess", "-m", f"{project.name}.definitions"]
        job += ["--tags", json.dumps({"operator": me, **range_tags(*DAYS)})]
        known = environment(project) | {"DAGSTER_HOME": str(home)}
        del known["NATS_TRANSFORM_SPARK_MASTER"]
        self.log = project.root / f"{me}.log"
        with self.log.open("w") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-c", CHILD, *given, *job],
                cwd=project.root,
                env=known,
                stdout=output,
                stderr=output,
            )

    def wait_for(self, moment: str) -> None:
        """Until it is there; pytest's timeout ends it."""
        while not (self.project.root / f"{self.me}.{moment}").exists():
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            time.sleep(0.1)

    def go_on(self) -> None:
        (self.project.root / f"{self.me}.go").touch()

    def end(self) -> list[str]:
        """Why its steps failed, after its end; none if its run is green."""
        self.process.wait()
        with dg.DagsterInstance.from_config(str(self.home)) as instance:
            (run,) = instance.get_runs(dg.RunsFilter(tags={"operator": self.me}))
            logs = instance.all_logs(run.run_id, of_type=dg.DagsterEventType.STEP_FAILURE)
            events = [log.dagster_event for log in logs]
            assert run.is_success is not bool(events), self.log.read_text()[-3000:]
            return [reason_of(event) for event in events if event is not None]


def rows(project: Project, spec: specs.TableSpec) -> Counter[int]:
    """How often the table has each sequence."""
    return Counter(open_table(project.warehouse, spec).scan().to_arrow()["seq"].to_pylist())


def versions_of(project: Project) -> tuple[str, set[str]]:
    """The mapping version that the snapshot names, and those that its rows have."""
    table = open_table(project.warehouse, specs.TRANSFORMED)
    column = pc.unique(table.scan().to_arrow()["mapping_version"])
    return snapshot_properties(table)["mapping-version"], set(column.to_pylist())


REPROCESSED = ["mapping_version", "messages", "subject_census", "transformed_messages"]
ONCE = Counter(range(1, 41))
READ = "jobs.transform.check_sequences"
"""The moment when a transform has read its mappings and all messages."""


def test_a_mapping_that_changes_meanwhile(bare_project: Project) -> None:
    """Snapshot and rows have the version that the run began with, and the days count as stale."""
    folder = bare_project.add("east", count=40)
    old = mapping_version(load_mappings(folder / "mapping.conf"), 7)
    mine = Operator(bare_project, "a", "b", bare_project.root / "dagster", READ)
    mine.wait_for(READ)
    (folder / "mapping.conf").write_text(OTHER_WEIGHTS)
    bare_project.made("east", ["mapping_version"])
    mine.go_on()
    assert mine.end() == []
    assert versions_of(bare_project) == (old, {old})
    new = mapping_version(load_mappings(folder / "mapping.conf"), 7)
    archive = archive_of(bare_project)
    assert days_of_other_versions(bare_project.instance, archive, new) == list(DAYS)


def wipe(project: Project) -> None:
    """Forget in Dagster what was made, as its UI offers."""
    project.instance.wipe_assets([key(f"east/{asset}") for asset in REPROCESSED])


def remove(project: Project) -> None:
    """Remove the stream from all tables."""
    maintain(MaintenanceSettings(remove_stream="EAST", warehouse=project.warehouse))


REMOVED = (
    "another job removed rows of nats.messages for stream EAST meanwhile; nothing was published, "
    "run again"
)


@pytest.mark.parametrize(
    ("act", "reasons", "left"),
    [
        pytest.param(wipe, [], ONCE, id="wiped-in-dagster"),
        pytest.param(remove, [REMOVED], Counter(), id="removed-from-the-tables"),
    ],
)
def test_messages_that_go_away_meanwhile(
    bare_project: Project, act: Callable[[Project], None], reasons: list[str], left: Counter[int]
) -> None:
    bare_project.add("east", count=40)
    mine = Operator(bare_project, "a", "b", bare_project.root / "dagster", READ)
    mine.wait_for(READ)
    act(bare_project)
    mine.go_on()
    assert mine.end() == reasons
    assert rows(bare_project, specs.MESSAGES) == left == rows(bare_project, specs.TRANSFORMED)


@pytest.mark.parametrize(
    ("moment", "instances"),
    [
        pytest.param("jobs.warehouse.tables.open_table", 2, id="new-table"),
        pytest.param("jobs.warehouse.staging.publish", 2, id="first-commit"),
        pytest.param("jobs.warehouse.versions.record", 2, id="new-version"),
        pytest.param(READ, 1, id="transform"),
    ],
)
def test_the_same_days_at_once(bare_project: Project, moment: str, instances: int) -> None:
    bare_project.add("east", count=40)
    home = bare_project.root / "dagster"
    other = home if instances == 1 else bare_project.root / "another"
    other.mkdir(exist_ok=True)
    pair = [
        Operator(bare_project, "a", "b", home, moment),
        Operator(bare_project, "b", "a", other, moment),
    ]
    reasons = [one.end() for one in pair]
    # Each may win another table, but what one is refused the other has published.
    assert not {*reasons[0]} & {*reasons[1]}, reasons
    for why in reasons[0] + reasons[1]:
        assert says(why, "table-changed-meanwhile") or says(why, "table-kept-changing")
        assert "\n" not in why
    assert rows(bare_project, specs.MESSAGES) == ONCE
    assert rows(bare_project, specs.TRANSFORMED) == ONCE
    # Whoever was refused runs it again.
    bare_project.made("east", REPROCESSED)
    assert rows(bare_project, specs.MESSAGES) == ONCE == rows(bare_project, specs.TRANSFORMED)
    version, of_rows = versions_of(bare_project)
    assert of_rows == {version}
