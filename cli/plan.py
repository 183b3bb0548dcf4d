"""`nats-transform plan`: the way from the mappings in force to a candidate, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cli import options
from cli.output import print_json, print_line, quiet_work

if TYPE_CHECKING:
    from jobs.plan import PlanResult
    from jobs.session import Spark


def _percents(
    ctx: click.Context, parameter: click.Parameter, value: str | None
) -> list[int] | None:
    try:
        return [int(part) for part in value.split(",")] if value else None
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a list such as 2,10,50,100") from None


@click.command(
    "plan",
    short_help="Plan a switch of mappings, step by step.",
    epilog="Exit codes: 0 the plan is written; 1 there is no safe plan, and each line says what "
    "stands in its way; 2 wrong usage, or a file that cannot be used.",
)
@options.subjects
@options.question
@click.option(
    "--accept",
    metavar="FILE",
    type=options.FILE,
    help="Findings that may stay, in YAML or JSON: a list of {code, about, reason}. An entry "
    "without `about` accepts every finding with the code.",
)
@click.option(
    "--stages",
    metavar="PERCENTS",
    callback=_percents,
    help="The shares of the messages that go the new way, one stage after the other.  "
    "[default: 2,10,50,100]",
)
@click.option(
    "--tolerance",
    type=float,
    default=1.0,
    show_default=True,
    help="How many percentage points the audits of the stages allow.",
)
@click.option(
    "--cluster",
    "clusters",
    metavar="NAME",
    multiple=True,
    help="A cluster that you run. May be given several times.  [default: the clusters that the "
    "archive names]",
)
@options.day
@click.option(
    "--out", required=True, metavar="DIR", type=options.FILE, help="A new folder for the plan."
)
@options.warehouse
@options.spark
@options.json("Print one JSON document: folder, plan, blocked.")
@options.debug
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
    if as_json:
        print_json(result.as_json())
    else:
        _print(result)
    if result.plan is None:
        raise click.exceptions.Exit(1)


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
