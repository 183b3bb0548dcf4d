"""`nats-transform plan`: the way from the mappings in force to a candidate, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from cli import options, project
from cli.formats import Reported, print_findings
from cli.output import end, looked_at, print_json, print_line, quiet_work
from nats_transform.findings import Severity
from nats_transform.words import plural

if TYPE_CHECKING:
    from jobs.plan import PlanResult
    from jobs.session import Spark
    from jobs.settings.connection import NatsSettings
    from nats_transform.config import Place
    from nats_transform.plan.model import Blocked


@project.command(
    "plan",
    short_help="Plan a switch of mappings, step by step.",
    epilog="Exit codes: 0 the plan is written, or there is nothing to do; 1 there is no safe plan, "
    "and each line says what stands in its way; 2 wrong usage, or a file that cannot be used.",
)
@options.subjects
@options.question
@options.server(instead_of=("streams", "consumers"))
@options.file(
    "--accept",
    "A file with the findings that you accept, in YAML or JSON: a list of {code, about, reason}. "
    "An entry without `about` accepts every finding with the code.",
)
@options.positions(
    "--stages",
    "The percentages of the messages that go the new way, one stage after the other.  "
    "[default: 2,10,50,100]",
    like="2,10,50,100",
    metavar="PERCENTS",
)
@click.option(
    "--per-cluster",
    is_flag=True,
    help="Let one cluster after the other go through all stages, in the order of --cluster.",
)
@options.tolerance("the audits of the stages allow")
@options.day
@options.file("--out", "A new folder for the plan.", metavar="DIR", required=True)
@options.warehouse
@options.spark
@options.output_format("Print one JSON document: folder, plan, blocked.")
def command(spark: Spark, form: str, server: NatsSettings | None, **given: object) -> None:
    """Write a folder with every step from the mappings in force to the candidate.

    First streams, consumers and users get room for the new subjects; then the mappings send more
    and more of the messages under them; then the old subjects are taken away. Each step has its
    files, its commands, how to verify it and how to undo it. README.md in the folder explains them.
    The command changes no server.

    The subjects come from a stream of a warehouse or from a census in a file. The streams and
    consumers come from files, or from a server with --server or --context.

    \b
    Examples:
      nats-transform plan --census census.parquet --current old.conf --candidate new.conf \\
        --streams streams/ --consumers consumers/ --permissions server.conf --out plan/
      nats-transform plan --census census.parquet --candidate new.conf --context shop --out plan/
    """
    with quiet_work():
        from jobs.plan import plan
        from jobs.settings.dry_run import PlanSettings

        settings = options.settings(PlanSettings, given | {"nats": server})
        result = plan(spark, settings)
    if form == "json":
        print_json(result.as_json())
    elif form == "table":
        _print(result)
    else:
        from nats_transform.config.load import places_about
        from nats_transform.migration.findings import ALL

        place_of = places_about(str(settings.candidate), settings.account)
        found = [_reported(one, place_of(one.about)) for one in result.blocked]
        lines = list(_steps(result)) or [
            plural(len(found), "finding")
            + (" stands" if len(found) == 1 else " stand")
            + " in the way"
        ]
        print_findings(form, "nats-transform plan", lines, found, ALL)
    end(is_fine=result.plan is not None)


def _reported(one: Blocked, place: Place) -> Reported:
    about = f"{one.about}: " if one.about else ""
    message = f"no safe plan: {about}{one.message}"
    return Reported(
        Severity.ERROR, one.code, message, one.cure, place.path, place.line, place.column
    )


def _print(result: PlanResult) -> None:
    for one in result.blocked:
        about = f"{one.about}: " if one.about else ""
        print_line(f"no safe plan: {one.code}: {about}{one.message}; {one.cure}")
    for line in _steps(result):
        print_line(line)
    if result.folder is not None:
        print_line(looked_at(result))
        print_line(f"the plan is in {result.folder}")


def _steps(result: PlanResult) -> Iterator[str]:
    """One line for each step, or the one that there is nothing to do."""
    if result.plan is None:
        return
    if not result.plan.steps:
        yield "nothing to do: the candidate has the mappings that are in force"
    for step in result.plan.steps:
        changes = ", ".join(f"{change.kind} {change.name}" for change in step.changes)
        yield f"{step.number}. {step.title}: {changes}"
