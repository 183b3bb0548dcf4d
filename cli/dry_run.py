"""`nats-transform dry-run`: what a new mapping would do to the subjects of an archive."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from cli.command import job_command
from cli.formats import Reported, Review
from cli.output import looked_at, print_finding, print_help, print_line
from nats_transform.errors import shown
from nats_transform.mappings.unseen import unseen_line
from nats_transform.words import plural

if TYPE_CHECKING:
    from jobs.dry_run.result import DryRunResult, SimulatedStream
    from jobs.settings.dry_run import DryRunSettings
    from nats_transform.migration import Example, MigrationFinding

_EXAMPLES = 3
_FINDINGS = 50


@job_command(
    "dry-run",
    exit_codes="0 every finding is milder than --fail-on; 1 some finding isn't; 2 the dry run "
    "failed, and the line on stderr says why.",
    json="summary, findings, changes, partitions, ...",
    review=lambda result, settings: _review(result, settings),
)
def command(result: DryRunResult, settings: DryRunSettings) -> None:
    """Show what new mappings would do to the archived subjects of a stream.

    The dry run shows which messages change, collide, get lost or can't be changed back, who no
    longer gets them (streams, consumers, users, other accounts), and which partition keys move. It
    changes no message and no server. A weight of 2 % counts as 2 % of the messages. With --exact,
    each message draws its destination.

    With --server or --context, streams and durable consumers come from the server instead of files.
    Without --stream, so do the subjects of all the account's streams. With --stream and --live, so
    do the subjects of that stream. This needs no archive, and writes nothing to the server.

    Findings have two parts: as things are, and what would come next if streams, consumers and users
    had room for the new subjects. The exit code depends on the first part.

    Every finding has a code, which `nats-transform explain CODE` explains.

    \b
    Examples:
      nats-transform dry-run --context prod --candidate new.conf
      nats-transform dry-run --context prod --stream ORDERS --live --candidate new.conf
      nats-transform dry-run --stream ORDERS --candidate new.conf
      nats-transform dry-run --census census.parquet --candidate new.conf
      nats-transform dry-run --stream ORDERS --candidate new.conf --mapping old.conf \\
        --streams streams/ --consumers consumers/ --permissions server.conf --report review.html
    """
    dry_run = result.dry_run
    print_line(
        f"{result.name}: {plural(dry_run.messages, 'message')} under "
        f"{plural(dry_run.subjects, 'subject')}, "
        + (plural(len(result.days), "day") if result.server is None else "as they are now")
    )
    if result.server is not None:
        print_line(f"counted by {result.server} in {', '.join(map(_shown, result.counted))}")
    users = f"{plural(result.users, 'user')} with permissions"
    print_line(f"{looked_at(result)}; {users}")
    print_line(unseen_line(result.not_looked_at))
    verb = "changes" if dry_run.changed_messages == 1 else "change"
    print_line(
        f"{_messages(dry_run.changed_messages)} of {plural(dry_run.changed_subjects, 'subject')} "
        f"{verb}; {plural(dry_run.subjects_before, 'distinct subject')} "
        f"{'becomes' if dry_run.subjects_before == 1 else 'become'} {dry_run.subjects_after:,}"
    )
    _print_findings(dry_run.findings)
    print_line(_counts(result))
    for layer, findings in groupby(dry_run.with_room, attrgetter("layer")):
        print_line(f"{layer.words}:")
        _print_findings(list(findings))
    print_help({finding.code: finding.help for finding in (*dry_run.findings, *dry_run.with_room)})
    for stream in result.simulated:
        print_line(f"stream {_shown(stream.stream)}{_held(stream)}")
    print_line(
        "mappings can change every subject back"
        if dry_run.is_reversible
        else "mappings cannot change every subject back"
    )
    print_line(f"version of the candidate: {result.candidate_version}")
    if settings.out is not None:
        print_line(f"tables {settings.out}")


def _review(result: DryRunResult, settings: DryRunSettings) -> Review:
    from nats_transform.migration.findings import ALL

    title = f"nats-transform dry-run of {'stream ' if result.stream else ''}{result.name}"
    findings = _reported(result, str(settings.candidate), settings.account)
    return Review(title, [_counts(result)], findings, ALL, result.not_looked_at)


def _reported(result: DryRunResult, candidate: str, account: str) -> Iterator[Reported]:
    """The findings as they stand in a review: each at its mapping, if it is about one."""
    from nats_transform.config.load import places_about

    place_of = places_about(candidate, account)
    for finding in (*result.dry_run.findings, *result.dry_run.with_room):
        place = place_of(finding.about)
        assumed = "" if finding.layer == "now" else f"{finding.layer.words}: "
        yield Reported(
            finding.severity,
            finding.code,
            f"{assumed}{_message(finding)}",
            finding.cure,
            place.path,
            place.line,
            place.column,
            tuple(map(_line, finding.examples)),
            finding.help,
        )


def _message(finding: MigrationFinding) -> str:
    about = f"{finding.about}: " if finding.about else ""
    if not finding.messages:
        return f"{about}{finding.message}"
    subjects = plural(finding.subjects, "subject")
    count = f"({_messages(finding.messages)}, {finding.share:.3g} %, {subjects})"
    return f"{about}{finding.message} {count}"


def _held(stream: SimulatedStream) -> str:
    if stream.messages is None:
        return f": what it would hold is {stream.condition}"
    gone = [
        f"{count:,} {what}"
        for what, count in (
            ("discarded", stream.discarded),
            ("refused", stream.refused),
            ("duplicates", stream.duplicates),
        )
        if count
    ]
    left = f" ({', '.join(gone)})" if gone else ""
    condition = f", {stream.condition}" if stream.condition else ""
    return f" would hold {plural(stream.messages, 'message')}{left}{condition}"


def _counts(result: DryRunResult) -> str:
    counts = [
        plural(number, severity.value) for severity, number in result.counts.items() if number
    ]
    if counts:
        return ", ".join(counts)
    if result.streams_from is None:
        return "the mappings alone show nothing"
    return "nothing found in what was looked at"


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
