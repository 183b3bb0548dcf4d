"""The screenshots of README.md and the site, of pages of the demo.

    make demo && python scripts/screenshots.py    # writes docs/dry-run.png and docs/audit.png

It needs Chromium. Draws and dates of a demo are new, so no test compares the pictures.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DEMO = ROOT / "demo"
_WIDTH, _HEIGHT = 1280, 860


def main() -> None:
    """Takes both pictures."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        page = folder / "dry-run.html"
        subprocess.run(  # noqa: S603 - our own command
            [
                *(Path(sys.executable).parent / "nats-transform", "dry-run", "--stream", "SHOP"),
                *("--warehouse", DEMO / "warehouse", "--fail-on", "never", "--report", page),
                *("--candidate", ROOT / "orchestration" / "defs" / "shop" / "mapping.conf"),
            ],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        take(page, ROOT / "docs" / "dry-run.png", folder)
        (audit,) = (DEMO / "reports").glob("*-observed-*.html")
        take(audit, ROOT / "docs" / "audit.png", folder)


def take(page: Path, picture: Path, folder: Path) -> None:
    """Writes what a window shows of the start of a page."""
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    chromium = next(filter(None, map(shutil.which, names)), None)
    if chromium is None:
        raise SystemExit("no Chromium here: apt-get install chromium")
    subprocess.run(  # noqa: S603 - our own pages
        [
            *(chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
            *(f"--user-data-dir={folder / 'profile'}", f"--window-size={_WIDTH},{_HEIGHT}"),
            *(f"--screenshot={picture}", page.as_uri()),
        ],
        check=True,
        env=os.environ | {"XDG_CONFIG_HOME": str(folder)},
        stderr=subprocess.DEVNULL,
    )


if __name__ == "__main__":
    main()
