"""`nats-transform export`: archived messages as a stream backup."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.command import job_command
from cli.output import print_counts, print_line
from nats_transform.words import plural

if TYPE_CHECKING:
    from jobs.export import ExportResult
    from jobs.settings.export import ExportSettings


@job_command(
    "export",
    exit_codes="0 the backup is written; 1 it is written, and a finding says what it lacks or "
    "changes; 2 nothing is written, and the line on stderr says why.",
    json="stream, backup, name, subjects, messages, gaps, "
    "left_out, schedules, rewritten, digest, consumers, findings, ...",
)
def command(result: ExportResult, settings: ExportSettings) -> None:
    """Write the messages of a stream as a backup, which `nats stream restore` loads.

    Messages keep their sequences, times, headers and payloads. No server is needed. Without
    --untransformed they get the subjects of table `transformed_messages`, and messages that the
    mappings lost or filtered leave gaps. The backup is read back and compared before it appears in
    its place.

    \b
    Examples:
      nats-transform export --stream ORDERS --original backup --mapping server.conf --to-backup new
      nats-transform export --stream ORDERS --original backup --untransformed --to-backup old
    """
    for finding in result.findings:
        print_line(f"{finding.code}: {finding.message}")
    print_line(f"{result.backup}: stream {result.name} with {plural(result.messages, 'message')}")
    if result.left_out:
        print_counts({f"{fate}, left out": count for fate, count in result.left_out.items()})
    print_line(
        f"sequences {result.first_seq:,} to {result.last_seq:,}, {result.gaps:,} of them without "
        "a message"
    )
    print_line(f"subjects {', '.join(result.subjects) or 'of its sources'}")
    print_line(f"consumers {', '.join(result.consumers) or 'none'}")
    for name, count in result.rewritten.items():
        print_line(f"rewrote {name} in {plural(count, 'message')}")
    if result.schedules and not settings.rewrite_headers:
        print_line(
            f"{plural(result.schedules, 'message has', 'messages have')} a schedule, whose target "
            "doesn't change; --rewrite-headers renames it"
        )
    print_line(f"digest {result.digest}")
