"""`nats-transform plan-canary`: how long a canary must run until an audit can judge it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.command import job_command
from cli.output import print_line, print_table

if TYPE_CHECKING:
    from jobs.audit.canary import CanaryPlan
    from jobs.settings.audit import CanarySettings


@job_command(
    "plan-canary",
    exit_codes="0 the plan is made; 2 it isn't, and the line on stderr says why.",
    json="rules with the messages and hours of each canary, ...",
)
def command(result: CanaryPlan, settings: CanarySettings) -> None:
    """Count the stream's own traffic, and say how long a canary must run in each cluster.

    The plan says how many messages each mapping needs in each cluster for the audit's verdict to
    be right. Canaries that get their shares are then `within`, and one that is off by twice the
    tolerance is `outside`. A canary that is off by just the tolerance isn't called `within`. More
    destinations, clusters, and hours or days need more messages.

    \b
    Examples:
      nats-transform plan-canary --stream ORDERS --mapping server.conf
      nats-transform plan-canary --stream ORDERS --mapping server.conf --share 2 --tolerance 0.5
      nats-transform plan-canary --stream ORDERS --mapping server.conf --by hour --hours 24
    """
    print_line(
        f"{result.stream}: traffic of {result.from_hour:%Y-%m-%d %H:%M} to "
        f"{result.to_hour:%Y-%m-%d %H:%M} UTC; tolerance {result.tolerance:g} points, "
        f"confidence {result.confidence:g}, power {result.power:g}, a verdict on each {result.by}"
        + (f" of {result.audit_hours:,} hours" if result.audit_hours else "")
    )
    for rule in result.rules:
        scope = f" in {rule.cluster}" if rule.cluster else ""
        print_line()
        print_line(f"{rule.source}{scope}: {sum(rule.per_hour) / 168:,.1f} messages per hour")
        canaries = [
            (
                f"{canary.share:g} %",
                " + ".join(f"{share:.3g}" for share in canary.others) + " %",
                "never" if canary.messages is None else f"{canary.messages:,}",
                *map(_hours, (canary.shortest, canary.typical, canary.longest)),
                canary.best_start or "-",
            )
            for canary in rule.canaries
        ]
        times = ["shortest", "typical", "longest", "best start (UTC)"]
        print_table(canaries, head=["canary", "others", "messages", *times], right=range(6))
        if rule.guessed:
            print_line(
                f"The archive has no messages for {rule.guessed} of a week's 168 hours, so they "
                "count as the same hour of other days.",
                indent=2,
            )


def _hours(hours: float | None) -> str:
    if hours is None:
        return "-"
    return f"{hours:.1f} h" if hours < 48 else f"{hours / 24:.1f} days"
