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
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote, urlparse

from great_expectations.core import ExpectationSuiteValidationResult, RunIdentifier
from great_expectations.core.validation_definition import ValidationDefinition
from great_expectations.data_context.data_context.ephemeral_data_context import EphemeralDataContext
from great_expectations.data_context.types.base import DataContextConfig, ProgressBarsConfig
from great_expectations.data_context.types.resource_identifiers import (
    ExpectationSuiteIdentifier,
    ValidationResultIdentifier,
)
from great_expectations.render.components import RenderedDocumentContent, RenderedSectionContent
from great_expectations.render.renderer.content_block import (
    validation_results_table_content_block as results_table,
)
from great_expectations.render.view.view import DefaultJinjaPageView
from jinja2 import ChoiceLoader, PackageLoader

from expectations.expectation import Report
from expectations.great import batch_of, great_suite, new_context
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


def keep(report: Report, folder: Path, *, name: str) -> Path:
    """Keeps the results of a suite in a folder, and returns their page in its Data Docs.

    In the folder are `results` (JSON, as Great Expectations writes them) and `data_docs` (HTML;
    open `data_docs/index.html`). Nothing else is written, nothing is sent anywhere.

    Args:
        report: the report.
        folder: where results and Data Docs are kept; shared by all runs.
        name: what the rows are, for people: a stream and its days.
    """
    context = _context(folder.absolute())
    suite = great_suite(report.suite)
    source = context.data_sources.add_pandas("measures")
    data = source.add_dataframe_asset(suite.name).add_batch_definition_whole_dataframe(name)
    definition = ValidationDefinition(name=suite.name, data=data, suite=context.suites.add(suite))
    context.validation_definitions.add(definition)
    # The name becomes the name of a folder.
    run = RunIdentifier(run_name=re.sub(r"[^\w .-]", "_", name), run_time=datetime.now(UTC))
    found = definition.run(batch_parameters={"dataframe": batch_of(report.measures)}, run_id=run)
    key = ValidationResultIdentifier(
        ExpectationSuiteIdentifier(suite.name), run, str(found.batch_id)
    )
    stored: Any = context.validation_results_store.store_backend
    results_path = _file(stored.get_url_for_key(cast(Any, key).to_tuple()))
    pages, kept = folder.absolute() / "data_docs", folder.absolute() / "results"
    docs_path = (pages / results_path.relative_to(kept)).with_suffix(".html")
    _write_page(found, pages, docs_path)
    _write_index(pages, kept)
    return docs_path


def _file(url: object) -> Path:
    return Path(unquote(urlparse(str(url)).path))


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
    return new_context(config)


def _write_page(found: ExpectationSuiteValidationResult, folder: Path, page: Path) -> None:
    """Writes the page of a run.

    Args:
        found: what Great Expectations found.
        folder: the folder of the pages, where the index is written.
        page: the file of the page, in this folder.
    """
    results = sorted(found.results, key=lambda result: bool(result.success))
    table: Any = results_table.ValidationResultsTableContentBlockRenderer.render(results)
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
