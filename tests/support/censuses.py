"""Censuses in files, for dry runs and plans without a warehouse."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from jobs.dry_run.portable import About, PortableCensus, summed, write_census
from jobs.warehouse.raw import readable


def census_of(subjects: Mapping[bytes | None, int], **about: Any) -> PortableCensus:
    """A census with so many messages under each subject, in ten hours."""
    rows = pa.table(
        {
            "subject": pa.array(list(subjects), pa.binary()),
            "cluster": pa.nulls(len(subjects), pa.binary()),
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


def census_file(path: Path, subjects: Mapping[bytes | None, int], **about: Any) -> Path:
    """The same in a file."""
    write_census(census_of(subjects, **about), path, readable)
    return path
