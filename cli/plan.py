"""`nats-transform plan`: the way from the mappings in force to a candidate, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cli.command import job_command
from cli.formats import Reported, Review
from cli.output import looked_at, print_help, print_line
from nats_transform.lint.findings import Severity
from nats_transform.mappings.unseen import unseen_line
from nats_transform.words import plural

if TYPE_CHECKING:
    from jobs.plan import PlanResult
    from jobs.settings.dry_run import PlanSettings
    from nats_transform.errors import Place
    from nats_transform.plan.model import Blocked


@job_command(
    "plan",
    exit_codes="0 the plan is written, or there is nothing to do; 1 there is no safe plan, and "
    "each line says why; 2 wrong usage, or an unusable file.",
    json="folder, plan, blocked.",
    review=lambda result, settings: _review(result, settings),
)
def command(result: PlanResult, settings: PlanSettings) -> None:
    """Write a folder with every step from the mappings in force to the candidate.

    First, streams, consumers and users get room for the new subjects. Then the mappings move more
    and more messages to them. Last, schedules and counters get their new names, and the old
    subjects go. Each step has its files and commands, and says how to verify and undo it. README.md
    in the folder explains them. The command changes no server.

    The subjects come from a stream of a warehouse or from a census in a file. The streams and
    consumers come from files, or from a server with --server or --context.

    \b
    Examples:
      nats-transform plan --census census.parquet --mapping old.conf --candidate new.conf \\
        --streams streams/ --consumers consumers/ --permissions server.conf --out plan/
      nats-transform plan --census census.parquet --candidate new.conf --context shop --out plan/
    """
    for blocked in result.blocked:
        about = f"{blocked.about}: " if blocked.about else ""
        print_line(f"no safe plan: {blocked.code}: {about}{blocked.message}; {blocked.cure}")
    print_help({blocked.code: blocked.help for blocked in result.blocked})
    for line in _steps(result):
        print_line(line)
    if result.plan is not None:
        print_line(looked_at(result))
        print_line(unseen_line(result.not_looked_at))
    if result.folder is not None:
        print_line(f"the plan is in {result.folder}")
        print_line(f"now: open {result.folder}/index.html and take step 1")


def _review(result: PlanResult, settings: PlanSettings) -> Review:
    from nats_transform.config.load import places_about
    from nats_transform.migration.findings import ALL

    place_of = places_about(str(settings.candidate), settings.account)
    findings = [_reported(blocked, place_of(blocked.about)) for blocked in result.blocked]
    stand = plural(len(findings), "finding stands", "findings stand")
    lines = list(_steps(result)) or [f"{stand} in the way"]
    return Review("nats-transform plan", lines, findings, ALL, result.not_looked_at)


def _reported(blocked: Blocked, place: Place) -> Reported:
    about = f"{blocked.about}: " if blocked.about else ""
    message = f"no safe plan: {about}{blocked.message}"
    return Reported(
        Severity.ERROR, blocked.code, message, blocked.cure, place.path, place.line, place.column,
        help=blocked.help,
    )  # fmt: skip


def _steps(result: PlanResult) -> Iterator[str]:
    """One line for each step, or the one that there is nothing to do."""
    if result.plan is None:
        return
    if not result.plan.steps:
        yield "nothing to do: the candidate's mappings are in force already"
    for step in result.plan.steps:
        changes = [f"{change.kind} {change.name}" for change in step.changes]
        changes += [f"stream {name}" for name in step.streams]
        yield f"{step.number}. {step.title}{': ' if changes else ''}{', '.join(changes)}"
