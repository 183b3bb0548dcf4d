"""`nats-transform plan-canary`: how long a canary must run until an audit can judge it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cli import options, project
from cli.output import finish, print_line, print_table, quiet_work

if TYPE_CHECKING:
    from jobs.audit.plan import CanaryPlan
    from jobs.session import Spark


@project.command(
    "plan-canary",
    short_help="Say how long a canary must run.",
    epilog="Exit codes: 0 the plan is made; 2 it cannot be made, and the line on stderr says why.",
)
@options.stream("The stream whose traffic is counted, as it is published.")
@options.mapping
@options.day
@options.several(
    "--share",
    "shares",
    "PERCENT",
    "The share of the canary.",
    type=options.NUMBER,
    default=(1, 2, 5, 10),
    show_default=True,
)
@options.tolerance("the audit will allow a share to differ from its weight")
@options.confidence("the interval of the audit is right")
@options.number(
    "--power", 0.95, "The probability, from 0 to 1, that the audit reaches the right verdict."
)
@options.report("Write the plan with plots into this file, as an HTML page.")
@options.warehouse
@options.spark
@options.json("Print one JSON document: rules with the messages and hours of each canary, ...")
def command(spark: Spark, report: Path | None, as_json: bool, **given: object) -> None:
    """Count the stream's own traffic, and say how long a canary must run in each cluster.

    The plan says how many messages an audit needs to tell a right canary from a wrong one: a canary
    that gets its share is then `within`, and one that is off by twice the tolerance is `outside`.
    A canary that is off by just the tolerance is not called `within`.

    \b
    Examples:
      nats-transform plan-canary --stream ORDERS --mapping server.conf
      nats-transform plan-canary --stream ORDERS --mapping server.conf --share 2 --tolerance 0.5
    """
    with quiet_work():
        from jobs.audit.plan import plan_canary
        from jobs.pages.plan import write
        from jobs.settings.audit import CanarySettings

        result = plan_canary(spark, options.settings(CanarySettings, given))
        if report is not None:
            write(result, report)
    finish(result, as_json, _print)


def _print(result: CanaryPlan) -> None:
    print_line(
        f"{result.stream}: traffic of {result.from_hour:%Y-%m-%d %H:%M} to "
        f"{result.to_hour:%Y-%m-%d %H:%M} UTC; tolerance {result.tolerance:g} points, "
        f"confidence {result.confidence:g}, power {result.power:g}"
    )
    for rule in result.rules:
        scope = f" in {rule.cluster}" if rule.cluster else ""
        print_line()
        print_line(f"{rule.source}{scope}: {sum(rule.per_hour) / 168:,.1f} messages per hour")
        canaries = [
            (
                f"{canary.share:g} %",
                "never" if canary.messages is None else f"{canary.messages:,}",
                *map(_hours, (canary.shortest, canary.typical, canary.longest)),
                canary.best_start or "-",
            )
            for canary in rule.canaries
        ]
        head = ["canary", "messages", "shortest", "typical", "longest", "best start (UTC)"]
        print_table(canaries, head=head, right=range(5))
        if rule.guessed:
            print_line(
                f"The archive has not seen {rule.guessed} of the 168 hours of a week; they count "
                "as the same hour of other days.",
                indent=2,
            )


def _hours(hours: float | None) -> str:
    if hours is None:
        return "-"
    return f"{hours:.1f} h" if hours < 48 else f"{hours / 24:.1f} days"
