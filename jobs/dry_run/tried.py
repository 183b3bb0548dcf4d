"""Tries a candidate on a census, in a temporary folder that the tables may leave in the end."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from jobs.errors import JobError
from jobs.files.output import whole
from jobs.progress import step
from jobs.scratch import temporary_folder
from nats_transform.migration import DryRun, Question
from nats_transform.migration.run import dry_run
from nats_transform.migration.tables.census import CensusPart


def tried(parts: Iterable[CensusPart], question: Question, out: Path | None) -> DryRun:
    """What a candidate would do to the subjects of a census.

    Args:
        out: a folder for the tables; None if nobody wants them.

    Raises:
        JobError: there is no room for the tables, or they cannot be written to `out`.
    """
    with temporary_folder() as folder:
        with step("comparing what the mappings make of the subjects"):
            result = dry_run(parts, question, folder)
        if out is not None:
            _keep(folder, out)
    return result


def _keep(folder: Path, out: Path) -> None:
    """Copies the tables, all of them or none."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with ExitStack() as files:
            for file in sorted(folder.glob("*.parquet")):
                shutil.copyfile(file, files.enter_context(whole(out / file.name)))
    except OSError as error:
        raise JobError("tables-unwritable", folder=out, reason=error.strerror) from error
