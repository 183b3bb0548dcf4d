"""The dry run job: what a candidate mapping would do to the subjects that a stream really had."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jobs.dry_run.portable import PortableCensus
from jobs.dry_run.question import given_census, looked_at, read_question
from jobs.dry_run.result import DryRunResult, SimulatedStream
from jobs.jetstream.shown import with_files
from jobs.session import Spark
from jobs.settings.dry_run import DryRunSettings
from nats_transform.config import mapping_version

if TYPE_CHECKING:
    from nats_transform.migration import DryRun, Question


def dry_run(spark: Spark, settings: DryRunSettings) -> DryRunResult:
    """Compare the candidate with the current mappings on the archived subjects.

    Args:
        spark: a session, or what gives one; it is asked only where Spark has work to do, and after
            all files were read.

    Raises:
        InvalidConfig: a file that cannot be read or is refused, with its line and column.
        ArchiveError: the stream has no messages on these days; or the server shows no streams.
        WarehouseError: tables that cannot be read or written.
    """
    with with_files(settings, settings.account) as given:
        question = read_question(given)
        census = given_census(given, question)
        return _dry_run(spark, given, question) if census is None else _of(census, given, question)


def _dry_run(spark: Spark, settings: DryRunSettings, question: Question) -> DryRunResult:
    # Not at the top: a census in a file needs no Iceberg.
    from jobs.dry_run.subjects import archived_days, try_archive
    from jobs.warehouse import tables

    messages, days = archived_days(settings)
    answer, census = try_archive(spark, settings, messages, days, question)
    run_id = settings.run_id or str(uuid.uuid4())
    simulated: tuple[SimulatedStream, ...] = ()
    simulated_snapshot = None
    if settings.simulate:
        from jobs.dry_run.simulate import simulate  # it imports Spark

        simulated, simulated_snapshot = simulate(settings, messages, days, question, run_id)
    return DryRunResult(
        dry_run=answer,
        stream=settings.stream,
        days=tuple(days),
        **_asked(settings, question, answer, knows_headers=True),
        seed=settings.seed if settings.exact else None,
        census_snapshot=None if census is None else tables.snapshot_id(census),
        input_snapshot=tables.snapshot_id(messages),
        run_id=run_id,
        simulated=simulated,
        simulated_snapshot=simulated_snapshot,
        simulated_seed=settings.seed if settings.simulate else None,
    )


def _of(census: PortableCensus, settings: DryRunSettings, question: Question) -> DryRunResult:
    question = replace(question, archived=census.archived)
    answer = census.dry_run(question, settings.out)
    return DryRunResult(
        dry_run=answer,
        stream=census.about.stream,
        days=census.about.days,
        **_asked(settings, question, answer, census.knows_headers),
        run_id=settings.run_id or str(uuid.uuid4()),
        server=census.live.server if census.live else None,
        counted=census.live.counted if census.live else (),
    )


def _asked(
    settings: DryRunSettings, question: Question, answer: DryRun, knows_headers: bool
) -> dict[str, Any]:
    """What a result says of the question, and of what nobody asked."""
    return {
        "candidate": settings.candidate.name,
        "current": settings.mapping.name if settings.mapping else None,
        "candidate_version": mapping_version(question.candidate),
        "current_version": mapping_version(question.current),
        "users": len(question.users),
        **looked_at(settings, question, answer.clusters, knows_headers=knows_headers),
    }
