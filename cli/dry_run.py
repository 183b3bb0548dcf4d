"""`nats-transform dry-run`: what a new mapping would do to the subjects of an archive."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli import options, project
from cli.formats import Reported, print_findings
from cli.output import end, looked_at, print_finding, print_json, print_line, quiet_work
from nats_transform.errors import shown
from nats_transform.findings import Severity
from nats_transform.words import plural

if TYPE_CHECKING:
    from jobs.dry_run.settings import DryRunResult
    from jobs.session import Spark
    from jobs.settings.connection import NatsSettings
    from nats_transform.migration import Example, MigrationFinding

_EXAMPLES = 3
_FINDINGS = 50


@project.command(
    "dry-run",
    short_help="Try a new mapping on archived subjects.",
    epilog=(
        "Exit codes: 0 no finding is as bad as --fail-on; 1 some finding is; "
        "2 the mapping could not be tried, and the line on stderr says why."
    ),
)
@options.subjects
@options.question
@options.server(instead_of=("streams", "consumers"))
@options.day
@click.option(
    "--exact",
    is_flag=True,
    help="Draw a destination for each message, as `transform` does, instead of counting shares.",
)
@click.option(
    "--simulate",
    is_flag=True,
    help="Compute which messages the streams of --streams would hold, and write them into the "
    "table `simulated_streams`.",
)
@options.seed("A number that decides every draw of --exact and --simulate.")
@options.report("Write the result into this file, as an HTML page.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Keep the tables of the dry run in this folder, for your own queries with any SQL engine.",
)
@options.fail_on(list(Severity), "The mildest severity that makes the exit code 1.")
@options.run_id
@options.warehouse
@options.spark
@options.output_format("Print one JSON document: summary, findings, changes, partitions, ...")
def command(
    spark: Spark,
    report: Path | None,
    fail_on: str,
    form: str,
    server: NatsSettings | None,
    **given: object,
) -> None:
    """Show what new mappings would do to the archived subjects of a stream.

    The dry run shows which messages change, collide, are lost or cannot be changed back; which
    streams, consumers, users and other accounts no longer get them; and which partition keys move.
    It changes no message and no server. A weight of 2 % counts as 2 % of the messages; with --exact
    each message draws its destination.

    With --server or --context the server shows the streams and durable consumers, instead of files.

    Findings come in two parts: as things are, and what would be next if streams, consumers and
    users had room for the new subjects. The exit code looks at the first part.

    Every finding has a code; docs/dry-run.md lists the codes and what to do.

    \b
    Examples:
      nats-transform dry-run --stream ORDERS --candidate new.conf
      nats-transform dry-run --census census.parquet --candidate new.conf
      nats-transform dry-run --stream ORDERS --candidate new.conf --current old.conf \\
        --streams streams/ --consumers consumers/ --permissions server.conf --report review.html
    """
    with quiet_work():
        from jobs.dry_run.run import dry_run
        from jobs.pages.dry_run import write
        from jobs.settings.dry_run import DryRunSettings

        result = dry_run(spark, options.settings(DryRunSettings, given | {"nats": server}))
        if report is not None:
            write(result, report)
    if form == "json":
        print_json(result.as_json())
    elif form == "table":
        _print(result)
        if report is not None:
            print_line(f"report {report}")
        if given["out"] is not None:
            print_line(f"tables {given['out']}")
    else:
        from nats_transform.migration.findings import ALL

        title = f"nats-transform dry-run of stream {result.stream}"
        found = _reported(result, str(given["candidate"]), given["account"])
        print_findings(form, title, [_counts(result)], found, ALL)
    end(is_fine=fail_on == options.NEVER or not result.fails(fail_on))


def _reported(result: DryRunResult, candidate: str, account: object) -> Iterator[Reported]:
    """The findings as they stand in a review: each at its mapping, if it is about one."""
    from nats_transform.config.load import places_about

    place_of = places_about(candidate, account)
    for finding in (*result.found.findings, *result.found.with_room):
        place = place_of(finding.about)
        yield Reported(
            finding.severity,
            finding.code,
            f"{_assumed(finding)}{_message(finding)}",
            finding.cure,
            place.path,
            place.line,
            place.column,
            tuple(map(_line, finding.examples)),
        )


def _assumed(finding: MigrationFinding) -> str:
    return "" if finding.layer == "now" else f"{finding.layer.words}: "


def _message(finding: MigrationFinding) -> str:
    about = f"{finding.about}: " if finding.about else ""
    if not finding.messages:
        return f"{about}{finding.message}"
    subjects = plural(finding.subjects, "subject")
    count = f"({_messages(finding.messages)}, {finding.share:.3g} %, {subjects})"
    return f"{about}{finding.message} {count}"


def _counts(result: DryRunResult) -> str:
    counts = [
        plural(number, severity.value) for severity, number in result.counts.items() if number
    ]
    if counts:
        return ", ".join(counts)
    return "nothing found" if result.streams_from else "the mappings alone show nothing"


def _print(result: DryRunResult) -> None:
    found = result.found
    print_line(
        f"{result.stream}: {plural(found.messages, 'message')} under "
        f"{plural(found.subjects, 'subject')}, {plural(len(result.days), 'day')}"
    )
    users = f"{plural(result.users, 'user')} with permissions"
    print_line(f"{looked_at(result)}; {users}")
    verb = "changes" if found.changed_messages == 1 else "change"
    print_line(
        f"{_messages(found.changed_messages)} of {plural(found.changed_subjects, 'subject')} "
        f"{verb}; {plural(found.subjects_before, 'distinct subject')} "
        f"{'becomes' if found.subjects_before == 1 else 'become'} {found.subjects_after:,}"
    )
    _print_findings(found.findings)
    print_line(_counts(result))
    for layer, findings in groupby(found.with_room, attrgetter("layer")):
        print_line(f"{layer.words}:")
        _print_findings(list(findings))
    for stream in result.simulated:
        gone = [
            f"{count:,} {what}"
            for count, what in ((stream.discarded, "discarded"), (stream.refused, "refused"))
            if count
        ]
        left = f" ({', '.join(gone)})" if gone else ""
        print_line(
            f"stream {_shown(stream.stream)} would hold {plural(stream.messages, 'message')}{left}"
        )
    print_line(
        "mappings can change every subject back"
        if found.is_reversible
        else "mappings cannot change every subject back"
    )
    print_line(f"version of the candidate: {result.candidate_version}")


def _print_findings(findings: Sequence[MigrationFinding]) -> None:
    for finding in findings[:_FINDINGS]:
        examples = map(_line, finding.examples[:_EXAMPLES])
        message = _message(finding)
        print_finding("", finding.severity, finding.code, message, finding.cure, examples)
    if more := len(findings[_FINDINGS:]):
        print_line(f"and {plural(more, 'finding')} more; --json prints all of them")


def _line(example: Example) -> str:
    before = example.before if example.before != example.subject else None
    names = [example.subject, *([before] if before else []), example.after]
    return f"{' -> '.join(map(_shown, names))}  {_messages(example.messages)}"


def _shown(subject: str | None) -> str:
    return "(none)" if subject is None else shown(subject)


def _messages(count: float) -> str:
    from nats_transform.migration.count import PARTS, messages

    return messages(round(count * PARTS))
