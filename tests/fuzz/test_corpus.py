"""Inputs that failed once, or stand for a kind of failure, do not fail again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.__main__ import SEEDS
from tests.fuzz.targets import CORPUS, TARGETS, run

FILES = sorted(path for path in CORPUS.glob("*/*") if path.is_file())


def test_there_is_a_corpus_for_known_targets_only() -> None:
    assert {path.parent.name for path in FILES} <= TARGETS.keys()
    assert FILES
    assert SEEDS.keys() == TARGETS.keys()


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_what_failed_once(path: Path) -> None:
    run(TARGETS[path.parent.name], path.read_bytes())


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_are_answered(name: str) -> None:
    for data in SEEDS[name]:
        run(TARGETS[name], data)
