"""Censuses in files, for dry runs and plans without a warehouse."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from jobs.dry_run.portable import About, PortableCensus, summed, write_census
from jobs.warehouse.raw import readable

Counts = Mapping[bytes | None, int] | Mapping[tuple[bytes | None, ...], int]
"""Messages by subject, perhaps with their cluster, and with what their headers hold on to."""


def census_of(subjects: Counts, **about: Any) -> PortableCensus:
    """A census with so many messages under each subject, in ten hours."""
    keys = [(*(key if isinstance(key, tuple) else (key,)), None, None)[:3] for key in subjects]
    rows = pa.table(
        {
            "subject": pa.array([subject for subject, *_ in keys], pa.binary()),
            "cluster": pa.array([cluster for _, cluster, _ in keys], pa.binary()),
            "carries": pa.array([carries for *_, carries in keys], pa.binary()),
            "messages": list(subjects.values()),
            "bytes": [10 * count for count in subjects.values()],
        }
    )
    told = {
        "stream": "ORDERS",
        "days": (date(2026, 11, 1),),
        "first": datetime(2026, 11, 1, tzinfo=UTC),
        "last": datetime(2026, 11, 1, 10, tzinfo=UTC),
    }
    return PortableCensus(About.model_validate(told | about), summed(rows))


def census_file(path: Path, subjects: Counts, **about: Any) -> Path:
    """The same in a file."""
    write_census(census_of(subjects, **about), path, readable)
    return path
