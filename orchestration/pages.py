"""Pages among the reports of an archive: how they are written, and linked in Dagster's UI."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import dagster as dg

from jobs.registry import JOBS, document
from orchestration.archive import Archive


def write_report(archive: Archive, job: str, result: Any, name: str) -> Path:
    """Writes the page of a job's result, with its JSON beside it, and gives the path of the page.

    Args:
        name: what the name of the page ends with. Archives of one warehouse share the folder, so
            it begins with that of the archive.
    """
    page = archive.reports_folder / f"{archive.name}-{name}.html"
    page.parent.mkdir(parents=True, exist_ok=True)
    JOBS[job].write_page(result, page)
    # As ASCII: names in mappings need not be UTF-8.
    page.with_suffix(".json").write_text(json.dumps(document(result), indent=2))
    return page


def link(archive: Archive, page: Path) -> dg.MetadataValue[Any]:
    """A link to a page in the folder of reports; its path if no web server shows the folder."""
    if archive.reports_url is None:
        return dg.MetadataValue.path(page.absolute())
    place = page.absolute().relative_to(archive.reports_folder.absolute())
    return dg.MetadataValue.url(f"{archive.reports_url.rstrip('/')}/{quote(place.as_posix())}")
