"""The screenshots of README.md and the site, of pages of the demo.

    make demo && python scripts/screenshots.py    # writes docs/dry-run.png and docs/audit.png

It needs Chromium. Draws and dates of a demo are new, so no test compares the pictures.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.browser import CHROMIUM, chromium  # noqa: E402 - from the checkout

DEMO = ROOT / "demo"


def main() -> None:
    """Takes both pictures."""
    if CHROMIUM is None:
        raise SystemExit("no Chromium here: apt-get install chromium")
    with tempfile.TemporaryDirectory() as scratch:
        page = Path(scratch) / "dry-run.html"
        subprocess.run(  # noqa: S603 - our own command
            [
                *(Path(sys.executable).parent / "nats-transform", "dry-run", "--stream", "SHOP"),
                *("--warehouse", DEMO / "warehouse", "--fail-on", "never", "--report", page),
                *("--candidate", ROOT / "orchestration" / "defs" / "shop" / "mapping.conf"),
            ],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        (audit,) = (DEMO / "reports").glob("*-observed-*.html")
        with chromium(Path(scratch) / "profile") as browser:
            for name, shown in {"dry-run": page, "audit": audit}.items():
                browser.open(shown)
                browser.shoot(ROOT / "docs" / f"{name}.png")


if __name__ == "__main__":
    main()
