"""docs/semantics.md names rows and tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

from tests import cases

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "semantics.md").read_text("utf-8")


def test_the_rows_it_names_exist() -> None:
    known = {case.id for case in cases.transforms()}
    known |= {case["id"] for name in ("mappings.yaml", "streams.yaml") for case in cases.load(name)}
    known |= {row[0] for rows in cases.load("imports.yaml").values() for row in rows}
    named = set(re.findall(r"`([a-z0-9]+(?:-[a-z0-9]+)+)`", TEXT))
    assert len(named) > 30
    assert named - known == set()


def test_the_tests_it_names_exist() -> None:
    for path in re.findall(r"`(tests/[a-z_/.]+)`", TEXT):
        assert (ROOT / path).exists(), path
    tests = "".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    for name in re.findall(r"`(test_\w+)`", TEXT):
        assert f"def {name}(" in tests
