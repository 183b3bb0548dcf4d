"""The same rows as a manifest, in Spark and in pandas: every expectation finds the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import great_expectations as gx
import pandas as pd
import pytest
from pyspark.sql import SparkSession

from expectations.great import GreatExpectation, great_suite
from expectations.messages import messages_suite
from jobs.settings.warehouse import Warehouse
from jobs.warehouse import specs, tables
from nats_transform.config import canonical
from nats_transform.great_expectations import aggregates
from tests.expectations.tables import MAPPINGS, SEED, VERSION, Change, table_digest
from tests.expectations.test_mutations import (
    ARCHIVE,
    MESSAGES,
    MESSAGES_CHANGES,
    TRANSFORMED,
    TRANSFORMED_CHANGES,
    TRANSFORMED_SUITE,
)
from tests.support.archive import Row, archive, frame
from tests.support.refused import refused

SUITES = {"messages": messages_suite(ARCHIVE), "transformed_messages": TRANSFORMED_SUITE}
KNOWN = {"archive": (ARCHIVE.rows, str(ARCHIVE))}
GIVEN: dict[str, dict[str, Any]] = {
    "messages": KNOWN,
    "transformed_messages": {
        **KNOWN,
        "mappings": json.loads(canonical(MAPPINGS, SEED)),
        "mapping_version": VERSION,
        "before": table_digest(TRANSFORMED),
    },
}
Kind = Callable[[list[Row], str], Any]


@pytest.fixture(scope="module")
def context() -> Any:
    """A context of Great Expectations that knows nothing of us."""
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    return context


@pytest.fixture(
    params=[
        *("pandas", "manifest"),
        *(pytest.param(name, marks=pytest.mark.spark) for name in ("spark", "manifest in spark")),
    ]
)
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    """Makes a batch of rows of a table."""

    def manifest(rows: list[Row], name: str) -> pd.DataFrame:
        spec = specs.MESSAGES if name == "messages" else specs.TRANSFORMED
        archive(Warehouse(dir=tmp_path / "warehouse"), rows, spec)
        table = tables.open_table(Warehouse(dir=tmp_path / "warehouse"), spec)
        return table.inspect.files().to_pandas()

    def make(rows: list[Row], name: str) -> Any:
        if request.param == "pandas":
            return pd.DataFrame(rows)
        if request.param == "manifest":
            return manifest(rows, name)
        spark: SparkSession = request.getfixturevalue("spark")
        if request.param == "spark":
            return frame(spark, rows)
        return spark.createDataFrame(manifest(rows, name)[["file_path", "record_count"]])

    return make


def failures(context: Any, batch: Any, name: str) -> set[str]:
    """The expectations that fail: our classes on the batch, bundled ones on its aggregates."""
    suite = great_suite(SUITES[name])
    ours = [one for one in suite.expectations if isinstance(one, GreatExpectation)]
    bundled = [one for one in suite.expectations if not isinstance(one, GreatExpectation)]
    assert bool(ours) == (name == "transformed_messages")
    results = validated(context, batch, ours)
    results += validated(context, aggregates(batch, **GIVEN[name]), bundled)
    assert len(results) == len(SUITES[name].expectations)
    assert not [r for r in results if (r.exception_info or {}).get("raised_exception")]
    names = {one.column: one.name for one in SUITES[name].expectations}
    return {
        names.get(result.expectation_config.kwargs.get("column", ""))
        or "".join(word.title() for word in result.expectation_config.type.split("_"))
        for result in results
        if not result.success
    }


def validated(context: Any, batch: Any, expectations: list[Any]) -> list[Any]:
    is_pandas = isinstance(batch, pd.DataFrame)
    sources = context.data_sources
    add = sources.add_or_update_pandas if is_pandas else sources.add_or_update_spark
    asset = add("pandas" if is_pandas else "spark").add_dataframe_asset("rows")
    definition = asset.add_batch_definition_whole_dataframe("all")
    suite = gx.ExpectationSuite(name="any", expectations=expectations)
    return list(definition.get_batch({"dataframe": batch}).validate(suite).results)


SOME = {("messages", "drop a row"), ("transformed_messages", "a wildcard")}
ALL = [
    pytest.param(
        name,
        rows,
        *change.values,
        id=f"{name}-{change.id}",
        marks=() if (name, change.id) in SOME else pytest.mark.slow,
    )
    for name, rows, changes in (
        ("messages", MESSAGES, MESSAGES_CHANGES),
        ("transformed_messages", TRANSFORMED, TRANSFORMED_CHANGES),
    )
    for change in changes
]


@pytest.mark.parametrize(("name", "rows", "change", "failing"), ALL)
def test_every_kind_of_batch_gives_the_same_results(
    context: Any, kind: Kind, name: str, rows: list[Row], change: Change, failing: set[str]
) -> None:
    changed = list(rows)
    change(changed)
    assert failures(context, kind(changed, name), name) == failing


def test_a_batch_without_a_column_is_refused() -> None:
    with refused(ValueError, "batch-lacks-columns", lacking="ts_ns, data"):
        aggregates(pd.DataFrame(MESSAGES).drop(columns=["ts_ns", "data"]))
