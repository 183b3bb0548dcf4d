"""`nats-transform maintain`: old states of the tables and unused files are removed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cli.command import job_command
from cli.output import print_line
from nats_transform.words import plural

if TYPE_CHECKING:
    from jobs.maintain import Removed
    from jobs.settings.maintain import MaintenanceSettings


@job_command(
    "maintain",
    exit_codes="0 everything is removed; 2 something isn't, and the line on stderr says why.",
    json="for each table snapshots, files, bytes, snapshots_left, young, young_until.",
)
def command(result: Mapping[str, Removed | int], settings: MaintenanceSettings) -> None:
    """Remove old snapshots of the tables, and files that stopped jobs left behind.

    The tables' current rows don't change, except with --remove-stream. This command may
    run beside every other command: it keeps files younger than a day that no table has yet, because
    a running job may be about to publish them.

    \b
    Examples:
      nats-transform maintain
      nats-transform maintain --retention 30 --warehouse /srv/archive
      nats-transform maintain --remove-stream ORDERS
      nats-transform maintain --remove-branch next
    """
    for name, what in result.items():
        if isinstance(what, int):
            of = f"stream {settings.remove_stream}"
            if settings.remove_branch is not None:
                of = f"branch {settings.remove_branch}"
            print_line(f"{name}: {plural(what, 'row')} of {of} removed")
            continue
        print_line(
            f"{name}: {plural(what.snapshots, 'snapshot')} and {plural(what.files, 'file')} "
            f"({plural(what.bytes, 'byte')}) removed, "
            f"{plural(what.snapshots_left, 'snapshot')} left"
        )
        if what.young_until is not None:
            print_line(
                f"  {what.young:,} more files are in no snapshot, but are so young that a running "
                f"job may need them: run this again after {what.young_until:%Y-%m-%d %H:%M} UTC"
            )
