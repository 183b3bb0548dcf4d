"""`nats-transform transform`: archived messages under a mapping."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cli import options, project
from cli.output import print_counts, print_json, print_line, quiet_work
from jobs.ending import NOT_FINE

if TYPE_CHECKING:
    from jobs.session import Spark


@project.command(
    "transform",
    short_help="Rewrite archived messages under a mapping.",
    epilog="Exit codes: 0 the messages were published; 1 the archive has no messages on these "
    "days, and nothing was published; 2 it failed, nothing was published, and the line on "
    "stderr says why.",
)
@options.stream("The stream whose messages are transformed.")
@options.mapping
@options.account
@options.day
@options.seed("A number that decides every draw: the same seed gives the same rows.")
@options.run_id
@options.warehouse
@options.spark
@options.json(
    "Print one JSON document: stream, days, messages, fates, mapping_version, digest, ..."
)
@options.debug
def command(spark: Spark, as_json: bool, **given: object) -> None:
    """Apply mappings to the archived messages of a stream, and write `transformed_messages`.

    Each message of the table `messages` gets its new subject, its fate (mapped, unmatched, lost,
    filtered or invalid), the mapping that applied and the draw. All days are replaced in one
    commit: readers see the old rows or the new ones, never both.

    \b
    Examples:
      nats-transform transform --stream ORDERS --mapping server.conf
      nats-transform transform --stream ORDERS --mapping server.conf --day 2026-11-01..2026-11-30
    """
    with quiet_work():
        from jobs.transform import TransformSettings, transform

        wanted = options.settings(TransformSettings, given)
        result = transform(spark, wanted)
    if as_json:
        print_json(result.as_json())
    elif result.days:
        days = "1 day" if len(result.days) == 1 else f"{len(result.days)} days"
        print_line(f"{result.stream}: {result.messages:,} messages of {days}")
        print_counts(result.fates)
        print_line(f"mapping version {result.mapping_version}, seed {result.seed}")
        print_line(f"digest {result.digest}, snapshot {result.snapshot_id}")
    if not result.days:
        span = " to ".join(str(day) for day in (wanted.first_day, wanted.last_day) if day)
        print_line(
            f"stream {result.stream} has no messages on {span}: nothing was published", err=True
        )
        raise click.exceptions.Exit(NOT_FINE)
