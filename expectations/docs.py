"""Data Docs: a page for each run of a suite, and an index of them, as files that need no network.

The content is what Great Expectations' renderers make of our expectations. Its own pages load
styles, scripts and pictures from five hosts and show next to nothing without them; ours carry a
style sheet and no script.
"""

from __future__ import annotations

import json
import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, cast

from great_expectations.core import ExpectationSuiteValidationResult
from great_expectations.render.components import RenderedDocumentContent, RenderedSectionContent
from great_expectations.render.renderer.content_block import (
    validation_results_table_content_block as results_table,
)
from great_expectations.render.view.view import DefaultJinjaPageView
from jinja2 import ChoiceLoader, PackageLoader

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


def write_page(found: ExpectationSuiteValidationResult, folder: Path, page: Path) -> None:
    """Writes the page of a run, and the index anew.

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


def write_index(folder: Path, results: Path) -> None:
    """Writes the index of the latest runs.

    Args:
        folder: the folder of the pages.
        results: the folder of the results, laid out like the pages.
    """
    files = sorted(results.glob("*/*/*/*.json"), key=lambda file: file.parent.name, reverse=True)
    runs = []
    for file in files[:LISTED]:
        found = json.loads(file.read_text(encoding="utf-8"))
        statistics = found["statistics"]
        runs.append(
            {
                "suite": found["suite_name"],
                "name": found["meta"]["run_id"]["run_name"],
                "time": found["meta"]["run_id"]["run_time"][:19].replace("T", " "),
                "success": found["success"],
                "failed": statistics["unsuccessful_expectations"],
                "expectations": statistics["evaluated_expectations"],
                "page": file.relative_to(results).with_suffix(".html").as_posix(),
            }
        )
    html = _view().env.get_template("index.html").render(runs=runs, left_out=len(files) - len(runs))
    _write(folder / "index.html", html)


def _write(file: Path, text: str) -> None:
    """Writes a file at once: someone may be reading it, or another run writing it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", dir=file.parent, suffix=".tmp", delete=False
    ) as temporary:
        temporary.write(text)
    os.chmod(temporary.name, 0o644)
    os.replace(temporary.name, file)
