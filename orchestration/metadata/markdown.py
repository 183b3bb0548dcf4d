"""Markdown for the metadata of a materialization: tables, and bars of text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dagster as dg

from nats_transform.untrusted import visible

_BAR_WIDTH = 20


def bar(percent: float, mark: float | None = None) -> str:
    """A share as a bar of characters; a `│` marks where it should end."""
    filled = round(percent / 100 * _BAR_WIDTH)
    cells = ["█"] * filled + ["░"] * (_BAR_WIDTH - filled)
    if mark is not None:
        cells.insert(min(round(mark / 100 * _BAR_WIDTH), _BAR_WIDTH), "│")
    return "".join(cells)


def table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], empty: str = ""
) -> dg.MetadataValue[Any]:
    """A Markdown table; what a subject holds cannot end a cell or become markup.

    Args:
        columns: the names in the first row.
        rows: the cells of each further row.
        empty: what to say if there are no rows; by default a table without rows is shown.
    """
    if empty and not rows:
        return dg.MetadataValue.md(empty)
    lines = [columns, ["---"] * len(columns), *rows]
    return dg.MetadataValue.md(
        "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)
    )


def _cell(text: str) -> str:
    # A subject may hold what Markdown or HTML would read as its own.
    return "".join(f"&#{ord(c)};" if c in "|<>&`*_$[]\\" else c for c in visible(text))
