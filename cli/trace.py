"""`nats-transform trace`: where a subject goes, without a message."""

from __future__ import annotations

from pathlib import Path

import click

from cli.command import command as cli_command
from cli.command import end, output, print_result
from cli.output import Verdict, print_line, print_table
from jobs.jetstream.shown import with_files
from jobs.settings.base import Name, Settings, setting
from jobs.settings.connection import ShownSettings
from jobs.settings.mappings import LeafNodeSettings
from nats_transform.errors import sentence, shown
from nats_transform.mappings.subject import is_valid_publish_subject
from nats_transform.mappings.unseen import Unseen, unseen_line

_UNTRACED = (Unseen("republish, mirrors, sources and consumers", "trace without --live"),)
"""What servers don't trace, because they store nothing."""


class TraceSettings(LeafNodeSettings, ShownSettings):
    """A subject, and what may lie on its way."""

    subject: str = setting(..., "The subject that a message is published on.", is_argument=True)
    mapping: Path | None = setting(
        None,
        "The mappings: a server configuration, an account JWT, JSON or YAML.",
        was="config",
    )
    cluster: Name | None = setting(
        None, "The cluster that the message is published in.", otherwise="none"
    )
    live: bool = setting(
        False,
        "Send one message that servers only trace: nobody gets it, and nothing is stored. Then "
        "compare what they say with the prediction.",
    )


@cli_command(
    "trace",
    TraceSettings,
    output(
        json="subject, cluster, paths (each with percent, fate, streams); with --live subject, "
        "server, is_equal, hops (each with hop, predicted, seen, verdict)."
    ),
    exit_codes="0 the subject is legal (with --live: and the servers do as predicted); 1 it isn't "
    "(or they don't, or there is nothing to compare); 2 a file cannot be read, or the server "
    "can't trace.",
)
def command(settings: TraceSettings, asked: Settings) -> None:
    """Show what happens to a message published on SUBJECT. Only --live sends one.

    The trace shows every destination that the mappings can choose and how likely it is, each
    stream that stores the message and under which subject, what that stream republishes, and the
    streams and consumers that get it from there. The streams and consumers come from files, or from
    a server with --server or --context. With --leaf-node the trace goes on beyond a leaf node
    connection, where the mappings of the other side apply to what comes over it.

    With --live, servers from 2.11 on say what they would do with the message, and the exit code is
    1 if they differ. Where a mapping draws one of several destinations, any one of ours is right.

    \b
    Examples:
      nats-transform trace orders.eu.42 --mapping server.conf
      nats-transform trace orders.eu.42 --mapping server.conf --streams streams/ --cluster east
      nats-transform trace orders.eu.42 --mapping server.conf --leaf-node hub.conf
      nats-transform trace orders.eu.42 --mapping server.conf --context prod
      nats-transform trace orders.eu.42 --mapping server.conf --context prod --live
    """
    if settings.live:
        _live(settings, asked)
        return
    if settings.mapping is None and settings.streams is None and settings.nats is None:
        raise click.UsageError(sentence("trace-nothing"))
    from nats_transform.config import load_consumers, load_mappings, load_streams
    from nats_transform.streams.trace import UNSEEN_CLUSTER, UNSEEN_NUMBERS, trace

    with with_files(settings, settings.account) as given:
        streams = load_streams(given.streams) if given.streams else ()
        consumers = load_consumers(given.consumers, streams) if given.consumers else ()
    traced = trace(
        settings.subject,
        load_mappings(settings.mapping, settings.account) if settings.mapping else None,
        streams,
        settings.cluster,
        settings.other_side(),
        consumers if settings.consumers or settings.nats else None,
    )

    def show() -> None:
        for line in traced.text().split("\n"):
            print_line(line)
        always = (UNSEEN_CLUSTER, UNSEEN_NUMBERS)
        unseen = [u for u in traced.not_looked_at if streams or u in always]
        if unseen:
            print_line(unseen_line(unseen))

    print_result(asked, traced, show)
    end(is_fine=is_valid_publish_subject(settings.subject))


def _live(settings: TraceSettings, asked: Settings) -> None:
    from jobs.live_trace import live_trace

    if settings.leaf_node is not None:
        raise click.UsageError(sentence("live-beyond-leaf"))
    if settings.nats is None:
        raise click.UsageError(sentence("live-without-server"))
    traced = live_trace(
        settings.subject, settings.nats, settings.mapping, settings.account, settings.cluster
    )

    def show() -> None:
        where = f" in cluster {traced.cluster}" if traced.cluster else ""
        got = (
            f"it came to {shown(traced.reserved)}, and nats-server may have acted on it"
            if traced.reserved
            else "nobody got it"
        )
        print_line(f"{shown(traced.subject)} traced by {traced.server}{where}; {got}")
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
        print_line(unseen_line(_UNTRACED))
        if traced.is_equal:
            print_line("equal")
        elif any(hop.verdict == "differs" for hop in traced.hops):
            print_line("the servers differ from the prediction")
        else:
            print_line("nothing to compare: give the mappings that should be in force (--mapping)")

    print_result(asked, traced, show)
    end(is_fine=traced.is_equal)
