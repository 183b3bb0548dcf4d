"""`nats-transform census`: the subjects of an archive as a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cli import options
from cli.output import print_json, print_line, quiet_work

if TYPE_CHECKING:
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


def _positions(ctx: click.Context, parameter: click.Parameter, value: str | None) -> list[int]:
    try:
        return [int(part) for part in value.split(",")] if value else []
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is not a list of positions such as 2,3; the first token is 1"
        ) from None


@command.command("export", epilog=_CODES)
@options.stream("The stream whose subjects are exported.")
@click.option(
    "--out", required=True, metavar="FILE", type=options.FILE, help="The Parquet file to write."
)
@click.option(
    "--redact",
    metavar="TOKENS",
    callback=_positions,
    help="Positions of tokens, such as 2,3, that are replaced by hashes. The key is random and is "
    "thrown away. Equal tokens stay equal, so collisions stay exact.",
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
        from jobs.census_export import CensusExportSettings, export_census

        result = export_census(spark, options.settings(CensusExportSettings, given))
    if as_json:
        print_json(result.model_dump(mode="json"))
        return
    print_line(
        f"{result.stream}: {result.messages:,} messages under {result.subjects:,} subjects in "
        f"{result.out}"
    )
    if result.redacted:
        tokens = ", ".join(map(str, result.redacted))
        print_line(f"of these tokens it has hashes: {tokens}")
