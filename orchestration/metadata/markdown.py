"""Markdown for Dagster: tables, bars of text, and text of others that must not become markup."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import dagster as dg

from nats_transform.untrusted import visible

_BAR_WIDTH = 20
_MOST_LINES = 200
"""More of a file helps nobody in a catalog."""
IN_PLACE = 999
"""Dagster's UI shows Markdown of so many characters in place, and longer one in a dialog."""


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
        empty: what to say if there are no rows; by default a table without rows is shown.
    """
    if empty and not rows:
        return dg.MetadataValue.md(empty)
    lines = [columns, ["---"] * len(columns), *rows]
    return dg.MetadataValue.md(
        "\n".join("| " + " | ".join(escaped(cell) for cell in line) + " |" for line in lines)
    )


def first_in_place(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> dg.MetadataValue[Any]:
    """The first rows as a table: as many as the UI shows in place, and at least one."""
    count = len(rows)
    while count > 1 and len(str(table(columns, rows[:count]).value)) > IN_PLACE:
        count -= 1
    return table(columns, rows[:count])


def escaped(text: str) -> str:
    """A text as Markdown that shows just this text, such as `orders.*.*` with all its stars."""
    return re.sub(r"[|<>&`*_$\[\]\\!~#]", r"\\\g<0>", visible(text))


def code_block(text: str) -> str:
    """A text of several lines as Markdown that shows it as it is; of a long one, the start."""
    lines = visible(text.rstrip(), keep="\n").splitlines()
    more = f"\n# and {len(lines) - _MOST_LINES:,} more lines" if len(lines) > _MOST_LINES else ""
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text)), 3)
    return f"{fence}\n" + "\n".join(lines[:_MOST_LINES]) + f"{more}\n{fence}"
