"""`nats-transform replay`: transformed messages back into a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.command import job_command
from cli.output import print_counts, print_line
from nats_transform.words import plural

if TYPE_CHECKING:
    from jobs.replay import ReplayResult
    from jobs.settings.replay import ReplaySettings


@job_command(
    "replay",
    exit_codes="0 all messages are in the target; 1 the replay is refused (with --dry-run: would "
    "be), for the reasons printed, or the target removed messages meanwhile; 2 it "
    "failed or was interrupted: run it again to resume.",
    json="stream, to, sent, already, not_sent, schedules, acting, rewritten, refusals, "
    "target_messages, removed, breaks.",
)
def command(result: ReplayResult, settings: ReplaySettings) -> None:
    """Send the messages of table `transformed_messages` into a stream, each exactly once.

    Mapped and unmatched messages are sent in stream order, with their payloads and headers. First
    the command checks that the server and the target stream accept all of them. If a check fails,
    it sends nothing. If a replay was stopped, run it again to continue.

    \b
    Examples:
      nats-transform replay --stream ORDERS --to ORDERS_V2 --server nats://127.0.0.1:4222 --dry-run
      nats-transform replay --stream ORDERS --to ORDERS_V2 --server nats://hub --rate 5000
      nats-transform replay --stream KV_A --to KV_B --server nats://hub --allow limits
    """
    for refusal in result.refusals:
        print_line(f"refused: {refusal.message}")
    would = "would be " if result.dry_run or result.refusals else ""
    if result.refusals:
        print_line(f"{result.stream} into {result.to}: nothing {would}sent")
    else:
        sent = plural(result.sent, "message")
        print_line(f"{result.stream} into {result.to}: {sent} {would}sent")
    print_counts({"there already": result.already, **result.not_sent})
    for name, count in result.rewritten.items():
        print_line(f"{name} {would}rewritten in {plural(count, 'message')}")
    if result.schedules:
        print_counts({"schedules": result.schedules, "of them act": result.acting})
    print_line(f"{result.to} holds {plural(result.target_messages, 'message')}")
    if result.removed:
        print_line(f"{result.to} removed {plural(result.removed, 'message')} during the replay")
