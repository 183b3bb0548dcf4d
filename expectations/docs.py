"""Data Docs: a page for each run of a suite, and an index of them, as files that need no network.

The content is what Great Expectations' renderers make of our expectations. Its own pages load
styles, scripts and pictures from five hosts and show next to nothing without them; ours carry a
style sheet and no script.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from copy import copy
from datetime import UTC, datetime
from functools import cache
from html import escape
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import great_expectations as gx
import pandas as pd
from great_expectations.checkpoint.actions import ActionContext, ValidationAction
from great_expectations.checkpoint.checkpoint import CheckpointResult
from great_expectations.compatibility.pydantic import PrivateAttr
from great_expectations.core import (
    ExpectationSuiteValidationResult,
    ExpectationValidationResult,
    RunIdentifier,
)
from great_expectations.core.validation_definition import ValidationDefinition
from great_expectations.data_context.data_context.ephemeral_data_context import EphemeralDataContext
from great_expectations.expectations.metadata_types import FailureSeverity
from great_expectations.expectations.registry import get_expectation_impl
from great_expectations.render.components import RenderedDocumentContent, RenderedSectionContent
from great_expectations.render.renderer.content_block import (
    validation_results_table_content_block as results_table,
)
from great_expectations.render.view.view import DefaultJinjaPageView
from jinja2 import ChoiceLoader, PackageLoader

from expectations.batches import aggregates
from expectations.expectation import ExpectationResult, Report, Severity, plain
from expectations.great import (
    GreatExpectation,
    fault_of,
    great_suite,
    measured,
    new_context,
    sentences,
    tables,
)
from expectations.measures.rows import EXAMPLES
from nats_transform.untrusted import visible

LISTED = 100
"""Runs that the index lists, the latest; the pages of older ones stay."""


class _View(DefaultJinjaPageView):
    """Great Expectations' templates for the parts of a page, and ours for the whole."""

    _template = "page.html"

    def __init__(self) -> None:
        super().__init__()
        ours = PackageLoader(__package__, "templates")
        theirs = PackageLoader("great_expectations", "render/view/templates")
        self.env.loader = ChoiceLoader([ours, theirs])
        # Parts of a page reach the whole as text, with our line breaks.
        self.env.finalize = lambda value: (
            visible(value, keep="\n") if isinstance(value, str) else value
        )


@cache
def _view() -> _View:
    # One for all pages: reading the templates takes longer than filling them.
    return _View()


class Checked(NamedTuple):
    """What a checkpoint has left.

    Attributes:
        result: the results of its suite.
        page: their page in Data Docs.
        fault: that an action failed after that; None if none did.
    """

    result: ExpectationSuiteValidationResult
    page: Path
    fault: str | None

    @property
    def results(self) -> tuple[ExpectationResult, ...]:
        """The same as the gate has them; the topic is the name of the suite."""
        return tuple(_of_user(result, self.result.suite_name) for result in self.result.results)


class WritePage(ValidationAction):
    """Writes the page of a checkpoint's run and the index of all runs: its first action."""

    type: Literal["nats_page"] = "nats_page"

    _folder: Path = PrivateAttr()
    _report: Report | None = PrivateAttr(None)
    _found: ExpectationSuiteValidationResult = PrivateAttr()
    _page: Path | None = PrivateAttr(None)

    def run(
        self, checkpoint_result: CheckpointResult, action_context: ActionContext | None = None
    ) -> dict[str, str]:
        """Writes them, and says where the page is."""
        ((key, self._found),) = checkpoint_result.run_results.items()
        *folders, last = cast(Any, key).to_tuple()
        page = self._folder.joinpath("data_docs", *folders, f"{last}.html")
        _write_page(self._found, self._folder / "data_docs", page, self._report)
        _write_index(self._folder / "data_docs", self._folder / "results")
        self._page = page
        return {"page": str(page)}


