"""The dry run of a census that is held in Arrow columns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import BinaryIO

from nats_transform.collector import no_search_for_cycles
from nats_transform.migration.columns.alike import Grouping
from nats_transform.migration.columns.part import Part
from nats_transform.migration.names import Names
from nats_transform.migration.question import Question
from nats_transform.migration.rows import Store
from nats_transform.migration.run import DryRun, Run


def dry_run_of_columns(
    census: Iterable[Part], question: Question, overflow: BinaryIO | None = None
) -> DryRun:
    """What a candidate would do to the subjects of a census, found by the compiled kernel.

    Args:
        census: the parts, which are read twice. A subject has all its rows in the same part.
        question: the mappings to compare, and what depends on the subjects.
        overflow: an empty file, open for reading and writing, for what does not fit into memory.

    Raises:
        KernelUnavailable: the compiled kernel is missing.
    """
    run = Run(question, Store(overflow))
    grouping = Grouping(run.layers.questions.values())
    with no_search_for_cycles():
        for part in census:
            run.read(grouping.of(part))
        names, wanted = Names(), run.wanted
        for part in census if wanted else ():
            run.name(wanted, grouping.with_names(part, wanted, names), names)
    return run.found(names)
