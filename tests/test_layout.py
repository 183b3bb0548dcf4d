"""The packages import one way only, and the library needs no Spark."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# Package -> what of ours it may import besides itself.
MAY_IMPORT = {
    "nats_transform": set(),
    "jobs": {"nats_transform"},
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


def imported_packages(source: str) -> set[str]:
    """The top-level packages that a module imports, anywhere in it, but not relatively."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module)
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize(
    ("source", "packages"),
    [
        pytest.param("import jobs", {"jobs"}, id="import"),
        pytest.param("import os, jobs.tables as t", {"os", "jobs"}, id="submodule and alias"),
        pytest.param("from jobs.tables import x", {"jobs"}, id="from"),
        pytest.param("from . import x\nfrom .jobs import y", set(), id="relative"),
        pytest.param("def f():\n  import jobs", {"jobs"}, id="inside a function"),
        pytest.param("if TYPE_CHECKING:\n  from jobs import x", {"jobs"}, id="for types only"),
    ],
)
def test_finds_imports(source: str, packages: set[str]) -> None:
    assert imported_packages(source) == packages


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_imports_point_one_way(package: str) -> None:
    forbidden = (OURS - MAY_IMPORT[package] - {package}) | MAY_NOT_IMPORT[package]
    modules = sorted((ROOT / package).rglob("*.py"))
    assert modules
    wrong = {
        f"{module.relative_to(ROOT)} imports {name}"
        for module in modules
        for name in imported_packages(module.read_text(encoding="utf-8")) & forbidden
    }
    assert not wrong


# Run in a fresh interpreter: imports every module of the library but those for Spark, then one of
# those, to show that the block works.
IMPORT_WITHOUT_FRAMEWORKS = """
import importlib, pkgutil, sys

for name in ("dagster", "great_expectations", "pandas", "pyarrow", "pyspark"):
    sys.modules[name] = None

import nats_transform

for module in pkgutil.walk_packages(nats_transform.__path__, "nats_transform."):
    if not module.name.startswith("nats_transform.spark"):
        importlib.import_module(module.name)
try:
    import nats_transform.spark
except ImportError:
    print("imported")
"""


def test_library_imports_without_spark() -> None:
    # walk_packages imports packages to look into them, and passes over those that cannot be.
    run = subprocess.run(
        [sys.executable, "-c", IMPORT_WITHOUT_FRAMEWORKS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.stdout, run.stderr) == ("imported\n", "")
