"""`nats-transform census`: the subjects of an archive as a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cli import options
from cli.output import finish, print_line, quiet_work
from nats_transform.words import plural

if TYPE_CHECKING:
    from jobs.census_export import CensusExportResult
    from jobs.session import Spark


_CODES = "Exit codes: 0 the file is written; 2 it cannot be, and the line on stderr says why."


@click.group("census", short_help="Export the subjects of an archive into a file.", epilog=_CODES)
@options.debug
def command() -> None:
    """Take the subjects of an archive to where neither its warehouse nor Spark is.

    \b
    Examples:
      nats-transform census export --stream ORDERS --out census.parquet
      nats-transform census export --stream ORDERS --out census.parquet --json
    """


@command.command("export", short_help="Write the subjects and their counts.", epilog=_CODES)
@options.stream("The stream whose subjects are exported.")
@options.file("--out", "The Parquet file to write.", required=True)
@options.positions(
    "--redact",
    "The numbers of tokens, such as 2,3, that are replaced by hashes; the first token is 1. The "
    "key is random and is thrown away. Equal tokens stay equal, so collisions stay exact.",
    like="2,3",
    metavar="TOKENS",
)
@options.day
@options.run_id
@options.warehouse
@options.spark
@options.json("Print one JSON document: stream, subjects, rows, messages, bytes, redacted, out.")
@options.debug
def export(spark: Spark, as_json: bool, **given: object) -> None:
    """Write how many messages each subject of a stream had, for `dry-run --census` and `plan`.

    The file has no message. It has the subjects, the clusters, counts, sizes, and the times of the
    first and the last message.

    \b
    Examples:
      nats-transform census export --stream ORDERS --out census.parquet
      nats-transform census export --stream ORDERS --out census.parquet --redact 2,3
    """
    with quiet_work():
        from jobs.census_export import export_census
        from jobs.settings.census import CensusExportSettings

        result = export_census(spark, options.settings(CensusExportSettings, given))
    finish(result, as_json, _print)


def _print(result: CensusExportResult) -> None:
    print_line(
        f"{result.stream}: {plural(result.messages, 'message')} under "
        f"{plural(result.subjects, 'subject')} in {result.out}"
    )
    if result.redacted:
        tokens = ", ".join(map(str, result.redacted))
        print_line(f"of these tokens it has hashes: {tokens}")
