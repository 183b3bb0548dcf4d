"""The page that shows a certificate: one HTML file that needs nothing else."""

from __future__ import annotations

from jobs.certify.result import Certificate
from jobs.pages.page import page


def render(result: Certificate) -> str:
    """The page as HTML."""
    return page("certificate.html", result=result)
