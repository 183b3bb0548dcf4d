"""The page that shows how two states of a table differ: one HTML file that needs nothing else."""

from __future__ import annotations

from jobs.compare import CompareResult
from jobs.pages.page import page

_CHANGES = 200


def render(result: CompareResult) -> str:
    """The page as HTML."""
    return page("compare.html", result=result, changes=result.differences[:_CHANGES])
