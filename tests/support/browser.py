"""A page in a headless Chromium: what its console shows, and a screenshot."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))),
    None,
)
PROBE = """<script>
addEventListener("load", () => {
  const small = [...document.querySelectorAll("body *")].filter(e =>
    e.firstChild?.nodeType === 3 && e.firstChild.data.trim() && !e.closest("style, title, script")
    && parseFloat(getComputedStyle(e).fontSize) < 12);
  const cut = [...document.querySelectorAll(
      ".rule, .rule-head > *, .rule .row > *, .finding-head > *, .label, .light, h1, .facts dd")]
    .filter(e => e.getBoundingClientRect().right > innerWidth);
  console.log("PROBE " + JSON.stringify({
    width: innerWidth, needs: document.documentElement.scrollWidth,
    small: small.map(e => e.outerHTML.slice(0, 80)), cut: cut.map(e => e.className)}));
});
</script>"""


def browse(page: Path, width: int, folder: Path) -> list[str]:
    """What the browser's console shows of a page in a window of this width."""
    # A window cannot be as narrow as a telephone, a frame can.
    frame = folder / f"frame-{width}.html"
    frame.write_text(
        "<!doctype html><link rel=icon href=data:,><body style=margin:0>"
        f"<iframe src={page.as_uri()} width={width} height=900 style=border:0></iframe>"
    )
    shown = subprocess.run(
        [
            str(CHROMIUM),
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--hide-scrollbars",
            "--enable-logging=stderr",
            f"--user-data-dir={folder / 'profile'}",
            "--window-size=1400,900",
            f"--screenshot={folder / f'{width}.png'}",
            frame.as_uri(),
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stderr
    assert (folder / f"{width}.png").stat().st_size > 10_000
    return re.findall(r"CONSOLE[:(]\d+\)?\] \"(.*)\", source", shown)
