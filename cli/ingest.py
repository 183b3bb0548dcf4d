"""`nats-transform ingest`: messages of a stream or a dump into the table `messages`."""

from __future__ import annotations

from pathlib import Path

import click

from cli.options import (
    debug_option,
    json_option,
    server,
    server_options,
    spark,
    spark_options,
    warehouse,
    warehouse_options,
)
from cli.output import print_counts, print_json, print_line, progress, quiet_work

_COLUMNS = ("subject", "seq", "time", "cluster", "headers", "data")


@click.command(
    "ingest",
    short_help="Archive the messages of a stream or a dump.",
    epilog="Exit codes: 0 everything wanted is archived; 2 it is not, the line on stderr says why.",
)
@click.option(
    "--stream", required=True, metavar="NAME", help="The stream's name, here and on the server."
)
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
@click.option("--run-id", metavar="ID", help="Kept with the snapshot.  [default: a random one]")
@warehouse_options
@spark_options
@json_option("Print one JSON document: stream, messages, first_seq, last_seq, gaps, bytes, ...")
@debug_option
def command(
    connect: dict[str, str | None],
    warehouse_dir: Path | None,
    catalog: str | None,
    master: str | None,
    remote: str | None,
    as_json: bool,
    data_encoding: str | None,
    first_seq: int | None,
    **given: str | None,
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
    columns = {name: given.pop(f"{name}_column") for name in _COLUMNS}
    columns["data_encoding"] = data_encoding
    with quiet_work():
        from jobs.ingest import IngestSettings, ingest

        settings = IngestSettings.model_validate(
            {
                **{name: value for name, value in given.items() if value is not None},
                "server": server(connect),
                "columns": {name: value for name, value in columns.items() if value is not None}
                | ({} if first_seq is None else {"first_seq": first_seq}),
                "warehouse": warehouse(warehouse_dir, catalog),
            }
        )
        result = ingest(spark(master, remote), settings, progress)
    if as_json:
        print_json(result.model_dump(mode="json"))
        return
    print_line(f"{result.stream}: {result.added:,} messages added")
    print_counts({"messages": result.messages, "gaps": result.gaps, "bytes": result.bytes})
    print_line(f"sequences {result.first_seq} to {result.last_seq}")
    print_line(f"digest {result.digest}, snapshot {result.snapshot_id}")
    if result.open_day is not None:
        print_line(f"{result.open_day} is not over: run again for what is still to come on it")
