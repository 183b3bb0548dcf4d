"""`nats-transform census`: the subjects of an archive as a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cli.command import job_command
from cli.output import debug, print_line
from nats_transform.words import plural

if TYPE_CHECKING:
    from jobs.census_export import CensusExportResult
    from jobs.settings.census import CensusExportSettings


_CODES = "0 the file is written; 2 it isn't, and the line on stderr says why."


@job_command(
    "census export",
    short_help="Write the subjects and their counts.",
    exit_codes=_CODES,
    json="stream, subjects, rows, messages, bytes, redacted, out.",
)
def export(result: CensusExportResult, settings: CensusExportSettings) -> None:
    """Write how many messages each subject of a stream had, for `dry-run --census` and `plan`.

    The file has no messages, only subjects, clusters, counts, sizes, and the times of the first and
    the last message.

    \b
    Examples:
      nats-transform census export --stream ORDERS --out census.parquet
      nats-transform census export --stream ORDERS --out census.parquet --redact 2,3
    """
    print_line(
        f"{result.stream}: {plural(result.messages, 'message')} under "
        f"{plural(result.subjects, 'subject')} in {result.out}"
    )
    if result.redacted:
        tokens = ", ".join(map(str, result.redacted))
        print_line(f"tokens {tokens} are hashed")


@click.group("census", params=[debug()], epilog=f"Exit codes: {_CODES}", commands=[export])
def command() -> None:
    """Export an archive's subjects, for use without its warehouse or Spark.

    \b
    Examples:
      nats-transform census export --stream ORDERS --out census.parquet
      nats-transform census export --stream ORDERS --out census.parquet --json
    """
