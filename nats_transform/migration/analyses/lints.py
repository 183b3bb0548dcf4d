"""Findings of `check` about the candidate that concern the migration."""

from __future__ import annotations

from collections.abc import Iterator

from nats_transform.errors import shown
from nats_transform.lint.check import MAPPING, check
from nats_transform.lint.findings import Severity
from nats_transform.mappings.subject import collide
from nats_transform.mappings.symbolic import filter_of_results
from nats_transform.migration.analyses.rules import hits
from nats_transform.migration.analysis import Analysis, Draft
from nats_transform.migration.count import Count
from nats_transform.migration.database import Database
from nats_transform.migration.findings import FROM_CHECK
from nats_transform.migration.question import Question
from nats_transform.streams.stream import StreamConfig


class Lints(Analysis):
    """The findings of `check` for which a dry run has none of its own.

    A finding about a stream that the migration does not touch is left out, unless it is an error.
    """

    name = "lints"

    def findings(self, database: Database, layer: int) -> Iterator[Draft]:
        question = database.questions[0]
        clusters = question.clusters or database.clusters()
        untouched = tuple(f"stream {name}," for name in _untouched(question))
        counts = hits(database)
        for finding in check([question.candidate, *question.streams], clusters=clusters):
            code = f"check-{finding.code}"
            if code == "check-unknown-cluster" and not question.clusters:
                code = "cluster-not-seen"
            elif code not in FROM_CHECK:
                continue
            if finding.severity is not Severity.ERROR and finding.place.startswith(untouched):
                continue
            parts = (finding.place, shown(finding.source) if finding.source else "")
            about = " ".join(part for part in parts if part)
            count = counts.get(finding.source) if finding.place == MAPPING else None
            yield code, about, finding.message, count or Count()


def _untouched(question: Question) -> set[str]:
    """The names of the streams whose subjects no mapping can make or change."""
    filters = {
        filter
        for account in (question.current, question.candidate)
        for mapping in account.mappings
        for transform in mapping.transforms
        for filter in (mapping.source, filter_of_results(transform))
    }

    def captures(stream: StreamConfig) -> bool:
        return any(collide(captured, filter) for captured in stream.captured for filter in filters)

    touched = {stream.name for stream in question.streams if captures(stream)}
    while more := {
        stream.name
        for stream in question.streams
        if stream.name not in touched
        and any(upstream.name in touched for upstream in stream.upstreams)
    }:
        touched |= more
    return {stream.name for stream in question.streams} - touched
