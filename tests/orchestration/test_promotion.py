"""Mapping versions beside each other under Dagster: branches, comparisons, promotion by people."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster.components.core.component_tree import ComponentTreeException

from jobs.errors import NoBranch
from jobs.files.narrow import is_narrow
from jobs.warehouse.specs import TRANSFORMED
from jobs.warehouse.tables import data_files, mapping_version_of, open_table
from nats_transform.errors import InvalidConfig
from tests.support.dagster_project import DAYS, MAPPING, Project, failures, told_of
from tests.support.saying import saying

pytestmark = pytest.mark.dagster

OTHER = MAPPING.replace("paid.{{", "payments.{{")
COUNT = 300
PAID = COUNT // 4


def transformed(
    project: Project, days: tuple[Any, Any] = DAYS, name: str = "east"
) -> dict[str, Any]:
    """What the materialization of the transformed messages says, of a run over everything."""
    assets = ("mapping_version", "messages", "transformed_messages")
    result = project.made(name, assets, days)
    return told_of(result, f"{name}/transformed_messages")


def versions(project: Project, branch: str | None = None) -> Counter[str]:
    """How many rows of each mapping version there are."""
    warehouse = project.warehouse.model_copy(update={"branch": branch})
    table, counts = open_table(warehouse, TRANSFORMED), Counter[str]()
    for file in data_files(table):
        counts[mapping_version_of(table, file)] += file.record_count
    return counts


def test_a_new_version_is_compared_with_the_rows_before(bare_project: Project) -> None:
    folder = bare_project.add("east")
    assert "comparison" not in transformed(bare_project)
    assert "comparison" not in transformed(bare_project)  # the same version, the same rows
    (old,) = versions(bare_project)
    (folder / "mapping.conf").write_text(OTHER)
    metadata = transformed(bare_project)
    assert (metadata["moved messages"], metadata["moved subjects"]) == (PAID, PAID)
    assert (metadata["changed messages"], metadata["compared with"]) == (PAID, old)
    assert "payments." in metadata["subjects that move"]
    assert "another new subject" in Path(metadata["comparison"]).read_text()
    assert "waits for promotion" not in metadata
    assert "east_promote" not in {job.name for job in bare_project.load().resolve_all_job_defs()}


def test_a_new_version_waits_until_it_is_promoted(bare_project: Project) -> None:
    folder = bare_project.add("east", "  promote: manual\n")
    first = transformed(bare_project)
    assert "branch" not in first  # nobody reads anything yet
    (old,) = versions(bare_project)
    assert versions(bare_project)[old] == COUNT
    assert re.search(
        saying("no-branch"), next(iter(failures(bare_project.run("east_promote")).values()))
    )

    (folder / "mapping.conf").write_text(OTHER)
    metadata = transformed(bare_project)
    branch, new = metadata["branch"], metadata["mapping version"]
    assert branch == f"east-{new[:12]}"
    assert metadata["waits for promotion"].startswith("run east_promote")
    assert metadata["moved messages"] == PAID
    assert versions(bare_project) == {old: COUNT}
    assert versions(bare_project, branch) == {new: COUNT}
    assert transformed(bare_project, (DAYS[0], DAYS[0]))["branch"] == branch

    result = bare_project.run("east_promote")
    assert result.success, failures(result)
    assert versions(bare_project) == {new: COUNT}
    with pytest.raises(NoBranch):
        versions(bare_project, branch)
    event = bare_project.instance.fetch_observations(dg.AssetKey(["east", TRANSFORMED.name]), 1)
    observation = event.records[0].asset_observation
    assert observation.metadata["promoted branch"].value == branch
    assert "branch" not in transformed(bare_project)  # from now on consumers have it at once


@pytest.mark.parametrize("name", ["_east", pytest.param("e" * 100, marks=pytest.mark.slow)])
def test_any_name_of_an_archive_has_a_branch(bare_project: Project, name: str) -> None:
    folder = bare_project.add(name, "  promote: manual\n", count=8)
    transformed(bare_project, name=name)
    (folder / "mapping.conf").write_text(OTHER)
    branch = transformed(bare_project, name=name)["branch"]
    assert len(versions(bare_project, branch)) == 1
    result = bare_project.run(f"{name}_promote")
    assert result.success, failures(result)
    with pytest.raises(NoBranch):
        versions(bare_project, branch)


@pytest.mark.slow
def test_a_new_seed_waits_for_its_version(bare_project: Project) -> None:
    """A seed that nobody has recorded yet changes nothing."""
    bare_project.add("east", "  promote: manual\n")
    transformed(bare_project)
    before = versions(bare_project)
    bare_project.edit("east", ("seed: 7", "seed: 8"))
    bare_project.made("east", ("transformed_messages", "weight_audit"))
    assert versions(bare_project) == before
    assert "branch" in transformed(bare_project)  # with its version recorded, it waits
    assert versions(bare_project) == before


@pytest.mark.slow
def test_outcomes_alone_are_enough_for_a_version(bare_project: Project) -> None:
    folder = bare_project.add("east", "  columns: outcomes\n")
    transformed(bare_project)
    (folder / "mapping.conf").write_text(OTHER)
    assert transformed(bare_project)["moved messages"] == PAID
    table = open_table(bare_project.warehouse, TRANSFORMED)
    assert is_narrow(table, data_files(table))
    bare_project.made("east", ("weight_audit",), DAYS)


def test_a_branch_deployment_writes_beside_production(
    bare_project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = bare_project.add("east", "  promote: manual\n")
    transformed(bare_project)
    (old,) = versions(bare_project)
    (folder / "mapping.conf").write_text(OTHER)
    monkeypatch.setenv("NATS_TRANSFORM_BRANCH", "feature/paid")
    metadata = transformed(bare_project, (DAYS[0], DAYS[0]))
    assert (metadata["branch"], metadata["moved messages"]) == ("feature/paid", 37)
    assert "waits for promotion" not in metadata
    assert versions(bare_project) == {old: COUNT}
    assert len(versions(bare_project, "feature/paid")) == 2
    table = bare_project.load().resources["east_warehouse"].load_table(TRANSFORMED.name)
    subjects = table.scan().to_arrow()["mapped_subject"]
    assert sum(str(subject).startswith("payments.") for subject in subjects) == 37


def test_a_branch_in_the_yaml_goes_before_the_variable(
    bare_project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NATS_TRANSFORM_BRANCH", "other")
    monkeypatch.setenv("PULL_REQUEST", "7")
    bare_project.add("east", '  branch: "pr-{{ env.PULL_REQUEST }}"\n')
    assert transformed(bare_project)["branch"] == "pr-7"
    assert versions(bare_project, "pr-7").total() == COUNT


def test_a_branch_that_cannot_be_called_so(
    bare_project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare_project.add("east")
    monkeypatch.setenv("NATS_TRANSFORM_BRANCH", "no branch")
    with pytest.raises(ComponentTreeException) as raised:
        bare_project.load()
    assert isinstance(raised.value.__cause__, InvalidConfig)
    assert "NATS_TRANSFORM_BRANCH" in str(raised.value.__cause__)
