"""`nats-transform transform`: archived messages under a mapping."""

from __future__ import annotations

from pathlib import Path

import click

from cli.options import (
    account_option,
    day_option,
    days,
    debug_option,
    json_option,
    spark,
    spark_options,
    warehouse,
    warehouse_options,
)
from cli.output import print_counts, print_json, print_line, quiet_work


@click.command(
    "transform",
    short_help="Rewrite archived messages under a mapping.",
    epilog="Exit codes: 0 published; 2 nothing was published, the line on stderr says why.",
)
@click.option("--stream", required=True, metavar="NAME", help="Whose messages.")
@click.option(
    "--mapping",
    required=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Mappings: a server configuration, an account JWT, JSON or YAML.",
)
@account_option
@day_option
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="Decides every draw: the same seed gives the same rows.",
)
@click.option("--run-id", metavar="ID", help="Kept with the snapshot.  [default: a random one]")
@warehouse_options
@spark_options
@json_option("Print one JSON document: stream, days, messages, fates, mapping_version, digest, ...")
@debug_option
def command(
    stream: str,
    mapping: Path,
    account: str,
    day: str | None,
    seed: int,
    run_id: str | None,
    warehouse_dir: Path | None,
    catalog: str | None,
    master: str | None,
    remote: str | None,
    as_json: bool,
) -> None:
    """Rewrite the messages of a stream in table `messages` as the mappings make them.

    The result is in table `transformed_messages`: each message with its new subject, its fate
    (mapped, unmatched, lost, filtered or invalid), the mapping that made it and the draw. A day is
    replaced as a whole, in one commit: readers see the old day or the new one.

    \b
    Examples:
      nats-transform transform --stream ORDERS --mapping server.conf
      nats-transform transform --stream ORDERS --mapping server.conf --day 2026-11-01..2026-11-30
    """
    _check_mapping(mapping, account)
    with quiet_work():
        from jobs.transform import TransformSettings, transform

        settings = TransformSettings(
            stream=stream,
            mapping=mapping,
            account=account,
            **days(day),
            seed=seed,
            run_id=run_id,
            warehouse=warehouse(warehouse_dir, catalog),
        )
        result = transform(spark(master, remote), settings)
    if as_json:
        print_json(result.as_json())
        return
    number = len(result.days)
    print_line(
        f"{result.stream}: {result.messages:,} messages of {number} day{'s' if number != 1 else ''}"
    )
    print_counts(result.fates)
    print_line(f"mapping version {result.mapping_version}, seed {result.seed}")
    print_line(f"digest {result.digest}, snapshot {result.snapshot_id}")


def _check_mapping(mapping: Path, account: str) -> None:
    """Find a mistake in the mapping file before anything slow is imported or started."""
    from nats_transform.config import load_mappings

    load_mappings(mapping, account)
