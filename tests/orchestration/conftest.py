"""Empty Dagster projects, on a real instance (SQLite)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.dagster_project import Project, empty_project


@pytest.fixture
def project(
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Iterator[Project]:
    """An empty project whose runs ask for Spark; a parameter is further YAML of its instance."""
    monkeypatch.setenv("NATS_TRANSFORM_SPARK_MASTER", "local[2]")
    with empty_project(tmp_path, monkeypatch, getattr(request, "param", "")) as made:
        yield made


@pytest.fixture
def bare_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Project]:
    """An empty project of which nothing runs on Spark; a parameter as above."""
    with empty_project(tmp_path, monkeypatch, getattr(request, "param", "")) as made:
        yield made
