"""The page that shows how two states of a table differ: one HTML file that needs nothing else."""

from __future__ import annotations

from pathlib import Path

from jobs.compare import CompareResult
from jobs.pages.page import page, write_page

_CHANGES = 200


def write(result: CompareResult, path: Path) -> None:
    """Writes the page.

    Raises:
        ReportError: the file cannot be written.
    """
    write_page(render(result), path)


def render(result: CompareResult) -> str:
    """The page as HTML."""
    return page("compare.html", result=result, changes=result.differences[:_CHANGES])
