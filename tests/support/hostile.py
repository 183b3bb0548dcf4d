"""Text as a hostile publisher writes it, and what a browser makes of a page that shows it."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.browser import Browser

HOSTILE = (
    '<script>console.log("ran")</script><img/src=x/onerror=console.log("ran")>"\'&amp;`{{x}}'
    "\x1b[31m\x1b]0;title\x07\x7f\x9b2J\u202e\u2066\u200f\u061c\u2028\udcff"
)
"""Legal as a token of a subject but for its dots: HTML, scripts, ANSI, C1, bidi, bad UTF-8."""

SHOWN = r"\x1b[31m\x1b]0;title\x07\x7f\x9b2J\u202e\u2066\u200f\u061c\u2028\udcff"
"""How the end of it is shown."""

RAW = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u061c\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""What must reach nobody; line breaks are ours."""

_PROBE = r"""(() => {
  const elements = [...document.querySelectorAll("*")];
  const attributes = elements.flatMap(element => [...element.attributes]);
  const shown = document.title + document.documentElement.textContent
    + attributes.map(attribute => attribute.value);
  return {
    elements: document.querySelectorAll("img, iframe, object, embed, base, form").length,
    scripts: document.querySelectorAll("script").length,
    handlers: attributes.filter(attribute => attribute.name.startsWith("on")).length,
    raw: [...shown.matchAll(/[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029]|\p{Bidi_Control}/gu)].length,
    text: document.body.innerText,
  };
})()"""


def look_at(browser: Browser, page: Path, scripts: int = 0) -> None:
    """Opens a page: nothing of `HOSTILE` ran, became an element or stands there raw.

    Args:
        browser: where it is opened.
        page: the page.
        scripts: how many scripts the page has of its own.
    """
    assert not RAW.search(page.read_text("utf-8"))
    assert browser.open(page) == []  # no script ran, nothing was loaded
    found = browser.evaluate(_PROBE)
    assert SHOWN in found.pop("text")
    assert found == {"elements": 0, "scripts": scripts, "handlers": 0, "raw": 0}
