"""A headless Chromium that the tests of a run share: its windows, its console and its keys."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))),
    None,
)
WIDTHS = (400, 1280, 1600)
SCHEMES = ("light", "dark")
WINDOWS = ((400, "light"), (1280, "dark"), (1600, "light"))
"""Each width and each scheme once; the slow tests look at all of them together."""
_HEIGHT = 900
_KEYS = {"Tab": (9, ""), "Enter": (13, "\r"), " ": (32, " ")}
# What a reader would complain of. Text below 12 pixels is small; of less contrast than WCAG's level
# AA asks for, faint. Text is cut if it reaches beyond the window, or beyond a box that hides it and
# whose title does not say it.
_FAULTS = r"""scrolls => {
  const texts = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, element = node.parentElement;
    if (node.data.trim() && element.checkVisibility() && !element.closest("style,script,title"))
      texts.push([node, element]);
  }
  const shown = node => node.data.trim().replace(/\s+/g, " ").slice(0, 60);
  const lines = (from, start, to, end) => {
    const range = document.createRange();
    range.setStart(from, start);
    range.setEnd(to, end);
    return [...range.getClientRects()].filter(line => line.width > .5 && line.height > .5);
  };
  // Each line of text, without what boxes around it hide.
  const boxes = [], cut = [];
  for (const [node, element] of texts)
    for (const {left, top, right, bottom} of lines(node, 0, node, node.length)) {
      const line = {left, top, right, bottom};
      let is_hidden = false;
      for (let box = element; box; box = box.parentElement) {
        const edges = box.getBoundingClientRect(), {overflowX} = getComputedStyle(box);
        if (overflowX === "visible") continue;
        const is_beyond = line.left < edges.left - 1 || line.right > edges.right + 1;
        if (is_beyond && !box.title?.includes(node.data.trim()))
          is_hidden ||= !scrolls || overflowX !== "auto";
        line.left = Math.max(line.left, edges.left);
        line.right = Math.min(line.right, edges.right);
      }
      boxes.push({node, line});
      if (is_hidden || line.left < -1 || line.right > innerWidth + 1) cut.push(shown(node));
    }

  const overlapping = [];
  boxes.sort((a, b) => a.line.top - b.line.top);
  boxes.forEach(({node, line}, n) => {
    for (let m = n + 1; m < boxes.length && boxes[m].line.top < line.bottom - 2; m++) {
      const other = boxes[m];
      const common = Math.min(line.right, other.line.right) - Math.max(line.left, other.line.left);
      if (other.node !== node && common > 2)
        overlapping.push(`${shown(node)} | ${shown(other.node)}`);
    }
  });

  let text = "", last = null;
  const places = [];
  const block = e => getComputedStyle(e).display === "inline" ? block(e.parentElement) : e;
  for (const [node, element] of texts) {
    if (last && block(element) !== last) { text += "|"; places.push(null); }
    last = block(element);
    for (let n = 0; n < node.length; n++) places.push([node, n]);
    text += node.data;
  }
  const units = "%|h|d|s|GB|MB|points?|hours?|days?|UTC|messages?|subjects?|steps?|keys?";
  const broken = [...text.matchAll(RegExp(`[\\d.,]+\\s+(?:${units})(?!\\w)`, "g"))].filter(one => {
    const start = places[one.index], end = places[one.index + one[0].length - 1];
    const parts = lines(start[0], start[1], end[0], end[1] + 1);
    return Math.max(...parts.map(p => p.top)) >= Math.min(...parts.map(p => p.bottom));
  }).map(one => one[0]);

  const numbers = color => color.match(/[\d.]+/g).map(Number);
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
  const faint = texts.filter(([, e]) => {
    const style = getComputedStyle(e);
    const [a, b] = [numbers(e.namespaceURI.endsWith("svg") ? style.fill : style.color), ground(e)]
      .map(light).sort((a, b) => a - b);
    return (b + .05) / (a + .05) < 4.5;
  }).map(([node]) => shown(node));
  const small = texts.filter(([, e]) => parseFloat(getComputedStyle(e).fontSize) < 12)
    .map(([node]) => shown(node));
  const scheme = light(ground(document.body)) < .1 ? "dark" : "light";
  canvas.remove();
  const faults = Object.entries({cut, overlapping, broken, small, faint});
  return {needs: document.documentElement.scrollWidth, scheme,
    ...Object.fromEntries(faults.filter(([, texts]) => texts.length))};
}"""


class Browser:
    """A browser with one page open.

    Attributes:
        console: what it showed of the page so far, errors too.
    """

    def __init__(self, asks: BinaryIO, answers: BinaryIO) -> None:
        self._asks, self._answers = asks, answers
        self._buffer = b""
        self._session: dict[str, str] = {}
        self.console: list[str] = []
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._session = {"sessionId": session}
        for domain in ("Page", "Runtime", "Log"):
            self._ask(f"{domain}.enable")
        self._ask("Emulation.setFocusEmulationEnabled", enabled=True)
        self._ask("Browser.grantPermissions", permissions=["clipboardReadWrite"])

    def open(self, page: Path, width: int = 1280, scheme: str = "light") -> list[str]:
        """Opens a page in a window of its own size; returns what the console shows of it."""
        self.resize(width, scheme)
        self.console.clear()
        self._ask("Page.navigate", url=page.as_uri())
        while self._next().get("method") != "Page.loadEventFired":
            pass
        self.evaluate("new Promise(done => setTimeout(done))")  # what its scripts do on load
        return self.console

    def resize(self, width: int, scheme: str = "light") -> None:
        """Gives the window another width, and the colors that its user prefers."""
        size = {"width": width, "height": _HEIGHT, "deviceScaleFactor": 1, "mobile": False}
        self._ask("Emulation.setDeviceMetricsOverride", **size)
        preferred = [{"name": "prefers-color-scheme", "value": scheme}]
        self._ask("Emulation.setEmulatedMedia", features=preferred)

    def evaluate(self, expression: str) -> Any:
        """What an expression gives, as if the user had just clicked; a promise is awaited."""
        evaluated = self._ask(
            "Runtime.evaluate",
            expression=expression,
            userGesture=True,
            awaitPromise=True,
            returnByValue=True,
        )
        assert "exceptionDetails" not in evaluated, evaluated
        return evaluated["result"].get("value")

    def press(self, key: str) -> None:
        """Presses a key and lets it go."""
        code, text = _KEYS[key]
        event = {"key": key, "windowsVirtualKeyCode": code}
        self._ask("Input.dispatchKeyEvent", type="keyDown", text=text, **event)
        self._ask("Input.dispatchKeyEvent", type="keyUp", **event)

    def look(
        self,
        page: Path,
        windows: Iterable[tuple[int, str]] = WINDOWS,
        scrolls: bool = False,
        opens: bool = True,
    ) -> None:
        """Opens a page in narrow and wide windows, light and dark.

        It needs no more than the width, all text can be read, no number is in another line than its
        unit, and the console shows no error.

        Args:
            page: the page.
            windows: their widths, and the colors that their users prefer.
            scrolls: whether a part of the page may be wider than the window, and scroll by itself.
            opens: whether to look at it with all details open.
        """
        console = self.open(page)
        assert not console, console
        if opens:
            self.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        faults = {}
        for width, scheme in windows:
            self.resize(width, scheme)
            found = self.evaluate(f"({_FAULTS})({json.dumps(scrolls)})")
            if found != {"needs": width, "scheme": scheme}:
                faults[width, scheme] = found
        assert not faults, faults

    def shoot(self, picture: Path) -> None:
        """Takes a picture of what the window shows."""
        shot = self._ask("Page.captureScreenshot")
        picture.write_bytes(base64.b64decode(shot["data"]))

    def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        session = {} if method.startswith(("Target.", "Browser.")) else self._session
        request = {"id": 1, "method": method, "params": parameters} | session
        self._asks.write(json.dumps(request).encode() + b"\0")
        self._asks.flush()
        while "id" not in (answer := self._next()):
            pass
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def _next(self) -> dict[str, Any]:
        """The next answer or event; the console keeps what is for it."""
        while b"\0" not in self._buffer:
            more = os.read(self._answers.fileno(), 1 << 20)
            assert more, "the browser has gone"
            self._buffer += more
        text, _, self._buffer = self._buffer.partition(b"\0")
        event: dict[str, Any] = json.loads(text)
        match event.get("method"), event.get("params"):
            case "Runtime.consoleAPICalled", {"args": values}:
                self.console.append(" ".join(str(value.get("value")) for value in values))
            case "Runtime.exceptionThrown", {"exceptionDetails": details}:
                self.console.append(details.get("exception", details).get("description"))
            case "Log.entryAdded", {"entry": entry}:
                self.console.append(entry["text"])
        return event


@contextmanager
def chromium(folder: Path) -> Iterator[Browser]:
    """A browser that asks nobody and keeps its things in a folder."""
    ours, theirs = os.pipe(), os.pipe()
    # Not sh: that of Debian knows no file descriptor above 9.
    command = ["bash", "-c", f'exec "$0" "$@" 3<&{ours[0]} 4>&{theirs[1]}', str(CHROMIUM)]
    options = "headless=new no-sandbox disable-gpu no-first-run disable-background-networking"
    options += " disable-component-update disable-sync hide-scrollbars remote-debugging-pipe"
    browser = subprocess.Popen(
        [*command, *(f"--{option}" for option in options.split()), f"--user-data-dir={folder}"],
        pass_fds=(ours[0], theirs[1]),
        stderr=subprocess.DEVNULL,
        env=os.environ | {"XDG_CONFIG_HOME": str(folder)},  # it writes there too
    )
    os.close(ours[0])
    os.close(theirs[1])
    with open(ours[1], "wb") as asks, open(theirs[0], "rb", buffering=0) as answers:
        yield Browser(asks, answers)
    browser.wait()  # with its pipes closed it ends by itself
