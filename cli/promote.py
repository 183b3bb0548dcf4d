"""`nats-transform promote`: a branch becomes what everybody reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.command import job_command
from cli.output import print_line
from nats_transform.words import plural

if TYPE_CHECKING:
    from jobs.promote import PromoteResult
    from jobs.settings.branches import PromoteSettings


@job_command(
    "promote",
    exit_codes="0 the table has the days of the branch; 1 it is as it was, because the archive got "
    "messages that the branch lacks; 2 it failed, and the line on stderr says why.",
    json="branch, days, messages, mapping_versions, snapshot_id, refused.",
)
def command(result: PromoteResult, settings: PromoteSettings) -> None:
    """Let the days of a branch take the place of those that everybody reads, and end the branch.

    These are the days that `transform --branch` wrote. Other days stay as they are. One commit
    replaces them: readers see the old version or the new one, never both.

    \b
    Example:
      nats-transform promote next
    """
    if result.refused is not None:
        return
    for stream, days in result.days.items():
        print_line(f"{stream}: {plural(len(days), 'day')} of branch {result.branch} promoted")
    if not result.days:
        print_line(f"branch {result.branch} had no day of its own, and is gone")
    for version in result.mapping_versions:
        print_line(f"mapping version {version}")
    print_line(f"{plural(result.messages, 'message')}, snapshot {result.snapshot_id}")
