"""`nats-transform audit`: the split of weighted mappings, compared with their weights."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli import options, project
from cli.output import Verdict, finish, print_line, print_table, quiet_work
from nats_transform.words import plural

if TYPE_CHECKING:
    from jobs.audit.result import AuditResult
    from jobs.session import Spark


@project.command(
    "audit",
    short_help="Compare the split of weighted mappings with their weights.",
    epilog="Exit codes: 0 no verdict is as bad as --fail-on; 1 some verdict is; 2 the split could "
    "not be audited, and the line on stderr says why.",
)
@options.stream("The stream whose messages are counted.")
@options.mapping
@click.option(
    "--observed",
    is_flag=True,
    help="The stream holds messages that nats-server has mapped already. Without this option it "
    "holds messages as they were published, and the audit applies the mapping to them.",
)
@options.several(
    "--in-force",
    "in_force",
    "MOMENT=FILE",
    "From MOMENT on, such as 2026-10-01T12:00Z, the mappings of FILE were in force instead; "
    "MOMENT..MOMENT=FILE names the end too. `git`: each commit of --mapping was in force from its "
    "time on. The oldest comes first.",
)
@click.option("--since", metavar="MOMENT", help="Count only messages from this moment on.")
@click.option(
    "--until", metavar="MOMENT", help="Count only messages before this moment, which must be over."
)
@click.option(
    "--cluster",
    metavar="NAME",
    help="Count only messages of this cluster. Messages that name no cluster are counted too.",
)
@options.day
@options.seed("A number that decides every draw, where the audit applies the mapping.")
@click.option(
    "--by",
    type=click.Choice(["hour", "day"]),
    default="day",
    show_default=True,
    help="Give a verdict also on each hour, or on each day.",
)
@options.tolerance("a share may differ from its weight")
@options.confidence("all confidence intervals are right together")
@click.option(
    "--sequential",
    is_flag=True,
    help="The audit is one of many looks at a canary that still runs: however often one looks, "
    "a false alarm is as rare as --confidence says. Use the same --since at every look.",
)
@click.option(
    "--key",
    type=int,
    metavar="N",
    help="Count the values of wildcard N of a source that came to more than one destination.",
)
@click.option(
    "--source-stream",
    metavar="NAME",
    help="With --observed: the stream that holds the same messages as they were published.",
)
@options.several(
    "--published",
    "published",
    "SOURCE COUNT",
    "With --observed: how many messages were published to the source of a mapping (in --cluster, "
    "if that is given).",
    type=(str, int),
)
@options.several(
    "--captured", "captured", "FILTER", "With --observed: subjects that the stream captures."
)
@options.several(
    "--publisher",
    "publishers",
    "FILTER",
    "With --observed: subjects that get messages also from elsewhere, not only through this "
    "mapping.",
)
@options.report("Write the audit into this file, as an HTML page.")
@options.fail_on(
    ["outside", "undecided", "nothing"],
    "The mildest verdict that makes the exit code 1; `nothing` means that no message was audited.",
)
@options.warehouse
@options.spark
@options.json("Print one JSON document: verdict, rules with their destinations, fates, ...")
def command(
    spark: Spark,
    published: tuple[tuple[str, int], ...],
    in_force: tuple[str, ...],
    since: str | None,
    until: str | None,
    report: Path | None,
    fail_on: str,
    as_json: bool,
    **given: object,
) -> None:
    """Compare the share of each destination with its weight, for each mapping and cluster.

    A share is `within` if its confidence interval lies inside the weight plus or minus the
    tolerance, and `outside` if the interval lies outside. Otherwise it is `undecided`, and the
    audit says how many messages would decide it.

    \b
    Examples:
      nats-transform audit --stream SHIPPED --mapping server.conf --observed --by hour
      nats-transform audit --stream SHIPPED --mapping before.conf --observed \\
        --in-force 2026-10-01T12:00Z=canary-2.conf --in-force 2026-10-03T12:00Z=canary-10.conf
      nats-transform audit --stream ORDERS --mapping server.conf --report rehearsal.html
    """
    with quiet_work():
        from jobs.audit.run import audit
        from jobs.pages.audit import write
        from jobs.settings.audit import AuditSettings

        counted = [
            {"source": source, "messages": count, "cluster": given["cluster"]}
            for source, count in published
        ]
        given |= {
            "published": counted,
            "in_force": "git" if in_force == ("git",) else [_in_force(text) for text in in_force],
            "since": since and _moment(since, "--since"),
            "until": until and _moment(until, "--until"),
        }
        result = audit(spark, options.settings(AuditSettings, given))
        if report is not None:
            write(result, report)
    finish(result, as_json, _print, fail_on)


def _in_force(text: str) -> dict[str, object]:
    """What `MOMENT=FILE` or `MOMENT..MOMENT=FILE` says."""
    moments, separator, file = text.partition("=")
    if not separator or not file:
        raise click.BadParameter(
            f"{text!r} is not a moment and a file: write 2026-10-01T12:00Z=mapping.conf, or `git` "
            "alone",
            param_hint="--in-force",
        )
    since, _, until = moments.partition("..")
    return {
        "since": _moment(since, "--in-force"),
        "until": _moment(until, "--in-force") if until else None,
        "mapping": Path(file),
    }


def _moment(text: str, option: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise click.BadParameter(
            f"{text!r} is not a moment such as 2026-10-01T12:00Z", param_hint=option
        ) from error
    if moment.tzinfo is None:
        text = text if ":" in text else f"{text}T00:00"
        raise click.BadParameter(
            f"{text!r} does not say its time zone: write {text}Z for UTC, or {text}+02:00",
            param_hint=option,
        )
    return moment


def _print(result: AuditResult) -> None:
    from jobs.audit.headline import headline

    how = {"expected": "rehearsal by replay", "observed": "observed"}[result.kind]
    count = plural(result.messages, "message")
    print_line(f"{result.stream}: ", Verdict(result.verdict), f", {count}, {how}")
    print_line(headline(result))
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
    for rule in result.rules:
        scope = f" in {rule.cluster}" if rule.cluster else ""
        if started := result.in_force[rule.stage].since:
            scope += f" from {_short(started)} on"
        print_line()
        count = plural(rule.messages, "message")
        print_line(f"{rule.source}{scope}: ", Verdict(rule.verdict), f", {count}")
        destinations = [
            (
                f"{found.weight:g} %",
                "-" if found.share is None else f"{found.share:.2f} %",
                f"({found.low:.2f} to {found.high:.2f})",
                Verdict(found.verdict),
                found.destination or found.end,
            )
            for found in rule.destinations
        ]
        print_table(destinations, right=[0, 1, 2])
        print_line(rule.reason, indent=2)
    for key in result.keys:
        print_line()
        print_line(
            f"{key.source}: {key.split:,} of {key.keys:,} values of wildcard {key.wildcard} "
            "came to more than one destination"
        )
    for note in result.notes:
        print_line()
        print_line(note)


def _short(moment: datetime | None) -> str:
    return f"{moment:%Y-%m-%d %H:%M}" if moment else "..."