def keep(
    report: Report, folder: Path, *, name: str, actions: Sequence[ValidationAction] = ()
) -> Checked:
    """Runs a checkpoint over the suite of a report.

    In the folder are `results` (JSON, as Great Expectations writes them) and `data_docs` (HTML;
    open `data_docs/index.html`). Nothing else is written.

    Args:
        report: the report; its measures are not taken again.
        folder: where results and Data Docs are kept; shared by all runs.
        name: what the rows are, for people: a stream and its days.
        actions: what else happens, such as a message to Slack.
    """
    frame = aggregates(report.measures, report.files)
    with measured(report.measures):
        return run_checkpoint(
            great_suite(report.suite), frame, folder, name=name, actions=actions, report=report
        )


def run_checkpoint(
    suite: gx.ExpectationSuite,
    frame: Any,
    folder: Path,
    *,
    name: str,
    actions: Sequence[ValidationAction] = (),
    report: Report | None = None,
) -> Checked:
    """Runs a suite over a pandas or Spark DataFrame.

    Args:
        suite, frame: what must hold of what.
        folder, name, actions, report: as `keep` takes them.
    """
    folder = folder.absolute()
    context = _context(folder)
    sources = context.data_sources
    is_pandas = isinstance(frame, pd.DataFrame)
    source = sources.add_pandas("rows") if is_pandas else sources.add_spark("rows")
    data = source.add_dataframe_asset(suite.name).add_batch_definition_whole_dataframe(name)
    definition = ValidationDefinition(name=suite.name, data=data, suite=context.suites.add(suite))
    context.validation_definitions.add(definition)
    checkpoint = context.checkpoints.add(
        gx.Checkpoint(
            name=suite.name,
            validation_definitions=[definition],
            actions=[WritePage(name="page"), *actions],
        )
    )
    write: Any = checkpoint.actions[0]
    write._folder, write._report = folder, report
    # The name becomes the name of a folder.
    run = RunIdentifier(run_name=re.sub(r"[^\w .-]", "_", name), run_time=datetime.now(UTC))
    fault = None
    try:
        checkpoint.run(batch_parameters={"dataframe": frame}, run_id=run)
    except Exception as error:
        if write._page is None:
            raise
        # Its text may have the address of a webhook, which is a secret.
        fault = f"an action after the checks failed with {type(error).__name__}; see {write._page}"
    return Checked(write._found, write._page, fault)


def _of_user(found: ExpectationValidationResult, suite: str) -> ExpectationResult:
    config, result = cast(Any, found.expectation_config), found.result
    given = {name: value for name, value in config.kwargs.items() if name != "batch_id"}
    observed, broken = result.get("observed_value", ""), result.get("unexpected_count")
    if broken is not None:
        observed = f"{broken:,} of {result['element_count']:,} rows break it"
    return ExpectationResult(
        name=config.type,
        topic=suite,
        expects=visible(config.description or f"{config.type} {plain(given)}"),
        success=bool(found.success),
        blocks=config.severity is FailureSeverity.CRITICAL,
        severity=config.severity.value,
        observed=fault_of(found) or visible(str(observed)),
        examples=tuple(
            {str(given.get("column", "value")): plain(value)}
            for value in (result.get("partial_unexpected_list") or ())[:EXAMPLES]
        ),
    )


