"""Where Spark runs is configuration: here, or through Spark Connect."""

from __future__ import annotations

import pytest

from tests.support.dagster_processes import BIN, environment
from tests.support.dagster_project import ASSETS, DAY_KEYS, Project
from tests.support.programs import output_of

pytestmark = [pytest.mark.dagster, pytest.mark.spark]


@pytest.mark.slow
def test_through_spark_connect_the_digest_is_the_same(project: Project) -> None:
    """All assets, from the same file of messages."""
    project.add("east", count=60)
    project.made("east", ASSETS[:-1])
    here = project.published()
    (project.defs_folder.parent / "warehouse").rename(project.root / "here")

    # By a process: PySpark's functions are for one kind of session in each.
    materialize(project, ["mapping_version"])
    materialize(project, ASSETS[1:], "--partition-range", "...".join(DAY_KEYS))

    there = project.published()
    assert there["run-id"] != here["run-id"]
    same = ("digest", "archive-digest", "mapping-version", "mapped", "unmatched")
    assert {name: there[name] for name in same} == {name: here[name] for name in same}


def materialize(project: Project, assets: tuple[str, ...] | list[str], *more: str) -> None:
    """Makes assets with the command line of Dagster."""
    selection = " or ".join(f'key:"east/{asset}"' for asset in assets)
    command = (BIN / "dagster", "asset", "materialize", "-m", f"{project.name}.definitions")
    # PySpark starts a Connect server of its own for it, and talks to it as to any other.
    where = {"NATS_TRANSFORM_SPARK_MASTER": "", "NATS_TRANSFORM_SPARK_REMOTE": "local[2]"}
    where["SPARK_TESTING"] = "1"  # the server takes any free port, not 15002
    known = environment(project) | where
    output_of(*command, "--select", selection, *more, cwd=project.root, env=known)
