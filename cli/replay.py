"""`nats-transform replay`: transformed messages back into a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cli.options import (
    day_option,
    debug_option,
    json_option,
    server_options,
    settings,
    spark_options,
    stream_option,
    warehouse_options,
)
from cli.output import print_counts, print_json, print_line, progress, quiet_work

if TYPE_CHECKING:
    from jobs.session import Spark


@click.command(
    "replay",
    short_help="Send transformed messages into a stream.",
    epilog="Exit codes: 0 all of them are there; 2 not, the line on stderr says why: run it again "
    "to go on.",
)
@stream_option("The stream whose transformed messages are sent.")
@click.option(
    "--to", required=True, metavar="NAME", help="The stream that gets them; it must exist."
)
@server_options
@day_option
@click.option("--rate", type=float, metavar="N", help="Messages a second at most.")
@click.option("--dry-run", is_flag=True, help="Count what would be sent, and send nothing.")
@warehouse_options
@spark_options
@json_option("Print one JSON document: stream, to, sent, already, duplicates, not_sent.")
@debug_option
def command(
    spark: Spark,
    as_json: bool,
    **given: object,
) -> None:
    """Send the messages of table `transformed_messages` into a stream, each of them once.

    Mapped and unmatched messages are sent, in stream order for each subject, with their headers
    and payloads. A replay that was stopped goes on where it stopped when it is run again.

    \b
    Examples:
      nats-transform replay --stream ORDERS --to ORDERS_V2 --server nats://127.0.0.1:4222 --dry-run
      nats-transform replay --stream ORDERS --to ORDERS_V2 --server nats://hub --rate 5000
    """
    if given["server"] is None:
        raise click.UsageError("--server is missing: say where the stream is")
    with quiet_work():
        from jobs.replay import ReplaySettings, replay

        result = replay(spark, settings(ReplaySettings, given), progress)
    if as_json:
        print_json(result.model_dump(mode="json"))
        return
    would = "would be " if result.dry_run else ""
    print_line(f"{result.stream} into {result.to}: {result.sent:,} messages {would}sent")
    print_counts({"there already": result.already, **result.not_sent})
