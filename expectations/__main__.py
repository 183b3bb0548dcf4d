"""Checks of Parquet files with the rows of our tables, without Dagster and without a catalog.

    python -m expectations messages FILE... --to FOLDER
    python -m expectations transformed FILE... --mapping FILE --to FOLDER

It runs under spark-submit too. Exit code 0 if nothing blocks, 1 if something does, 2 if it could
not be checked.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import NoReturn

import click
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from expectations.suites import Reference
from expectations.validation import Report, validate_messages, validate_transformed_messages
from nats_transform import NatsTransformError
from nats_transform.config import load_mappings, mapping_version

_FILES = click.argument("files", nargs=-1, required=True, metavar="FILE...")
_TO = click.option(
    "--to",
    "folder",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder that keeps results and Data Docs.",
)
_MASTER = click.option("--master", help="Spark master; what spark-submit says by default.")


@click.group()
def main() -> None:
    """Check Parquet files that hold rows of our tables; print the report as JSON."""


@main.command()
@_FILES
@_TO
@_MASTER
def messages(files: tuple[str, ...], folder: Path, master: str | None) -> None:
    """Check rows of the table messages: whole days of a stream."""
    try:
        report = validate_messages(_read(files, master), folder, name=_name(files))
    except (NatsTransformError, PySparkException, OSError) as error:
        _stop(error)
    _finish(report)


@main.command()
@_FILES
@click.option(
    "--mapping", required=True, type=click.Path(path_type=Path), help="The mappings' file."
)
@click.option("--account", default="$G", show_default=True, help="Whose mappings in the file.")
@click.option("--seed", default=0, show_default=True, help="That decided every draw.")
@click.option("--messages", "expected", type=int, help="How many there should be.")
@click.option("--tolerance", default=1.0, show_default=True, help="Points off a weight.")
@click.option("--confidence", default=0.99, show_default=True, help="Of verdicts on weights.")
@_TO
@_MASTER
def transformed(
    files: tuple[str, ...],
    mapping: Path,
    account: str,
    seed: int,
    expected: int | None,
    tolerance: float,
    confidence: float,
    folder: Path,
    master: str | None,
) -> None:
    """Check rows of the table transformed_messages against the mappings that made them."""
    try:
        mappings = load_mappings(mapping, account)
        rows = _read(files, master)
        report = validate_transformed_messages(
            rows,
            mappings,
            folder,
            name=_name(files),
            # Without a count to hold them against, the rows themselves: of Parquet files it is
            # read from the footers.
            archive=Reference(rows.count() if expected is None else expected),
            seed=seed,
            version=mapping_version(mappings, seed),
            tolerance=tolerance,
            confidence=confidence,
        )
    except (NatsTransformError, PySparkException, OSError) as error:
        _stop(error)
    _finish(report)


def _read(files: tuple[str, ...], master: str | None) -> DataFrame:
    builder = SparkSession.builder.appName("nats-transform checks")
    if master is not None:
        builder = builder.master(master)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark.read.parquet(*files)


def _name(files: tuple[str, ...]) -> str:
    first = Path(files[0]).name
    return first if len(files) == 1 else f"{first} and {len(files) - 1} more"


def _finish(report: Report) -> None:
    click.echo(json.dumps(report.as_json()))
    sys.exit(report.blocks)


def _stop(error: Exception) -> NoReturn:
    text = str(error).strip().splitlines() or [type(error).__name__]
    click.echo(f"error: {text[0]}", err=True)
    sys.exit(2)


if __name__ == "__main__":
    main()
