"""Runs a suite, and keeps its results and its Data Docs in a folder.

In the folder are `results` (JSON, as Great Expectations writes them) and `data_docs`
(HTML; open `data_docs/index.html`). Nothing else is written, nothing is sent anywhere.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote, urlparse

with warnings.catch_warnings():
    # Great Expectations (1.24) imports `sre_constants`, which Python has deprecated.
    warnings.filterwarnings("ignore", "module 'sre_constants'", DeprecationWarning)
    import great_expectations as gx

from great_expectations import ExpectationSuite
from great_expectations.core import RunIdentifier
from great_expectations.core.expectation_validation_result import ExpectationValidationResult
from great_expectations.core.validation_definition import ValidationDefinition
from great_expectations.data_context.data_context.ephemeral_data_context import EphemeralDataContext
from great_expectations.data_context.types.base import DataContextConfig, ProgressBarsConfig
from great_expectations.data_context.types.resource_identifiers import (
    ExpectationSuiteIdentifier,
    ValidationResultIdentifier,
)
from great_expectations.expectations.metadata_types import FailureSeverity
from great_expectations.expectations.registry import get_expectation_impl

from expectations.docs import write_index, write_page
from expectations.measured import MeasuredExpectation, batch_of
from nats_transform import NatsTransformError


class ChecksBroken(NatsTransformError):
    """The checks failed to run, so it is not known whether they hold."""


@dataclass(frozen=True, slots=True)
class ExpectationResult:
    """The result of one expectation.

    Attributes:
        name: the name of its class.
        topic: what it checks: the name of the module that defines it.
        expects: what it expects, in a sentence.
        success: whether it holds.
        blocks: whether the assets downstream must not be made if it does not hold.
        severity: critical, warning or info.
        observed: what was seen, in a sentence.
        examples: some of the rows that break it, as plain values.
        details: the numbers that the judgement is based on, as plain values.
    """

    name: str
    topic: str
    expects: str
    success: bool
    blocks: bool
    severity: str
    observed: str
    examples: tuple[Mapping[str, Any], ...] = ()
    details: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a suite.

    Attributes:
        suite: its name.
        success: whether all its expectations hold.
        results: one for each expectation, in the order of the suite.
        results_path: the JSON file.
        docs_path: the page in Data Docs.
    """

    suite: str
    success: bool
    results: tuple[ExpectationResult, ...]
    results_path: Path
    docs_path: Path

    @property
    def failures(self) -> tuple[ExpectationResult, ...]:
        """The expectations that do not hold."""
        return tuple(result for result in self.results if not result.success)

    @property
    def blocks(self) -> bool:
        """Whether the assets downstream must not be made."""
        return any(result.blocks for result in self.failures)

    def __str__(self) -> str:
        """One line: which expectations fail, and the page that shows them."""
        if self.success:
            return f"{self.suite}: all {len(self.results)} expectations hold ({self.docs_path})"
        told = "; ".join(f"{result.name}: {result.observed}" for result in self.failures)
        return f"{self.suite}: {told}; see {self.docs_path}"


def validate(measures: object, suite: ExpectationSuite, folder: Path, *, name: str) -> Report:
    """The report of a suite of ours on the measures of its table.

    Args:
        measures: what `expectations.measures` found in the rows of whole days; if a part of a day
            is left out, gaps are found.
        suite: one that `expectations.suites` made.
        folder: where results and Data Docs are kept; shared by all runs.
        name: what the rows are, for people: a stream and its days.

    Raises:
        ChecksBroken: an expectation could not be checked.
    """
    context = _context(folder.absolute())
    source = context.data_sources.add_pandas("measures")
    data = source.add_dataframe_asset(suite.name).add_batch_definition_whole_dataframe(name)
    definition = ValidationDefinition(name=suite.name, data=data, suite=context.suites.add(suite))
    context.validation_definitions.add(definition)
    # The name becomes the name of a folder.
    run = RunIdentifier(run_name=re.sub(r"[^\w .-]", "_", name), run_time=datetime.now(UTC))
    found = definition.run(batch_parameters={"dataframe": batch_of(measures)}, run_id=run)
    key = ValidationResultIdentifier(
        ExpectationSuiteIdentifier(suite.name), run, str(found.batch_id)
    )
    stored: Any = context.validation_results_store.store_backend
    results_path = _file(stored.get_url_for_key(cast(Any, key).to_tuple()))
    pages, kept = folder.absolute() / "data_docs", folder.absolute() / "results"
    docs_path = (pages / results_path.relative_to(kept)).with_suffix(".html")
    write_page(found, pages, docs_path)
    write_index(pages, kept)
    results = [_result(result) for result in found.results]
    return Report(
        suite=suite.name,
        success=bool(found.success),
        results=tuple(results),
        results_path=results_path,
        docs_path=docs_path,
    )


def _result(found: ExpectationValidationResult) -> ExpectationResult:
    config = found.expectation_config
    assert config is not None  # noqa: S101 - results of a suite have one
    kind = get_expectation_impl(config.type)
    assert issubclass(kind, MeasuredExpectation)  # noqa: S101 - as all of our suites
    error = _error(found.exception_info or {})
    if error is not None:
        raise ChecksBroken(f"{kind.__name__} could not be checked: {error}")
    severity = FailureSeverity(config.severity)
    return ExpectationResult(
        name=kind.__name__,
        topic=kind.__module__.rpartition(".")[2],
        expects=kind.sentence(config.kwargs),
        success=bool(found.success),
        blocks=severity is FailureSeverity.CRITICAL,
        severity=severity.value,
        observed=found.result["observed_value"],
        examples=tuple(found.result["examples"]),
        details=found.result["details"],
    )


def _file(url: object) -> Path:
    return Path(unquote(urlparse(str(url)).path))


def _error(info: Mapping[str, Any]) -> str | None:
    """The first line of what was raised while an expectation was checked, if anything was."""
    infos = [info] if "raised_exception" in info else list(info.values())
    for entry in infos:
        if entry.get("raised_exception"):
            return str(entry.get("exception_message")).strip().splitlines()[0]
    return None


def _context(folder: Path) -> EphemeralDataContext:
    """A context that keeps results and Data Docs in the folder, and the rest in memory."""

    def files(name: str) -> dict[str, Any]:
        return {
            "class_name": "TupleFilesystemStoreBackend",
            "root_directory": str(folder),
            "base_directory": name,
        }

    memory = {"class_name": "InMemoryStoreBackend"}
    config = DataContextConfig(
        analytics_enabled=False,
        progress_bars=ProgressBarsConfig(globally=False),
        expectations_store_name="suites",
        validation_results_store_name="results",
        checkpoint_store_name="checkpoints",
        stores={
            "suites": {"class_name": "ExpectationsStore", "store_backend": memory},
            "results": {"class_name": "ValidationResultsStore", "store_backend": files("results")},
            "validation_definition_store": {
                "class_name": "ValidationDefinitionStore",
                "store_backend": memory,
            },
            "checkpoints": {"class_name": "CheckpointStore", "store_backend": memory},
        },
        data_docs_sites={},
    )
    return gx.get_context(mode="ephemeral", project_config=config)
