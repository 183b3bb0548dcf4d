"""A dry run subject by subject: the definition of what one over columns must find."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nats_transform.collector import no_search_for_cycles
from nats_transform.consumer import Consumer
from nats_transform.mapping import AccountMappings
from nats_transform.migration import CensusRow, DryRun, Question, User
from nats_transform.migration.case import Cases
from nats_transform.migration.names import Names
from nats_transform.migration.rows import Store
from nats_transform.migration.run import Run
from nats_transform.sharing import SharedStream
from nats_transform.stream import StreamConfig


def dry_run(
    census: Iterable[CensusRow],
    candidate: AccountMappings,
    current: AccountMappings | None = None,
    *,
    streams: Sequence[StreamConfig] = (),
    consumers: Sequence[Consumer] = (),
    users: Sequence[User] = (),
    clusters: Sequence[str] = (),
    shared: Sequence[SharedStream] = (),
    stream: str = "",
) -> DryRun:
    """What a candidate would do to the subjects of a census.

    Args:
        census: distinct subjects as they were published; it is read twice, and all rows of a
            subject follow one another.
        candidate, current, streams, consumers, users, clusters, shared, stream: as in `Question`.
    """
    return of_question(
        census,
        Question(
            candidate,
            current or AccountMappings(()),
            tuple(streams),
            tuple(consumers),
            tuple(users),
            tuple(clusters),
            tuple(shared),
            stream,
        ),
    )


def of_question(census: Iterable[CensusRow], question: Question) -> DryRun:
    """The answer to a question; the census is read twice, subject by subject."""
    run, cases = Run(question, Store()), Cases(question.current, question.candidate)
    with no_search_for_cycles():
        run.read(cases.of(census))
        names, wanted = Names(), run.wanted
        if wanted:
            run.name(wanted, cases.of(census), names)
    return run.found(names)
