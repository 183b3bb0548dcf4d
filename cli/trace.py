"""`nats-transform trace`: where a subject goes, without a server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli import options, project
from cli.output import end, finish, print_line
from nats_transform.subject import is_valid_publish_subject

if TYPE_CHECKING:
    from nats_transform.trace import Trace


@project.command(
    "trace",
    short_help="Show where a message goes: mappings, streams, republish.",
    epilog="Exit codes: 0 the subject is legal; 1 it is not; 2 a file cannot be read.",
)
@click.argument("subject")
@options.file("--config", "The mappings: a server configuration, an account JWT, JSON or YAML.")
@options.account
@options.streams
@click.option(
    "--cluster",
    metavar="NAME",
    help="The cluster that the message is published in.  [default: none]",
)
@options.json(
    "Print one JSON document: subject, cluster, paths (each with percent, fate, streams)."
)
def command(
    subject: str,
    config: Path | None,
    account: str,
    streams: Path | None,
    cluster: str | None,
    as_json: bool,
) -> None:
    """Show what happens to a message that is published on SUBJECT, without a server.

    The trace shows every destination that the mappings can choose and how likely it is, each
    stream that stores the message and under which subject, what that stream republishes, and the
    streams that mirror or source it.

    \b
    Examples:
      nats-transform trace orders.eu.42 --config server.conf
      nats-transform trace orders.eu.42 --config server.conf --streams streams/ --cluster east
    """
    if config is None and streams is None:
        raise click.UsageError("give --config, --streams or both")
    from nats_transform.config import load_mappings, load_streams
    from nats_transform.trace import trace

    traced = trace(
        subject,
        load_mappings(config, account) if config else None,
        load_streams(streams) if streams else (),
        cluster,
    )
    finish(traced, as_json, _print)
    end(is_fine=is_valid_publish_subject(subject))


def _print(traced: Trace) -> None:
    for line in traced.text().split("\n"):
        print_line(line)
