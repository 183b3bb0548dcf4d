"""`nats-transform trace`: where a subject goes, without a message."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from cli.command import command as cli_command
from cli.command import end, output, print_result
from cli.output import Verdict, print_line, print_table
from jobs.settings.base import Folder, Name, Option, Settings, setting
from jobs.settings.connection import NatsSettings
from jobs.settings.mappings import Account
from nats_transform.errors import shown
from nats_transform.subject import is_valid_publish_subject

if TYPE_CHECKING:
    from nats_transform.stream import StreamConfig


class TraceSettings(Settings):
    """A subject, and what may lie on its way."""

    subject: str = setting(..., "The subject that a message is published on.", is_argument=True)
    mapping: Path | None = setting(
        None,
        "The mappings: a server configuration, an account JWT, JSON or YAML.",
        was="config",
    )
    account: Account = "$G"
    streams: Folder | None = setting(
        None,
        "A folder with one file per stream: the output of `nats stream info NAME --json`.",
    )
    nats: Annotated[NatsSettings | None, Option(unless=("streams",))] = None
    cluster: Name | None = setting(
        None, "The cluster that the message is published in.", otherwise="none"
    )
    live: bool = setting(
        False,
        "Send one message that servers only trace, delivered to nobody and stored nowhere, and "
        "compare what they say with the prediction.",
    )


@cli_command(
    "trace",
    TraceSettings,
    output(
        json="subject, cluster, paths (each with percent, fate, streams); with --live subject, "
        "server, is_equal, hops (each with hop, predicted, seen, verdict)."
    ),
    exit_codes="0 the subject is legal (--live: and the servers do as predicted); 1 not so; 2 a "
    "file cannot be read, or the server cannot trace.",
)
def command(settings: TraceSettings, asked: Settings) -> None:
    """Show what happens to a message published on SUBJECT. Only --live sends one.

    The trace shows every destination that the mappings can choose and how likely it is, each
    stream that stores the message and under which subject, what that stream republishes, and the
    streams that mirror or source it. The streams come from files, or from a server with --server or
    --context.

    With --live, servers from 2.11 on say what they would do with the message, and the exit code is
    1 if they differ. Where a mapping draws one of several destinations, any one of ours is right.

    \b
    Examples:
      nats-transform trace orders.eu.42 --mapping server.conf
      nats-transform trace orders.eu.42 --mapping server.conf --streams streams/ --cluster east
      nats-transform trace orders.eu.42 --mapping server.conf --context prod
      nats-transform trace orders.eu.42 --mapping server.conf --context prod --live
    """
    if settings.live:
        _live(settings, asked)
        return
    if settings.mapping is None and settings.streams is None and settings.nats is None:
        raise click.UsageError("give --mapping, --streams or a server")
    from nats_transform.config import load_mappings
    from nats_transform.trace import trace

    traced = trace(
        settings.subject,
        load_mappings(settings.mapping, settings.account) if settings.mapping else None,
        _streams(settings),
        settings.cluster,
    )

    def show() -> None:
        for line in traced.text().split("\n"):
            print_line(line)

    print_result(asked, traced, show)
    end(is_fine=is_valid_publish_subject(settings.subject))


def _live(settings: TraceSettings, asked: Settings) -> None:
    from jobs.live_trace import live_trace

    if settings.nats is None:
        raise click.UsageError("--live needs a server: give --server or --context, no --streams")
    traced = live_trace(
        settings.subject, settings.nats, settings.mapping, settings.account, settings.cluster
    )

    def show() -> None:
        where = f" in cluster {traced.cluster}" if traced.cluster else ""
        print_line(f"{shown(traced.subject)} traced by {traced.server}{where}; nobody got it")
        print_table(
            [
                (
                    Verdict(hop.verdict),
                    hop.hop,
                    hop.server,
                    " or ".join(hop.predicted),
                    hop.seen or "",
                )
                for hop in traced.hops
            ],
            head=("", "hop", "server", "predicted", "the server says"),
        )
        print_line("equal" if traced.is_equal else "the servers differ from the prediction")

    print_result(asked, traced, show)
    end(is_fine=traced.is_equal)


def _streams(settings: TraceSettings) -> tuple[StreamConfig, ...]:
    from nats_transform.config import load_streams

    if settings.nats is not None:
        from jobs.jetstream.account import account_files

        with account_files(settings.nats, settings.account) as (folder, _):
            return load_streams(folder)
    return load_streams(settings.streams) if settings.streams else ()
