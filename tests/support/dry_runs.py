"""Dry runs of a few subjects."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from nats_transform.mappings.mapping import AccountMappings
from nats_transform.mappings.subject import encode
from nats_transform.migration import DryRun, Question
from nats_transform.migration.run import dry_run as dry_run_of_parts
from nats_transform.migration.tables.census import CensusPart, added_up


class CensusRow(NamedTuple):
    """A distinct subject in one cluster.

    Attributes:
        subject: the archived subject; None if the message had none.
        cluster: the cluster that it was published in, if known.
        messages: the number of messages.
        bytes: the size of their payloads.
        chosen: the destinations that these messages drew under the current mapping and under the
            candidate; None in place of a destination if the draw gave none. Without `chosen` every
            outcome counts by its weight.
        carries: what their headers hold on to; None if nobody looked.
    """

    subject: str | None
    cluster: str | None
    messages: int
    bytes: int = 0
    chosen: tuple[str | None, str | None] | None = None
    carries: str | None = None


def part_of(census: Iterable[CensusRow]) -> CensusPart:
    """Rows of a census, added up."""
    rows = list(census)
    texts: dict[str, list[str | None]] = {
        "subject": [row.subject for row in rows],
        "cluster": [row.cluster for row in rows],
        "carries": [row.carries for row in rows],
    }
    if any(row.chosen for row in rows):
        chosen = [row.chosen or (None, None) for row in rows]
        texts |= {"before": [one for one, _ in chosen], "after": [one for _, one in chosen]}
    columns = {
        name: pa.array([None if v is None else encode(v) for v in values], pa.binary())
        for name, values in texts.items()
    }
    columns |= {
        "messages": pa.array([row.messages for row in rows], pa.int64()),
        "bytes": pa.array([row.bytes for row in rows], pa.int64()),
    }
    return added_up(pa.table(columns))


def of_question(census: Iterable[CensusRow], question: Question) -> DryRun:
    """The answer to a question."""
    with tempfile.TemporaryDirectory() as folder:
        return dry_run_of_parts([part_of(census)], question, Path(folder))


def dry_run(
    census: Iterable[CensusRow],
    candidate: AccountMappings,
    current: AccountMappings | None = None,
    *,
    stream: str = "",
    named: Mapping[str, Mapping[str, int]] | None = None,
    leaf_node: AccountMappings | None = None,
    **parts: Sequence[Any],
) -> DryRun:
    """What a candidate would do to the subjects of a census; see `Question`, also for the parts."""
    question = Question(
        candidate,
        current or AccountMappings(()),
        archived=(stream,),
        named={
            header: part_of(CensusRow(text, None, count) for text, count in texts.items())
            for header, texts in (named or {}).items()
        },
        leaf_node=leaf_node,
        **{name: tuple(part) for name, part in parts.items()},
    )
    return of_question(census, question)
