"""`nats-transform maintain`: old states of the tables and unused files are removed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from cli import options, project
from cli.output import finish, print_line, quiet_work
from nats_transform.words import plural

if TYPE_CHECKING:
    from jobs.maintain import Removed
    from jobs.settings.warehouse import Warehouse


@project.command(
    "maintain",
    short_help="Remove old snapshots of the tables, and unneeded files.",
    epilog="Exit codes: 0 everything was removed; 2 it was not, and the line on stderr says why.",
)
@click.option(
    "--retention",
    type=click.FloatRange(min=0),
    default=7.0,
    show_default=True,
    metavar="DAYS",
    help="For how many days a snapshot of a table can still be read after it was replaced.",
)
@click.option(
    "--remove-stream",
    metavar="NAME",
    help="Remove this stream from all tables, and do nothing else.",
)
@options.warehouse
@options.json(
    "Print one JSON document: for each table snapshots, files, bytes, snapshots_left, young, "
    "young_until."
)
def command(
    retention: float, remove_stream: str | None, warehouse: Warehouse, as_json: bool
) -> None:
    """Remove old snapshots of the tables, and files that stopped jobs left behind.

    The rows that the tables have now do not change, except with --remove-stream. This command may
    run beside every other command: it keeps files younger than a day that no table has yet, because
    a running job may be about to publish them.

    \b
    Examples:
      nats-transform maintain
      nats-transform maintain --retention 30 --warehouse /srv/archive
      nats-transform maintain --remove-stream ORDERS
    """
    with quiet_work():
        from jobs import maintain as job
        from jobs.settings.maintain import MaintenanceSettings

        if remove_stream is not None:
            rows = job.remove_stream(warehouse, remove_stream)
        else:
            kept = timedelta(days=retention)
            removed = job.maintain(MaintenanceSettings(warehouse=warehouse, retention=kept))
    if remove_stream is None:
        finish(removed, as_json, _print)
        return

    def show(rows: Mapping[str, int]) -> None:
        for name, count in rows.items():
            print_line(f"{name}: {plural(count, 'row')} of stream {remove_stream} removed")

    finish(rows, as_json, show)


def _print(removed: Mapping[str, Removed]) -> None:
    for name, what in removed.items():
        print_line(
            f"{name}: {plural(what.snapshots, 'snapshot')} and {plural(what.files, 'file')} "
            f"({plural(what.bytes, 'byte')}) removed, "
            f"{plural(what.snapshots_left, 'snapshot')} left"
        )
        if what.young_until is not None:
            print_line(
                f"  {what.young:,} more files are in no snapshot, but files so young may be those "
                f"of a running job: run this again after {what.young_until:%Y-%m-%d %H:%M} UTC"
            )
