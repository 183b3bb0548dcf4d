"""`nats-transform plan`: the way from the mappings in force to a candidate, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cli import options, project
from cli.output import finish, print_line, quiet_work

if TYPE_CHECKING:
    from jobs.plan import PlanResult
    from jobs.session import Spark


@project.command(
    "plan",
    short_help="Plan a switch of mappings, step by step.",
    epilog="Exit codes: 0 the plan is written; 1 there is no safe plan, and each line says what "
    "stands in its way; 2 wrong usage, or a file that cannot be used.",
)
@options.subjects
@options.question
@options.file(
    "--accept",
    "Findings that may stay, in YAML or JSON: a list of {code, about, reason}. An entry without "
    "`about` accepts every finding with the code.",
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
@options.json("Print one JSON document: folder, plan, blocked.")
def command(spark: Spark, as_json: bool, **given: object) -> None:
    """Write a folder with every step from the mappings in force to the candidate.

    First streams, consumers and users get room for the new subjects; then the mappings send more
    and more of the messages under them; then the old subjects are taken away. Each step has its
    files, its commands, how to verify it and how to undo it. README.md in the folder explains them.
    The command changes no server.

    The subjects come from a stream of a warehouse or from a census in a file.

    \b
    Examples:
      nats-transform plan --census census.parquet --current old.conf --candidate new.conf \\
        --streams streams/ --consumers consumers/ --permissions server.conf --out plan/
    """
    with quiet_work():
        from jobs.plan import PlanSettings, plan

        result = plan(spark, options.settings(PlanSettings, given))
    finish(result, as_json, _print, "refused")


def _print(result: PlanResult) -> None:
    for one in result.blocked:
        about = f"{one.about}: " if one.about else ""
        print_line(f"no safe plan: {one.code}: {about}{one.message}; {one.cure}")
    if result.plan is None:
        return
    for step in result.plan.steps:
        changes = ", ".join(f"{change.kind} {change.name}" for change in step.changes)
        print_line(f"{step.number}. {step.title}: {changes}")
    print_line(f"plan {result.folder}")
