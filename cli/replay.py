"""`nats-transform replay`: transformed messages back into a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cli import options, project
from cli.output import finish, print_counts, print_line, quiet_work
from nats_transform.words import plural

if TYPE_CHECKING:
    from jobs.replay import ReplayResult

ALLOW = ("skips", "limits", "versions", "ingress", "rollup", "ttl")


def _fates(_: object, parameter: object, value: str) -> list[str]:
    fates = [fate.strip() for fate in value.split(",")]
    for fate in fates:
        if fate not in ("mapped", "unmatched"):
            raise click.BadParameter(f"{fate!r} is neither mapped nor unmatched")
    return fates


@project.command(
    "replay",
    short_help="Send transformed messages into a stream.",
    epilog="Exit codes: 0 all messages are in the target; 1 the replay is refused (with --dry-run: "
    "would be), and each reason is printed, or the target removed messages meanwhile; 2 it failed "
    "or was interrupted: run it again to go on.",
)
@options.stream("The stream whose transformed messages are sent.")
@click.option(
    "--to", required=True, metavar="NAME", help="The stream that gets the messages. It must exist."
)
@options.server()
@options.day
@click.option(
    "--fates",
    metavar="FATES",
    callback=_fates,
    default="mapped,unmatched",
    show_default=True,
    help="Which messages to send; `mapped` leaves out those that no mapping matches.",
)
@click.option(
    "--allow",
    multiple=True,
    type=click.Choice(ALLOW),
    help="Send in spite of one of these reasons. skips: some messages cannot be sent and "
    "are left out. limits: the target removes messages. versions: the target has messages of "
    "another mapping version. ingress: the target stores messages under another subject. rollup, "
    "ttl: the archived headers Nats-Rollup or Nats-TTL act again. May be given several times.",
)
@click.option("--rate", type=options.NUMBER, metavar="N", help="Send at most N messages a second.")
@click.option(
    "--dry-run", is_flag=True, help="Check everything that a replay checks, and send nothing."
)
@options.warehouse
@options.json(
    "Print one JSON document: stream, to, sent, already, not_sent, refusals, target_messages, "
    "removed, breaks."
)
def command(as_json: bool, **given: object) -> None:
    """Send the messages of table `transformed_messages` into a stream, each of them once.

    Mapped and unmatched messages are sent in stream order, with their payloads and headers. First
    the command checks whether the server and the target stream accept all of them. If one check
    fails, it sends nothing. If a replay was stopped, run it again: it goes on where it stopped.

    \b
    Examples:
      nats-transform replay --stream ORDERS --to ORDERS_V2 --server nats://127.0.0.1:4222 --dry-run
      nats-transform replay --stream ORDERS --to ORDERS_V2 --server nats://hub --rate 5000
      nats-transform replay --stream KV_A --to KV_B --server nats://hub --allow limits
    """
    if given["server"] is None:
        raise click.UsageError("--server or --context is missing: say where the stream is")
    with quiet_work():
        from jobs.replay import replay
        from jobs.settings.replay import ReplaySettings

        result = replay(options.settings(ReplaySettings, given))
    finish(result, as_json, _print, "refused")


def _print(result: ReplayResult) -> None:
    for refusal in result.refusals:
        print_line(f"refused: {refusal.message}")
    would = "would be " if result.dry_run or result.refusals else ""
    if result.refusals:
        print_line(f"{result.stream} into {result.to}: nothing {would}sent")
    else:
        sent = plural(result.sent, "message")
        print_line(f"{result.stream} into {result.to}: {sent} {would}sent")
    print_counts({"there already": result.already, **result.not_sent})
    print_line(f"{result.to} holds {plural(result.target_messages, 'message')}")
    if result.removed:
        print_line(f"{result.to} removed {plural(result.removed, 'message')} during the replay")
