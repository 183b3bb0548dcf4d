"""`nats-transform transform`: archived messages under a mapping."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli import options, project
from cli.output import end, finish, print_counts, print_line, quiet_work
from nats_transform.words import plural

if TYPE_CHECKING:
    from jobs.session import Spark
    from jobs.transform import TransformResult


@project.command(
    "transform",
    short_help="Rewrite archived messages under a mapping.",
    epilog="Exit codes: 0 the messages were published; 1 the archive has no messages on these "
    "days, and nothing was published; 2 it failed, nothing was published, and the line on "
    "stderr says why.",
)
@options.stream("The stream whose messages are transformed.")
@options.mapping
@options.day
@options.seed("A number that decides every draw: the same seed gives the same rows.")
@options.run_id
@options.warehouse
@options.spark
@options.json(
    "Print one JSON document: stream, days, messages, fates, mapping_version, digest, ..."
)
def command(spark: Spark, as_json: bool, **given: object) -> None:
    """Apply mappings to the archived messages of a stream, and write `transformed_messages`.

    Each message of the table `messages` gets its new subject, its fate (mapped, unmatched, lost,
    filtered or invalid), the mapping that applied and the draw. All days are replaced in one
    commit: readers see the old rows or the new ones, never both.

    \b
    Examples:
      nats-transform transform --stream ORDERS --mapping server.conf
      nats-transform transform --stream ORDERS --mapping server.conf --day 2026-11-01..2026-11-30
    """
    with quiet_work():
        from jobs.settings.transform import TransformSettings
        from jobs.transform import transform

        wanted = options.settings(TransformSettings, given)
        result = transform(spark, wanted)
    finish(result, as_json, _print)
    if not result.days:
        span = " to ".join(str(day) for day in (wanted.first_day, wanted.last_day) if day)
        print_line(
            f"stream {result.stream} has no messages on {span}: nothing was published", err=True
        )
    end(is_fine=bool(result.days))


def _print(result: TransformResult) -> None:
    if result.days:
        days = plural(len(result.days), "day")
        print_line(f"{result.stream}: {plural(result.messages, 'message')} of {days}")
        print_counts(result.fates)
        print_line(f"mapping version {result.mapping_version}, seed {result.seed}")
        print_line(f"digest {result.digest}, snapshot {result.snapshot_id}")
