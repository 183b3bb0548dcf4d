"""The page that shows a certificate: one HTML file that needs nothing else."""

from __future__ import annotations

from pathlib import Path

from jobs.certify.result import Certificate
from jobs.pages.page import page, write_page


def write(result: Certificate, path: Path) -> None:
    """Writes the page.

    Raises:
        ReportError: the file cannot be written.
    """
    write_page(render(result), path)


def render(result: Certificate) -> str:
    """The page as HTML."""
    return page("certificate.html", result=result)
