"""Text as a hostile publisher writes it, and what a browser makes of a page that shows it."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.support.browser import browse

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

_PROBE = """<script>
addEventListener("load", () => {
  const shown = document.title + document.documentElement.textContent
    + [...document.querySelectorAll("*")].flatMap(e => [...e.attributes].map(a => a.value));
  console.log("PROBE " + JSON.stringify({
    elements: document.querySelectorAll("img, iframe, object, embed, base, form").length
      + document.querySelectorAll("script").length - OURS,
    handlers: [...document.querySelectorAll("*")].flatMap(e => [...e.attributes])
      .filter(a => a.name.startsWith("on")).length,
    raw: [...shown.matchAll(
      /[\\x00-\\x09\\x0b-\\x1f\\x7f-\\x9f\\u2028\\u2029]|\\p{Bidi_Control}/gu)].length,
  }) + document.body.innerText.includes(String.raw`SHOWN`));
});
</script>"""


def look_at(page: Path, folder: Path, scripts: int = 0) -> None:
    """Opens a page in Chromium: nothing of `HOSTILE` ran, became an element or stands there raw.

    Args:
        page: the page.
        folder: where the browser may write.
        scripts: how many scripts the page has of its own.
    """
    html = page.read_text("utf-8")
    assert not RAW.search(html)
    probed = folder / "probed.html"
    probe = _PROBE.replace("SHOWN", SHOWN).replace("OURS", str(scripts + 1))
    probed.write_text(html.replace("</body>", probe + "</body>"))
    (line,) = browse(probed, folder)  # nothing else: no script ran, nothing was loaded
    found, is_shown = line.removeprefix("PROBE ").rsplit("}", 1)
    assert json.loads(found.replace('\\"', '"') + "}") == {"elements": 0, "handlers": 0, "raw": 0}
    assert is_shown == "true"
