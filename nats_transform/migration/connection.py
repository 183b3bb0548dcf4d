"""A connection to DuckDB whose memory is bounded: beyond that it writes into a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from nats_transform.errors import NatsTransformError

MEMORY = "200MB"
"""What DuckDB may use."""


def connect(folder: Path) -> duckdb.DuckDBPyConnection:
    """A new database, in memory as far as that suffices, else in the folder."""
    connection = duckdb.connect(
        ":memory:",
        config={
            "memory_limit": MEMORY,
            "threads": min(4, os.cpu_count() or 1),
            "temp_directory": str(folder / "spill"),
            "preserve_insertion_order": False,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        },
    )
    # In a notebook, and where Python has no file, DuckDB draws a bar on stdout.
    return connection.execute("SET enable_progress_bar = false")


@contextmanager
def in_one_line(what: str) -> Iterator[None]:
    """Says what is missing if there is too little room; `what` failed then.

    Raises:
        NatsTransformError: there was.
    """
    try:
        yield
    except (duckdb.OutOfMemoryException, duckdb.IOException) as error:
        reason = str(error).partition("\n")[0]
        raise NatsTransformError("dry-run-no-room", what=what, reason=reason) from error
