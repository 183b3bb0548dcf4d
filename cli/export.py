"""`nats-transform export`: archived messages as a stream backup."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cli import options, project
from cli.output import finish, print_counts, print_line, quiet_work
from nats_transform.words import plural

if TYPE_CHECKING:
    from jobs.export import ExportResult


@project.command(
    "export",
    short_help="Write messages as a stream backup.",
    epilog="Exit codes: 0 the backup is written; 1 it is written, and a finding says what is not "
    "in it as it was; 2 nothing is written, and the line on stderr says why.",
)
@options.stream("The stream whose messages are exported.")
@click.option(
    "--to-backup",
    required=True,
    metavar="DIR",
    help="The new folder of the backup, or its URI in an object store.",
)
@click.option(
    "--untransformed",
    is_flag=True,
    help="Export the messages with the subjects that they were archived with, to undo a migration.",
)
@click.option(
    "--simulated",
    metavar="NAME",
    help="Export what this stream would hold in the last dry-run --simulate; needs --config.",
)
@options.file(
    "--original",
    "The original stream: the folder of its backup, whose consumers are exported too, or its "
    "configuration (nats stream info --json). Subjects and filters are adapted.",
    metavar="PATH",
)
@options.file("--config", "The configuration of the exported stream as JSON, taken as it is.")
@options.file(
    "--mapping",
    "The mappings that the messages were transformed with.  [default: as the warehouse records]",
)
@options.account
@options.seed("The seed of the transform.")
@click.option(
    "--gaps",
    type=click.Choice(["keep", "close"]),
    default="keep",
    show_default=True,
    help="Whether messages that are left out leave gaps; `close` gives all messages new sequences "
    "and leaves out the consumers.",
)
@click.option(
    "--invalid",
    type=click.Choice(["refuse", "keep", "gap"]),
    default="refuse",
    show_default=True,
    help="What to do if messages have no legal new subject: export nothing, keep their subjects, "
    "or leave them out.",
)
@options.warehouse
@options.json(
    "Print one JSON document: stream, backup, name, subjects, messages, gaps, left_out, digest, "
    "consumers, findings, ..."
)
def command(untransformed: bool, as_json: bool, **given: object) -> None:
    """Write the messages of a stream as a backup, which `nats stream restore` loads.

    Messages keep their sequences, times, headers and payloads; no server is needed. Without
    --untransformed they get the subjects of table `transformed_messages`, and messages that the
    mappings lost or filtered leave gaps. The backup is read back and compared before it is put in
    its place.

    \b
    Examples:
      nats-transform export --stream ORDERS --original backup --mapping server.conf --to-backup new
      nats-transform export --stream ORDERS --original backup --untransformed --to-backup old
    """
    with quiet_work():
        from jobs.export import export
        from jobs.settings.export import ExportSettings

        wanted = {**given, "messages": "archived" if untransformed else "transformed"}
        result = export(options.settings(ExportSettings, wanted))
    finish(result, as_json, _print, "finding")


def _print(result: ExportResult) -> None:
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
    print_line(f"digest {result.digest}")
