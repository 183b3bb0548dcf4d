"""`nats-transform verify-table`: whether the published rows of a stream are as they should be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.command import job_command
from cli.output import print_line, print_report
from nats_transform.mappings.unseen import unseen_line
from nats_transform.words import plural

if TYPE_CHECKING:
    from jobs.settings.transform import VerifyTableSettings
    from jobs.verify_table import VerifyTableResult


@job_command(
    "verify-table",
    exit_codes="0 everything holds; 1 something doesn't, see --fail-on; 2 the rows cannot be "
    "read, or their mappings aren't recorded.",
    json="stream, holds, tables, gone, not_transformed.",
)
def command(result: VerifyTableResult, settings: VerifyTableSettings) -> None:
    """Check the published rows of `messages` and `transformed_messages`.

    These are the checks that `transform` runs before it publishes: is every message there once and
    unchanged, did the named mappings make the rows, are subjects legal, and shares and partitions
    right? The mappings come from the warehouse's records.

    \b
    Examples:
      nats-transform verify-table --stream ORDERS
      nats-transform verify-table --stream ORDERS --day 2026-11-01..2026-11-30 --json
    """
    for verified in result.tables:
        days = plural(len(verified.days), "day")
        version = verified.mapping_version
        under = "" if version is None else f", mapping version {version}"
        print_line(f"{verified.table}: {plural(verified.messages, 'message')} of {days}{under}")
        for path in verified.changed_files:
            print_line(f"changed after being published: {path}; restore it from a copy")
        if verified.not_looked_at:
            print_line(unseen_line(verified.not_looked_at))
        print_report(verified.report)
    if result.erased:
        print_line(f"erased: {plural(result.erased, 'message')}")
    if result.is_erasing:
        print_line(
            "an erasure works, or was stopped: finish it with "
            f"`nats-transform erase --stream {result.stream} --yes`"
        )
    if result.gone:
        days = ", ".join(map(str, result.gone))
        print_line(f"ingested, but gone: {days}; restore a copy, or ingest the stream anew")
    if result.not_transformed:
        days = ", ".join(map(str, result.not_transformed))
        print_line(f"not transformed, so nobody checked these days: {days}")