def _context(folder: Path) -> EphemeralDataContext:
    """A context that keeps results and Data Docs in the folder, and the rest in memory."""

    def files(name: str) -> dict[str, Any]:
        return {
            "class_name": "TupleFilesystemStoreBackend",
            "root_directory": str(folder),
            "base_directory": name,
        }

    memory = {"class_name": "InMemoryStoreBackend"}
    return new_context(
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


def _write_page(
    found: ExpectationSuiteValidationResult, folder: Path, page: Path, report: Report | None
) -> None:
    """Writes the page of a run.

    Args:
        found: what Great Expectations found.
        folder: the folder of the pages, where the index is written.
        page: the file of the page, in this folder.
        report: what the gate found, with the rows that break a rule.
    """
    rules: dict[str, Any] = {}
    if report is not None:
        rules = {type(one).__name__: one for one in report.suite.expectations}
    results = sorted(found.results, key=lambda result: bool(result.success))
    table: Any = results_table.ValidationResultsTableContentBlockRenderer.render(
        [_escaped(result) for result in results]
    )
    for row, result in zip(table.table, results, strict=True):
        meta = cast(Any, result.expectation_config).meta or {}
        if report is not None and (rule := rules.get(meta.get("name", ""))):
            # Great Expectations has counted the rows that break it; here are some of them.
            told = rule.judge(report.measures)
            is_warning = rule.severity is Severity.WARNS
            words = sentences(type(rule), vars(rule), is_warning=is_warning)
            examples = tables([told.examples[:EXAMPLES]])
            row[1:] = [[*words, *examples], escape(visible(told.observed))]
    document = RenderedDocumentContent(
        sections=[RenderedSectionContent(section_name="Expectations", content_blocks=[table])],
        page_title=f"{found.suite_name}: {found.meta['run_id'].run_name}",
        renderer_type="ValidationResultsPageRenderer",
    )
    failed = sum(not result.success for result in results)
    html = cast(Any, _view()).render(
        document,
        success=bool(found.success),
        summary=f"{failed} of {len(results)} expectations do not hold"
        if failed
        else f"all {len(results)} expectations hold",
        suite=found.suite_name,
        run_time=f"{found.meta['run_id'].run_time:%Y-%m-%d %H:%M:%S} UTC",
        home=os.path.relpath(folder / "index.html", page.parent),
    )
    _write(page, html)


def _escaped(result: ExpectationValidationResult) -> ExpectationValidationResult:
    """A result for a page: what is not ours shows values of rows as they are."""
    config = cast(Any, result.expectation_config)
    if issubclass(get_expectation_impl(config.type), GreatExpectation):
        return result
    shown = copy(result)
    shown.result, shown.exception_info = _safe(result.result), _safe(result.exception_info)
    shown.expectation_config = copied = copy(config)
    copied.kwargs = _safe(config.kwargs)
    return shown


def _safe(value: Any) -> Any:
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, Mapping):
        return {escape(str(name)): _safe(item) for name, item in value.items()}
    return [_safe(item) for item in value] if isinstance(value, list | tuple) else value


def _write_index(folder: Path, results: Path) -> None:
    """Writes the index of the latest runs.

    Args:
        folder: the folder of the pages.
        results: the folder of the results, laid out like the pages.
    """
    files = sorted(results.glob("*/*/*/*.json"), key=lambda file: file.parent.name, reverse=True)
    runs = [run for file in files[:LISTED] if (run := _run(file, results)) is not None]
    html = _view().env.get_template("index.html").render(runs=runs, left_out=len(files[LISTED:]))
    _write(folder / "index.html", html)


def _run(file: Path, results: Path) -> dict[str, Any] | None:
    """A run for the index; None if its file is damaged, or another run is just writing it."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        statistics, run = found["statistics"], found["meta"]["run_id"]
        return {
            "suite": str(found["suite_name"]),
            "name": str(run["run_name"]),
            "time": run["run_time"][:19].replace("T", " "),
            "success": found["success"] is True,
            "failed": int(statistics["unsuccessful_expectations"]),
            "expectations": int(statistics["evaluated_expectations"]),
            "page": file.relative_to(results).with_suffix(".html").as_posix(),
        }
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def _write(file: Path, text: str) -> None:
    """Writes a file at once: someone may be reading it, or another run writing it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", dir=file.parent, suffix=".tmp", delete=False
    ) as temporary:
        temporary.write(text)
    os.chmod(temporary.name, 0o644)
    os.replace(temporary.name, file)
