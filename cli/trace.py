"""`nats-transform trace`: where a subject goes, without a server."""

from __future__ import annotations

from pathlib import Path

import click

from cli.command import command as cli_command
from cli.command import end, output, print_result
from cli.output import print_line
from jobs.settings.base import Folder, Name, Settings, setting
from jobs.settings.mappings import Account
from nats_transform.subject import is_valid_publish_subject


class TraceSettings(Settings):
    """A subject, and what may lie on its way."""

    subject: str = setting(..., "The subject that a message is published on.", is_argument=True)
    config: Path | None = setting(
        None, "The mappings: a server configuration, an account JWT, JSON or YAML."
    )
    account: Account = "$G"
    streams: Folder | None = setting(
        None,
        "A folder with one file per stream: the output of `nats stream info NAME --json`.",
    )
    cluster: Name | None = setting(
        None, "The cluster that the message is published in.", otherwise="none"
    )


@cli_command(
    "trace",
    TraceSettings,
    output(json="subject, cluster, paths (each with percent, fate, streams)."),
    exit_codes="0 the subject is legal; 1 it is not; 2 a file cannot be read.",
)
def command(settings: TraceSettings, asked: Settings) -> None:
    """Show what happens to a message that is published on SUBJECT, without a server.

    The trace shows every destination that the mappings can choose and how likely it is, each
    stream that stores the message and under which subject, what that stream republishes, and the
    streams that mirror or source it.

    \b
    Examples:
      nats-transform trace orders.eu.42 --config server.conf
      nats-transform trace orders.eu.42 --config server.conf --streams streams/ --cluster east
    """
    if settings.config is None and settings.streams is None:
        raise click.UsageError("give --config, --streams or both")
    from nats_transform.config import load_mappings, load_streams
    from nats_transform.trace import trace

    traced = trace(
        settings.subject,
        load_mappings(settings.config, settings.account) if settings.config else None,
        load_streams(settings.streams) if settings.streams else (),
        settings.cluster,
    )

    def show() -> None:
        for line in traced.text().split("\n"):
            print_line(line)

    print_result(asked, traced, show)
    end(is_fine=is_valid_publish_subject(settings.subject))
