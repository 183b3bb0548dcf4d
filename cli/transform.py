"""`nats-transform transform`: archived messages under a mapping."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.command import job_command
from cli.output import print_counts, print_line, print_report
from nats_transform.words import plural

if TYPE_CHECKING:
    from jobs.settings.transform import TransformSettings
    from jobs.transform import TransformResult


@job_command(
    "transform",
    exit_codes="0 the messages are published; 1 nothing is published, because the archive has no "
    "messages on these days or a check refused the new rows; 2 it failed, nothing is "
    "published, and the line on stderr says why.",
    json="stream, days, messages, fates, mapping_version, digest, checks, ...",
    warning=lambda result, settings: _warning(result, settings),
)
def command(result: TransformResult, settings: TransformSettings) -> None:
    """Apply mappings to the archived messages of a stream, and write `transformed_messages`.

    Each message of the table `messages` gets its new subject, its fate (mapped, unmatched, lost,
    filtered or invalid), the mapping that applied and the draw. The new rows are read back and
    checked. All days are replaced in one commit: readers see the old rows or the new ones, never
    both.

    \b
    Examples:
      nats-transform transform --stream ORDERS --mapping server.conf
      nats-transform transform --stream ORDERS --mapping server.conf --day 2026-11-01..2026-11-30
      nats-transform transform --stream ORDERS --mapping next.conf --branch next
    """
    if result.days and result.refused is None:
        days = plural(len(result.days), "day")
        print_line(f"{result.stream}: {plural(result.messages, 'message')} of {days}")
        print_counts(result.fates | ({"erased": result.erased} if result.erased else {}))
        print_line(f"mapping version {result.mapping_version}, seed {result.seed}")
        print_line(f"digest {result.digest}, snapshot {result.snapshot_id}")
    if result.days and result.report is not None:
        print_report(result.report)


def _warning(result: TransformResult, settings: TransformSettings) -> str | None:
    if result.days:
        loud = "the rows were NOT checked before they were published (--no-checks)"
        return loud if settings.no_checks else None
    span = " to ".join(str(day) for day in (settings.first_day, settings.last_day) if day)
    return f"stream {result.stream} has no messages on {span}: nothing was published"
