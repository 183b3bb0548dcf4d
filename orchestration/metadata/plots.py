"""Small SVG plots for the metadata of a materialization; the UI shows them as pictures.

A picture in Markdown may be a data URI there, and nothing else would reach a browser: a page of the
UI opens no file. The colors are those of the reports; the gray can be read on white and on black.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

_ROW, _LABEL, _SCALE, _NUMBER = 22, 300, 320, 70  # pixels
_MOST_LETTERS = 42
_COLORS = {"within": "#0072b2", "outside": "#c44e00"}
_GRAY, _TRACK = "#6a7280", "#aab4c055"


def split_plot(shares: Sequence[Mapping[str, Any]]) -> str:
    """An SVG that compares shares with their weights, one row each, from 0 to 100 percent.

    A bar as long as the share, its interval as a line, and a tick where the weight wants it to end.

    Args:
        shares: each has `source`, `cluster`, `destination`, `expected`, `share`, `low`, `high` and
            `verdict`; `share` is not null.
    """
    rows = "".join(_row(number, share) for number, share in enumerate(shares))
    width, height = _LABEL + _SCALE + _NUMBER, _ROW * len(shares)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'font-family="sans-serif" font-size="12" fill="{_GRAY}">{rows}</svg>'
    )


def _row(number: int, share: Mapping[str, Any]) -> str:
    middle = _ROW * number + _ROW / 2
    label = " ".join(filter(None, (share["destination"], share["cluster"])))
    if len(label) > _MOST_LETTERS:
        label = label[: _MOST_LETTERS - 1] + "…"
    color = _COLORS.get(share["verdict"], _GRAY)
    end, low, high, mark = (
        _LABEL + _SCALE * share[name] / 100 for name in ("share", "low", "high", "expected")
    )
    return (
        f'<text x="0" y="{middle + 4}">{escape(label)}</text>'
        f'<rect x="{_LABEL}" y="{middle - 6}" width="{_SCALE}" height="12" fill="{_TRACK}"/>'
        f'<rect x="{_LABEL}" y="{middle - 6}" width="{end - _LABEL:.1f}" height="12" '
        f'fill="{color}"/>'
        f'<path d="M{low:.1f} {middle}H{high:.1f}" stroke="{_GRAY}" stroke-width="2"/>'
        f'<path d="M{mark:.1f} {middle - 9}v18" stroke="#000" stroke-width="3"/>'
        f'<path d="M{mark:.1f} {middle - 9}v18" stroke="#fff"/>'
        f'<text x="{_LABEL + _SCALE + 8}" y="{middle + 4}">{share["share"]:.2f} %</text>'
    )


def picture(svg: str, words: str) -> str:
    """Markdown that shows an SVG; the words are for who cannot see it."""
    data = base64.b64encode(svg.encode("utf-8", "backslashreplace")).decode("ascii")
    return f"![{words}](data:image/svg+xml;base64,{data})"
