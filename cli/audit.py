"""`nats-transform audit`: the split of weighted mappings, compared with their weights."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from cli.command import job_command
from cli.output import Verdict, print_help, print_line, print_table
from nats_transform.words import plural

if TYPE_CHECKING:
    from jobs.audit.result import AuditResult
    from jobs.settings.audit import AuditSettings
    from nats_transform.audit import Account, MappingAudit


@job_command(
    "audit",
    exit_codes="0 every verdict is better than --fail-on; 1 some verdict isn't; 2 the audit "
    "failed, and the line on stderr says why.",
    json="verdict, rules with their destinations, fates, ...",
)
def command(result: AuditResult, settings: AuditSettings) -> None:
    """Compare the share of each destination with its weight, for each mapping and cluster.

    A share is `within` if its confidence interval lies inside the weight plus or minus the
    tolerance (or half of a small weight), and `outside` if the interval lies outside. Otherwise it
    is `undecided`, and the audit says how many messages would decide it.

    \b
    Examples:
      nats-transform audit --stream SHIPPED --mapping server.conf --observed --by hour
      nats-transform audit --stream SHIPPED --mapping before.conf --observed \\
        --in-force 2026-10-01T12:00Z=canary-2.conf --in-force 2026-10-03T12:00Z=canary-10.conf
      nats-transform audit --stream ORDERS --mapping server.conf --report rehearsal.html
    """
    from jobs.audit.headline import headline, worst_first
    from nats_transform.lint.findings import codes

    how = {"expected": "rehearsal by replay", "observed": "observed"}[result.kind]
    count = plural(result.messages, "message")
    print_line(f"{result.stream}: ", Verdict(result.verdict), f", {count}, {how}")
    print_line(headline(result))
    names, counts = zip(*result.account_columns, strict=True)
    accounts = [
        (_named(result, account), *("unknown" if n is None else f"{n:,}" for n in of_account))
        for account, *of_account in zip(result.accounts, *counts, strict=True)
    ]
    print_table(accounts, head=("", *names), right=range(1, len(names) + 1))
    if len(result.in_force) > 1:
        stages = [
            (
                f"{_short(stage.since)} to {_short(stage.until)}",
                f"version {stage.mapping_version[:12]}",
                Verdict(stage.verdict),
                plural(stage.messages, "message"),
            )
            for stage in result.in_force
        ]
        print_table(stages, right=[3])
    for rule in worst_first(result):
        print_line()
        count = plural(rule.messages, "message")
        print_line(f"{_named(result, rule)}: ", Verdict(rule.verdict), f", {count}")
        destinations = [
            (
                f"{split.weight:g} %",
                "-" if split.share is None else f"{split.share:.2f} %",
                f"({split.low:.2f} to {split.high:.2f})",
                Verdict(split.verdict),
                split.name,
            )
            for split in rule.destinations
        ]
        print_table(destinations, right=[0, 1, 2])
        print_line(rule.reason, indent=2)
    for total in result.clusters:
        if total.hides:
            print_line()
            print_line(f"{total.source}: {total.message}")
    for key in result.keys:
        print_line()
        print_line(
            f"{key.source}: {key.split:,} of {key.keys:,} values of wildcard {key.wildcard} went "
            "to more than one destination"
        )
    for note in result.notes:
        print_line()
        print_line(note)
    if (code := result.verdict.replace(" ", "-")) != "within":
        print_help({code: codes("audit")[code].page})


def _named(result: AuditResult, of: Account | MappingAudit) -> str:
    """A mapping, its cluster, and since when it was in force."""
    started = result.in_force[of.stage].since
    where = f" in {of.cluster}" if of.cluster else ""
    return of.source + where + (f" from {_short(started)} on" if started else "")


def _short(moment: datetime | None) -> str:
    return f"{moment:%Y-%m-%d %H:%M}" if moment else "..."
