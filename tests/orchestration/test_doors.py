"""The gate before tables is the same behind every door.

The doors are the command, `python -m jobs` and the asset of Dagster. Each transforms the same
archive here.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from jobs import gate
from jobs.__main__ import command as jobs_command
from jobs.settings.warehouse import Warehouse
from jobs.warehouse import specs, versions
from jobs.warehouse.tables import open_table, snapshot_properties
from tests.support.command import nats_transform
from tests.support.dagster_project import DAYS, Project, failures

pytestmark = [pytest.mark.dagster, pytest.mark.spark]

STREAM = "EAST"
Checks = dict[str, tuple[bool, str]]


def by_command(folder: Path, warehouse: Path, *more: str) -> tuple[int, Checks, str]:
    """Exit code, results of the checks, and what is said of rows that are refused."""
    given = ("--stream", STREAM, "--mapping", str(folder / "mapping.conf"), "--seed", "7")
    where = ("--warehouse", str(warehouse), "--tolerance", "15", "--json")
    code, out, error = nats_transform("transform", *given, *where, *more)
    assert out, error
    return code, *_of(json.loads(out))


def by_job(folder: Path, warehouse: Path) -> tuple[int, Checks, str]:
    """The same of `python -m jobs`."""
    settings = {
        "stream": STREAM,
        "mapping": str(folder / "mapping.conf"),
        "seed": 7,
        "tolerance": 15,
        "warehouse": {"dir": str(warehouse)},
    }
    done = CliRunner().invoke(
        jobs_command, ["transform"], input=json.dumps(settings), standalone_mode=False
    )
    return done.return_value, *_of(json.loads(done.stdout))


def _of(document: dict[str, Any]) -> tuple[Checks, str]:
    results = document["checks"]["results"]
    checks = {result["name"]: (result["success"], result["observed"]) for result in results}
    return checks, document["refused"] or ""


def damage(monkeypatch: pytest.MonkeyPatch, change: Callable[[pa.Table], pa.Table]) -> None:
    """Every staged file has other rows by the time the gate looks at it."""
    publish = gate.publish

    def damaged(spark: Any, table: Any, staged: Any, *given: Any, **more: Any) -> Any:
        for file in staged.data_files:
            path = file.file_path.removeprefix("file://")
            pq.write_table(change(pq.read_table(path, partitioning=None)), path)
        return publish(spark, table, staged, *given, **more)

    monkeypatch.setattr(gate, "publish", damaged)


def without_the_first(rows: pa.Table) -> pa.Table:
    return rows.slice(1)


def test_every_door_gives_the_same(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = project.add("east")
    with monkeypatch.context() as patch:
        damage(patch, without_the_first)
        (why,) = failures(project.materialize("east", ["messages"])).values()
    assert "a check refused rows of nats.messages" in why
    assert "ExpectArchiveToBeAsIngested" in why
    project.made("east", ["mapping_version", "messages"])
    home = Path(str(project.warehouse.dir))
    doors = {"command": by_command, "jobs": by_job}
    warehouses = {door: home.with_name(f"of-{door}") for door in doors}
    for copy in warehouses.values():
        shutil.copytree(home, copy)

    result = project.made("east", ["transformed_messages"])
    expected = project.published()
    assert expected["checks"] == "all 10 expectations hold"
    of_dagster = {
        line.split("|")[3].strip()
        for check in result.get_asset_check_evaluations()
        for line in str(check.metadata["expectations"].value).splitlines()[2:]
    }
    for door, run in doors.items():
        code, checks, _ = run(folder, warehouses[door])
        assert code == 0
        there = snapshot_properties(open_table(Warehouse(dir=warehouses[door]), specs.TRANSFORMED))
        assert {**there, "run-id": ""} == {**expected, "run-id": ""}
        assert all(success for success, _ in checks.values())
        assert {observed for _, observed in checks.values()} == of_dagster
        # The mappings are recorded, as Dagster's are.
        assert versions.find(Warehouse(dir=warehouses[door]), there["mapping-version"])

    # Another run, whose staged files are damaged: each door refuses it, and for the same reason.
    damage(monkeypatch, without_the_first)
    said = set()
    for door, run in doors.items():
        code, checks, refused = run(folder, warehouses[door])
        assert code == 1
        said.add(_reason(refused))
        there = snapshot_properties(open_table(Warehouse(dir=warehouses[door]), specs.TRANSFORMED))
        assert there["digest"] == expected["digest"]
    result = project.materialize("east", ["transformed_messages"], DAYS)
    (why,) = failures(result).values()
    said.add(_reason(why))
    (reason,) = said
    assert "ExpectMessagesToBeConserved: 298 messages" in reason
    assert project.published() == expected


def _reason(refused: str) -> str:
    """Why rows are refused; their folder is looked at, and is another one for each door."""
    reason, _, folder = refused.partition("; nothing was published, the files are in ")
    assert list(Path(folder.partition(" ")[0].removeprefix("file://")).rglob("*.parquet"))
    return reason
