"""The picture of README.md: what its first commands show on a terminal.

    python scripts/picture.py    # writes docs/first-run.svg

`tests/test_readme.py` checks that the picture is up to date.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

from rich.console import CONSOLE_SVG_FORMAT, Console
from rich.text import Text

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "first-run.svg"
_COLUMNS = 104


def picture() -> str:
    """The SVG, of a real run in an empty folder."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = re.findall(
        r"^\$ (.*)$", readme.partition("```console\n")[2].partition("```")[0], re.M
    )
    drawn = Console(record=True, width=_COLUMNS, file=io.StringIO())
    with tempfile.TemporaryDirectory() as folder:
        for command in commands:
            if not command.startswith("pip "):
                drawn.print(Text(f"$ {command}", style="bold"))
                drawn.print(Text.from_ansi(_shown(command, folder)), end="")
    # Without the fonts that rich's own format loads from elsewhere.
    form = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    return drawn.export_svg(title="nats-transform", code_format=form, unique_id="run")


def _shown(command: str, folder: str) -> str:
    """What a terminal shows of a command."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, _COLUMNS, 0, 0))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {"PATH": path, "TERM": "xterm-256color", "HOME": folder}
    with subprocess.Popen(  # noqa: S603 - the commands of our own README
        ["sh", "-c", command],  # noqa: S607
        cwd=folder,
        env=environment,
        stdout=theirs,
        stderr=theirs,
    ) as ended:
        os.close(theirs)
        shown = b""
        try:
            while part := os.read(ours, 65536):
                shown += part
        except OSError:  # nobody writes any more
            os.close(ours)
    if ended.returncode:
        raise SystemExit(f"{command} failed: {shown.decode()}")
    return shown.decode().replace("\r\n", "\n")


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
