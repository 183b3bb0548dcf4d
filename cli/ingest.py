"""`nats-transform ingest`: messages of a stream or a dump into the table `messages`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cli.options import (
    debug_option,
    json_option,
    run_id_option,
    server_options,
    settings,
    spark_options,
    stream_option,
    warehouse_options,
)
from cli.output import print_counts, print_json, print_line, progress, quiet_work

if TYPE_CHECKING:
    from jobs.session import Spark

_COLUMNS = (
    "subject_column",
    "seq_column",
    "time_column",
    "cluster_column",
    "headers_column",
    "data_column",
    "data_encoding",
    "first_seq",
)
"""What the options say of a dump."""


@click.command(
    "ingest",
    short_help="Archive the messages of a stream or a dump.",
    epilog="Exit codes: 0 everything wanted is archived; 2 it is not, the line on stderr says why.",
)
@stream_option("The name of the stream, here and on the server.")
@click.option("--from-stream", metavar="NAME", help="Its name on the server, if it is another.")
@server_options
@click.option("--backup", metavar="DIR", help="A folder that `nats stream backup` wrote.")
@click.option("--parquet", metavar="PATH", help="A Parquet file, folder or pattern.")
@click.option("--jsonl", metavar="PATH", help="A JSON lines file, folder or pattern.")
@click.option("--since", metavar="WHEN", help="First sequence, or first moment (ISO 8601, UTC).")
@click.option("--until", metavar="WHEN", help="Last sequence, or the moment to stop before.")
@click.option("--subject", metavar="FILTER", help="Only these subjects of a stream.")
@click.option("--cluster", metavar="NAME", help="The cluster that the messages were published in.")
@click.option(
    "--cluster-header", metavar="NAME", help="A header that names it, message by message."
)
@click.option("--subject-column", metavar="NAME", help="Column of a dump that has the subject.")
@click.option("--seq-column", metavar="NAME", help="The sequence; else the file's order counts.")
@click.option("--time-column", metavar="NAME", help="The time: timestamp, ISO 8601 or epoch.")
@click.option("--cluster-column", metavar="NAME", help="The cluster.")
@click.option("--headers-column", metavar="NAME", help="The headers.")
@click.option("--data-column", metavar="NAME", help="The payload.")
@click.option("--data-encoding", type=click.Choice(["text", "base64"]), help="How it is written.")
@click.option("--first-seq", type=int, metavar="N", help="Where numbering in file order starts.")
@run_id_option
@warehouse_options
@spark_options
@json_option("Print one JSON document: stream, messages, first_seq, last_seq, gaps, bytes, ...")
@debug_option
def command(
    spark: Spark,
    as_json: bool,
    **given: object,
) -> None:
    """Put the messages of a stream into table `messages`, from a server or from a dump.

    Give one source: --server, --backup, --parquet or --jsonl. A second run adds only what is not
    there yet, and nothing that was archived is changed or removed, whatever the stream's limits
    delete.

    \b
    Examples:
      nats-transform ingest --stream ORDERS --server nats://127.0.0.1:4222
      nats-transform ingest --stream ORDERS --server nats://hub --cluster-header Nats-Cluster
      nats-transform ingest --stream ORDERS --parquet dump/ --subject-column topic
    """
    with quiet_work():
        from jobs.ingest import IngestSettings, ingest
        from jobs.sources.dumps import DumpColumns

        columns = {name.removesuffix("_column"): given.pop(name) for name in _COLUMNS}
        given["columns"] = settings(DumpColumns, columns)
        result = ingest(spark, settings(IngestSettings, given), progress)
    if as_json:
        print_json(result.model_dump(mode="json"))
        return
    print_line(f"{result.stream}: {result.added:,} messages added")
    print_counts({"messages": result.messages, "gaps": result.gaps, "bytes": result.bytes})
    print_line(f"sequences {result.first_seq} to {result.last_seq}")
    print_line(f"digest {result.digest}, snapshot {result.snapshot_id}")
    if result.open_day is not None:
        print_line(f"{result.open_day} is not over: run again for what is still to come on it")
