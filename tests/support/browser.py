"""A page in a headless Chromium: what its console shows, and a screenshot."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))),
    None,
)
in_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium here: apt-get install chromium"
)
WIDTHS = (400, 1280)
_SCHEMES = {"dark": 0, "light": 1}
# Text below 12 pixels is small; of less contrast than WCAG's level AA asks for, faint.
_PROBE = """<script>
addEventListener("load", () => {
  const texts = [...document.querySelectorAll("body *")].filter(e => e.firstChild?.nodeType === 3
    && e.firstChild.data.trim() && !e.closest("style, title, script"));
  const small = texts.filter(e => parseFloat(getComputedStyle(e).fontSize) < 12);
  const cut = [...document.querySelectorAll(
      ".rule, .rule-head > *, .rule .row > *, .finding-head > *, .label, .light, h1, .facts dd")]
    .filter(e => e.getBoundingClientRect().right > innerWidth);
  const numbers = color => color.match(/[\\d.]+/g).map(Number);
  const canvas = document.body.appendChild(document.createElement("i"));
  canvas.style.backgroundColor = "Canvas";
  const ground = e => {
    for (; e; e = e.parentElement) {
      const color = numbers(getComputedStyle(e).backgroundColor);
      if (color.length === 3) return color;
    }
    return ground(canvas);
  };
  const light = color => color.slice(0, 3).map(
    v => v <= 10 ? v / 3294 : ((v / 255 + .055) / 1.055) ** 2.4
  ).reduce((sum, v, n) => sum + v * [.2126, .7152, .0722][n], 0);
  const faint = texts.filter(e => {
    const style = getComputedStyle(e);
    const [a, b] = [numbers(e.namespaceURI.endsWith("svg") ? style.fill : style.color), ground(e)]
      .map(light).sort((a, b) => a - b);
    return (b + .05) / (a + .05) < 4.5;
  });
  const name = e => e.outerHTML.slice(0, 80);
  console.log("PROBE " + JSON.stringify({
    width: innerWidth, needs: document.documentElement.scrollWidth,
    is_dark: light(ground(document.body)) < .1,
    small: small.map(name), cut: cut.map(e => e.className), faint: faint.map(name)}));
});
</script>"""


def look(page: Path, folder: Path) -> None:
    """Opens a page in a narrow and a wide window, light and dark.

    It needs no more than the width, its text can be read, and the console has no error.
    """
    probed = folder / "probed.html"
    probed.write_text(page.read_text("utf-8").replace("</body>", _PROBE + "</body>"), "utf-8")
    for scheme in _SCHEMES:
        lines = browse(probed, folder, WIDTHS, scheme)
        assert len(lines) == len(WIDTHS), lines  # nothing else, so no error
        found = [json.loads(line.removeprefix("PROBE ")) for line in lines]
        good = {"is_dark": scheme == "dark", "small": [], "cut": [], "faint": []}
        assert sorted(found, key=lambda one: one["width"]) == [
            {"width": width, "needs": width} | good for width in WIDTHS
        ]


def browse(
    page: Path, folder: Path, widths: Sequence[int] = (1280,), scheme: str = "light"
) -> list[str]:
    """What the browser's console shows of a page in windows of these widths."""
    # A window cannot be as narrow as a telephone, a frame can.
    frame = folder / "frame.html"
    frames = (
        f"<iframe src={page.as_uri()} width={width} height=900 style=border:0></iframe>"
        for width in widths
    )
    frame.write_text(
        "<!doctype html><link rel=icon href=data:,><body style=margin:0>" + "".join(frames)
    )
    shot = folder / f"{scheme}.png"
    shown = subprocess.run(
        [
            *_chromium(folder),
            "--hide-scrollbars",
            "--enable-logging=stderr",
            f"--blink-settings=preferredColorScheme={_SCHEMES[scheme]}",
            f"--window-size={sum(widths) + 20},900",
            f"--screenshot={shot}",
            frame.as_uri(),
        ],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"XDG_CONFIG_HOME": str(folder)},  # it writes there too
    ).stderr
    assert shot.stat().st_size > 10_000
    return re.findall(r"CONSOLE[:(]\d+\)?\] \"(.*)\", source", shown)


def evaluate(page: Path, folder: Path, expression: str) -> Any:
    """What an expression gives in a page, as if its user had just clicked; a promise is awaited.

    It may read the clipboard.
    """
    ours, theirs = os.pipe(), os.pipe()
    # Not sh: that of Debian knows no file descriptor above 9.
    command = ["bash", "-c", f'exec "$0" "$@" 3<&{ours[0]} 4>&{theirs[1]}', *_chromium(folder)]
    browser = subprocess.Popen(
        [*command, "--remote-debugging-pipe", page.as_uri()],
        pass_fds=(ours[0], theirs[1]),
        stderr=subprocess.DEVNULL,
        env=os.environ | {"XDG_CONFIG_HOME": str(folder)},
    )
    os.close(ours[0])
    os.close(theirs[1])
    with browser, open(ours[1], "wb") as asked, open(theirs[0], "rb") as answers:

        def ask(method: str, **parameters: Any) -> dict[str, Any]:
            session = {"sessionId": parameters.pop("session")} if "session" in parameters else {}
            request = {"id": 1, "method": method, "params": parameters} | session
            asked.write(json.dumps(request).encode() + b"\0")
            asked.flush()
            while True:
                text = b"".join(iter(partial(answers.read, 1), b"\0"))
                if "id" in (answer := json.loads(text)):
                    assert "error" not in answer, answer
                    result: dict[str, Any] = answer["result"]
                    return result

        def of_page() -> str | None:
            targets = ask("Target.getTargets")["targetInfos"]
            return next((one["targetId"] for one in targets if one["url"] == page.as_uri()), None)

        while (target := of_page()) is None:
            pass
        ask("Browser.grantPermissions", permissions=["clipboardReadWrite"])
        session = ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        loaded = "new Promise(r => document.readyState === 'complete' ? r() : (onload = r))"
        evaluated = ask(
            "Runtime.evaluate",
            session=session,
            expression=f"{loaded}.then(() => {expression})",
            userGesture=True,
            awaitPromise=True,
            returnByValue=True,
        )
        ask("Browser.close")
    assert "exceptionDetails" not in evaluated, evaluated
    return evaluated["result"].get("value")


def _chromium(folder: Path) -> list[str]:
    """The command of a browser that asks nobody and keeps its things in a folder."""
    return [
        str(CHROMIUM),
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        f"--user-data-dir={folder / 'profile'}",
    ]
