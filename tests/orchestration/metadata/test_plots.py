"""What small plots show, as a reader of the SVG finds it."""

from __future__ import annotations

import base64
import xml.etree.ElementTree as ET

import pytest

from orchestration.metadata.plots import picture, split_plot


def share(destination: str, at: float, weight: float, verdict: str) -> dict[str, object]:
    return {
        "source": "orders.>",
        "cluster": None,
        "destination": destination,
        "expected": weight,
        "share": at,
        "low": at - 1,
        "high": at + 1,
        "verdict": verdict,
    }


def test_bars_are_as_long_as_shares_and_colored_by_verdict() -> None:
    shares = [share("a", 25.0, 25.0, "within"), share("b", 75.0, 50.0, "outside")]
    root = ET.fromstring(split_plot(shares))  # noqa: S314 - we wrote it
    rects = [(rect.get("width"), rect.get("fill")) for rect in root if rect.tag.endswith("rect")]
    assert [rect for rect in rects if rect[0] != "320"] == [
        ("80.0", "#0072b2"),
        ("240.0", "#c44e00"),
    ]
    assert root.get("height") == "44"


@pytest.mark.parametrize(
    "name", ['</text><script>"&', "x" * 500, "orders.\udcff.>"], ids=["markup", "long", "no-utf-8"]
)
def test_any_destination_can_be_shown(name: str) -> None:
    markdown = picture(split_plot([share(name, 10.0, 10.0, "undecided")]), "shares")
    data = markdown.removeprefix("![shares](data:image/svg+xml;base64,").removesuffix(")")
    root = ET.fromstring(base64.b64decode(data))  # noqa: S314 - we wrote it
    assert len([text for text in root if text.tag.endswith("text")]) == 2
