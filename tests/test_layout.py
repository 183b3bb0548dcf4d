"""The packages and their parts import one way only, and the library needs no Spark."""

from __future__ import annotations

import re
import textwrap
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from scripts.architecture import FLOORS, FRONTS, import_graph, imported, modules, parts
from tests.support.programs import printed_in_python

ROOT = Path(__file__).parents[1]

# Package -> what of ours it may import besides itself.
MAY_IMPORT = {
    "nats_transform": set(),
    "jobs": {"nats_transform", "expectations"},
    "expectations": {"nats_transform"},
    "orchestration": {"nats_transform", "jobs", "expectations"},
    "cli": {"nats_transform", "jobs", "expectations", "orchestration"},
}
OURS = {*MAY_IMPORT, "benchmarks", "deploy", "tests"}

# Package -> frameworks that belong further up. Under nats_transform, Spark has a test of its own.
MAY_NOT_IMPORT = {
    "nats_transform": {"dagster", "great_expectations"},
    "jobs": {"dagster", "great_expectations"},
    "expectations": {"dagster"},
    "orchestration": set(),
    "cli": set(),
}


@pytest.mark.parametrize(
    ("source", "modules"),
    [
        pytest.param("import jobs", {"jobs"}, id="import"),
        pytest.param("import os, jobs.days as t", {"os", "jobs.days"}, id="submodule and alias"),
        pytest.param("from jobs import days", {"jobs.days"}, id="module from its package"),
        pytest.param("from jobs.days import x", {"jobs.days"}, id="name from a module"),
        pytest.param("from jobs import days, x", {"jobs", "jobs.days"}, id="both"),
        pytest.param("from . import days, x", {"jobs", "jobs.days"}, id="relative"),
        pytest.param("from .days import x\nfrom ..a import y", {"jobs.days", "a"}, id="dots"),
        pytest.param("try:\n  import jobs\nexcept E:\n  import os", {"jobs", "os"}, id="try"),
        pytest.param("if TYPE_CHECKING:\n  from jobs import x", {"jobs"}, id="for types only"),
    ],
)
def test_finds_imports(source: str, modules: set[str]) -> None:
    assert imported(source, "jobs", {"jobs.days": None}) == modules
    within = "def f():\n" + textwrap.indent(source, "  ")
    assert imported(within, "jobs", {"jobs.days": None}) == modules


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_imports_point_one_way(package: str) -> None:
    forbidden = (OURS - MAY_IMPORT[package] - {package}) | MAY_NOT_IMPORT[package]
    files = [file for name, file in modules().items() if name.split(".")[0] == package]
    assert files
    wrong = {
        f"{file.relative_to(ROOT)} imports {name}"
        for file in files
        for name in imported_packages(file) & forbidden
    }
    assert not wrong


def imported_packages(file: Path) -> set[str]:
    """The top-level packages that a module imports, anywhere in it."""
    names = imported(file.read_text(encoding="utf-8"), "", {})
    return {name.partition(".")[0] for name in names}


def test_no_circle_of_files() -> None:
    """Imports for types and within functions count too, because people read along them."""
    graph = import_graph()
    assert "jobs.warehouse.tables" in graph["jobs.transform"]
    assert "nats_transform.migration.database" in graph["nats_transform.migration.analysis"]
    assert "jobs.dry_run.result" in graph["cli.output"]  # for types
    assert "cli.progress" in graph["cli.output"]  # within a function
    assert tuple(TopologicalSorter(graph).static_order())  # a CycleError names the circle


def test_parts_import_from_floors_below() -> None:
    floor = {part: number for number, there in enumerate(FLOORS) for part in there}
    graph = parts()
    assert graph.keys() <= floor.keys(), "give a new part its floor in scripts/architecture.py"
    wrong = {
        f"{part} imports {other}"
        for part, others in graph.items()
        for other in others
        if floor[other] >= floor[part]
    }
    assert not wrong


def test_packages_of_jobs_are_empty() -> None:
    """Spark's Python workers import modules of theirs: that must not import a package's others."""
    packages = sorted((ROOT / "jobs").rglob("__init__.py"))
    assert len(packages) > 5
    assert [file for file in packages if file.read_bytes()] == []


MOST_LINES = 500


def test_files_are_short_or_say_why_not() -> None:
    wrong = set()
    for package in MAY_IMPORT:
        for file in (ROOT / package).rglob("*"):
            if file.suffix not in (".py", ".c", ".h"):
                continue
            lines = file.read_text(encoding="utf-8").splitlines()
            reason = f"Longer than {MOST_LINES} lines, because "
            if len(lines) > MOST_LINES and reason not in "\n".join(lines[:40]):
                wrong.add(str(file.relative_to(ROOT)))
    assert not wrong


# What cannot be imported without Spark or pyarrow.
NEED_MORE = (
    "nats_transform.spark",
    "nats_transform.kernel",
    "nats_transform.backup.archive",
    "nats_transform.migration.tables.texts",
    "nats_transform.migration.database",
    "nats_transform.migration.analysis",
    "nats_transform.migration.analyses.changes",
    "nats_transform.migration.run",
)
APART = (*FRONTS, *(re.sub(r"\.(archive|texts|changes)$", "", name) for name in NEED_MORE))
# Run in a fresh interpreter: imports every module of the library but the fronts of other packages,
# those for Spark and those that need pyarrow; then the last, to show that the block works.
IMPORT_WITHOUT_FRAMEWORKS = f"""
import importlib, pkgutil, sys

for name in ("dagster", "great_expectations", "pandas", "pyarrow", "pyspark"):
    sys.modules[name] = None

import nats_transform

for module in pkgutil.walk_packages(nats_transform.__path__, "nats_transform."):
    if not module.name.startswith({APART}):
        importlib.import_module(module.name)
for name in {NEED_MORE}:
    try:
        importlib.import_module(name)
    except ImportError:
        print(name)
"""


def test_library_imports_without_spark() -> None:
    # walk_packages imports packages to look into them, and passes over those that cannot be.
    assert tuple(printed_in_python(IMPORT_WITHOUT_FRAMEWORKS).split()) == NEED_MORE
