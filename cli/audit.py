"""`nats-transform audit`: the split of weighted mappings against their weights."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.options import (
    account_option,
    day_option,
    debug_option,
    json_option,
    mapping_option,
    report_option,
    seed_option,
    settings,
    spark_options,
    stream_option,
    warehouse_options,
)
from cli.output import print_json, print_line, quiet_work

if TYPE_CHECKING:
    from jobs.audit.settings import AuditResult
    from jobs.session import Spark


@click.command(
    "audit",
    short_help="Hold the split of weighted mappings against their weights.",
    epilog="Exit codes: 0 no split is outside its weights; 1 one is; 2 it could not be audited, "
    "the line on stderr says why.",
)
@stream_option("The stream whose messages are counted.")
@mapping_option
@account_option
@click.option(
    "--observed",
    is_flag=True,
    help="The stream holds what was published after the mapping; without it, the mapping is "
    "replayed on what was published before.",
)
@click.option("--cluster", metavar="NAME", help="Count this cluster only.")
@day_option
@seed_option("Decides every draw, where messages must be mapped for the audit.")
@click.option(
    "--by", type=click.Choice(["hour", "day"]), default="day", show_default=True, help="Buckets."
)
@click.option(
    "--tolerance",
    type=float,
    default=1.0,
    show_default=True,
    help="Percentage points that a share may be off its weight.",
)
@click.option(
    "--confidence", type=float, default=0.99, show_default=True, help="Of all intervals together."
)
@click.option(
    "--key", type=int, metavar="N", help="Report the values of wildcard N that saw several ends."
)
@click.option(
    "--source-stream", metavar="NAME", help="Observed: the stream of the messages before it."
)
@report_option("Write the audit as an HTML page.")
@warehouse_options
@spark_options
@json_option("Print one JSON document: verdict, rules with their destinations, fates, ...")
@debug_option
def command(
    spark: Spark,
    report: Path | None,
    as_json: bool,
    **given: object,
) -> None:
    """Hold the share of each destination against its weight, for each mapping and cluster.

    A share is `within` if its interval lies inside the weight plus or minus the tolerance,
    `outside` if it lies outside, and else `undecided`: then it says how many messages would decide.

    \b
    Examples:
      nats-transform audit --stream ORDERS --mapping server.conf --report audit.html
      nats-transform audit --stream SHIPPED --mapping server.conf --observed --by hour
    """
    with quiet_work():
        from jobs.audit.run import audit
        from jobs.audit.settings import AuditSettings
        from jobs.pages.audit import write
        from nats_transform.audit import Verdict

        result = audit(spark, settings(AuditSettings, given))
        if report is not None:
            write(result, report)
    if as_json:
        print_json(result.model_dump(mode="json"))
    else:
        _print(result)
    if result.verdict is Verdict.OUTSIDE:
        raise click.exceptions.Exit(1)


def _print(result: AuditResult) -> None:
    print_line(f"{result.stream}: {result.verdict}, {result.messages:,} messages ({result.kind})")
    for rule in result.rules:
        scope = f" in {rule.cluster}" if rule.cluster else ""
        print_line()
        print_line(f"{rule.source}{scope}: {rule.verdict}, {rule.messages:,} messages")
        for found in rule.destinations:
            share = "-" if found.share is None else f"{found.share:.2f} %"
            print_line(
                f"  {found.weight:>5g} %  {share:>9}  ({found.low:.2f} to {found.high:.2f})  "
                f"{found.verdict:<9}  {found.destination or found.end}"
            )
        if rule.reason:
            print_line(f"  {rule.reason}")
    for note in result.notes:
        print_line()
        print_line(note)
