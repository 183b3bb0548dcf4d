"""What all pages share: one HTML file that needs nothing else, from a template and values.

Plots are SVG in the page, with positions in percent, so that they fit any width without scaling
their text. Whatever stands in a page is escaped: names from outside stay text that can be seen.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from math import ceil, floor, log10
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from jobs.errors import JobError, text_of
from jobs.files.output import whole
from nats_transform.untrusted import one_line, visible
from nats_transform.words import plural


def write_page(html: str, path: Path) -> None:
    """Writes a page.

    Raises:
        JobError: the file cannot be written.
    """
    try:
        with whole(path) as part:
            part.write_text(html, "utf-8")
    except OSError as error:
        why = text_of(error)
        raise JobError("output-unwritable", what="the report", path=path, why=why) from error


def page(template: str, **values: Any) -> str:
    """A page of `jobs/pages/templates` as HTML."""
    return _environment().get_template(template).render(**values)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(__package__, "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["version"] = version("nats-transform")
    environment.filters |= {
        "number": "{:,}".format,
        "plural": lambda *counted: _unbroken(plural(*counted)),
        "percent": _percent,
        "moment": _moment,
        "chance": _chance,
        "one_line": one_line,
        "unbroken": _unbroken,
        "sentence": lambda text: _unbroken(text[:1].upper() + text[1:]),
    }
    return environment


def _visible(value: Any) -> Any:
    """A value as it stands in a page; Jinja calls this for every `{{ ... }}`, then escapes HTML."""
    # Markup is what our templates made, and its values went through here.
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@dataclass(frozen=True, slots=True)
class Scale:
    """An axis: values to percent of its length.

    Attributes:
        low, high: its ends.
        ticks: values with a label.
        digits: decimals that the labels need.
    """

    low: float
    high: float
    ticks: tuple[float, ...]
    digits: int = 0

    def at(self, value: float) -> float:
        """Where a value is, in percent; values off the axis are on its end."""
        span = self.high - self.low
        return round(100 * min(1.0, max(0.0, (value - self.low) / span)), 3) if span else 50.0

    def holds(self, value: float) -> bool:
        """Whether a value is on the axis."""
        return self.low <= value <= self.high

    def label(self, value: float, signed: bool = False) -> str:
        """A tick's label, with a true minus sign."""
        text = f"{value:{'+' if signed and value else ''},.{self.digits}f}"
        return text.replace("-", "\N{MINUS SIGN}")


def nice_scale(low: float, high: float, ticks: int = 4) -> Scale:
    """A scale over low..high whose ticks are round numbers."""
    span = (high - low) or 1.0
    high = low + span
    power = 10.0 ** floor(log10(span / ticks))
    candidates = [
        (step, ceil(low / step - 1e-9), floor(high / step + 1e-9))
        for step in (m * power for m in (0.5, 1, 2, 5, 10))
    ]
    step, first, last = min(
        (c for c in candidates if c[2] > c[1]), key=lambda c: abs(c[2] - c[1] + 1 - ticks)
    )
    values = tuple(n * step for n in range(first, last + 1))
    digits = max(0, -floor(log10(step) + 1e-9))
    return Scale(low, high, values, digits)


_UNIT = re.compile(r"(?<=\d) (?=(?:%|h|days?|hours?|points?|messages?|subjects?|UTC)(?!\w))")


def _unbroken(text: str) -> Markup:
    """A text whose numbers stay in one line with their units."""
    return Markup(_UNIT.sub("&nbsp;", escape(visible(text))))  # noqa: S704 - it is escaped


def _percent(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:.{digits}f}"  # noqa: RUF001 - a dash for no value


def _chance(value: float) -> Markup:
    return Markup("&lt;&nbsp;0.001" if value < 0.001 else f"=&nbsp;{value:.3f}")  # noqa: S704


def _moment(value: datetime | None) -> str:
    return f"{value.astimezone(UTC):%Y-%m-%d %H:%M}" if value else "–"  # noqa: RUF001
