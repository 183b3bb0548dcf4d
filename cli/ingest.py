"""`nats-transform ingest`: messages of a stream or a dump into the table `messages`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cli import options, project
from cli.output import finish, print_counts, print_line, quiet_work
from nats_transform.words import plural

if TYPE_CHECKING:
    from jobs.ingest import IngestResult
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
"""The options that describe a dump."""


@project.command(
    "ingest",
    short_help="Archive the messages of a stream or a dump.",
    epilog="Exit codes: 0 all the messages are archived; 2 they are not, and the line on stderr "
    "says why.",
)
@options.stream("The name that the stream has in the table, and on the server.")
@click.option(
    "--from-stream",
    metavar="NAME",
    help="The name of the stream on the server.  [default: the name that --stream gives]",
)
@options.server(instead_of=("backup", "parquet", "jsonl"))
@click.option("--backup", metavar="DIR", help="A folder that `nats stream backup` wrote.")
@click.option("--parquet", metavar="PATH", help="A Parquet file, folder or pattern.")
@click.option("--jsonl", metavar="PATH", help="A JSON lines file, folder or pattern.")
@click.option(
    "--since",
    metavar="WHEN",
    help="Archive messages from this sequence on, or from this time on (ISO 8601, UTC).",
)
@click.option(
    "--until",
    metavar="WHEN",
    help="Archive messages up to this sequence, or before this time (ISO 8601, UTC).",
)
@click.option(
    "--subject",
    metavar="FILTER",
    help="Archive only messages whose subject matches; not for a dump.",
)
@click.option("--cluster", metavar="NAME", help="The cluster that the messages were published in.")
@click.option(
    "--cluster-header",
    metavar="NAME",
    help="The header of a message that names the cluster it was published in.",
)
@click.option("--subject-column", metavar="NAME", help="The column of a dump with the subject.")
@click.option(
    "--seq-column",
    metavar="NAME",
    help="The column of a dump with the sequence. Without one, messages are numbered in the order "
    "of the files.",
)
@click.option(
    "--time-column",
    metavar="NAME",
    help="The column of a dump with the time: a timestamp, ISO 8601 text or an epoch.",
)
@click.option("--cluster-column", metavar="NAME", help="The column of a dump with the cluster.")
@click.option("--headers-column", metavar="NAME", help="The column of a dump with the headers.")
@click.option("--data-column", metavar="NAME", help="The column of a dump with the payload.")
@click.option(
    "--data-encoding",
    type=click.Choice(["text", "base64"]),
    help="How a dump writes the payload.  [default: text]",
)
@click.option(
    "--first-seq",
    type=int,
    metavar="N",
    help="The first number, where messages are numbered in the order of the files.  [default: 1]",
)
@options.run_id
@options.warehouse
@options.spark
@options.json("Print one JSON document: stream, messages, first_seq, last_seq, gaps, bytes, ...")
def command(spark: Spark, as_json: bool, **given: object) -> None:
    """Archive the messages of a stream in the table `messages`, from a server or from a dump.

    Give one source: --server, --backup, --parquet or --jsonl. A second run adds only messages that
    the table does not have yet. An archived message is never changed or removed, also when the
    limits of the stream delete it on the server.

    \b
    Examples:
      nats-transform ingest --stream ORDERS --server nats://127.0.0.1:4222
      nats-transform ingest --stream ORDERS --server nats://hub --cluster-header Nats-Cluster
      nats-transform ingest --stream ORDERS --parquet dump/ --subject-column topic
    """
    with quiet_work():
        from jobs.ingest import ingest
        from jobs.settings.ingest import DumpColumns, IngestSettings

        columns = {name.removesuffix("_column"): given.pop(name) for name in _COLUMNS}
        given["columns"] = options.settings(DumpColumns, columns)
        result = ingest(spark, options.settings(IngestSettings, given))
    finish(result, as_json, _print)


def _print(result: IngestResult) -> None:
    print_line(f"{result.stream}: {plural(result.added, 'message')} added")
    if not result.messages:
        print_line("no message there has the subject, the sequence or the time that was asked for")
        return
    print_counts({"messages": result.messages, "gaps": result.gaps, "bytes": result.bytes})
    print_line(f"sequences {result.first_seq} to {result.last_seq}")
    print_line(f"digest {result.digest}, snapshot {result.snapshot_id}")
    if result.files_read:
        print_line(f"files read: {len(result.files_read)}, not read: {len(result.files_not_read)}")
    for file in result.files_not_read:
        print_line(f"not read: {file}")
    if result.open_day is not None:
        print_line(f"{result.open_day} is not over: run again to add the messages still to come")
