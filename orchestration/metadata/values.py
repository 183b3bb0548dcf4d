"""Metadata of a materialization: links to pages, and how fast it was."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import dagster as dg

from orchestration.archive import Archive

Metadata = Mapping[str, Any]
Plain = int | float | str | dg.MetadataValue[Any]
Results = Iterator[dg.AssetCheckResult | dg.MaterializeResult[None] | dg.ObserveResult]
"""What an asset yields: its checks, and that it was made or looked at."""


def link(archive: Archive, page: Path) -> dg.MetadataValue[Any]:
    """A link to a page in the folder of reports; its path if no web server shows the folder."""
    if archive.reports_url is None:
        return dg.MetadataValue.path(page.absolute())
    place = page.absolute().relative_to(archive.reports_folder.absolute())
    return dg.MetadataValue.url(f"{archive.reports_url.rstrip('/')}/{quote(place.as_posix())}")


def throughput(messages: int, seconds: float) -> Metadata:
    """How long it took, checks included."""
    return {
        "seconds": round(seconds, 3),
        "messages per second": round(messages / max(seconds, 1e-3), 1),
    }
