"""A dry run over columns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import BinaryIO

from nats_transform.migration.columns.alike import Grouping
from nats_transform.migration.columns.part import Part
from nats_transform.migration.names import Names
from nats_transform.migration.rows import Store
from nats_transform.migration.run import DryRun, Question, Run, no_search_for_cycles


def dry_run_of_columns(
    census: Iterable[Part], question: Question, overflow: BinaryIO | None = None
) -> DryRun:
    """What a candidate would do to the subjects of a census, found by the compiled kernel.

    Args:
        census: the parts, each with all rows of its subjects; they are read twice.
        question: what is asked.
        overflow: an empty file, to read and write, for what would get too much for memory.

    Raises:
        KernelUnavailable: the compiled kernel is missing.
    """
    run, grouping = Run(question, Store(overflow)), Grouping(question)
    with no_search_for_cycles():
        for part in census:
            run.read(grouping.of(part))
        names, wanted = Names(), run.wanted
        for part in census if wanted else ():
            run.name(wanted, grouping.with_names(part, wanted, names), names)
    return run.found(names)
