"""`nats-transform ingest`: messages of a stream or a dump into the table `messages`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.command import job_command
from cli.output import print_counts, print_line, print_report, print_table
from nats_transform.words import plural

if TYPE_CHECKING:
    from jobs.ingest import AccountResult, IngestResult
    from jobs.settings.ingest import IngestSettings


@job_command(
    "ingest",
    exit_codes="0 all messages are archived; 1 all but those that a check refused; 2 the ingest "
    "failed, and the line on stderr says why.",
    json="stream, messages, first_seq, last_seq, gaps, bytes, checks, ...",
    warning=lambda result, settings: _warning(result, settings),
)
def command(result: IngestResult | AccountResult, settings: IngestSettings) -> None:
    """Archive the messages of a stream in the table `messages`, from a server or from a dump.

    Give one source: --server, --backup, --parquet or --jsonl. The rows are read back and checked
    before they become part of the table. A second run adds only new messages. An archived message
    never changes or goes away, even when the stream's limits delete it on the server.

    \b
    Examples:
      nats-transform ingest --stream ORDERS --server nats://127.0.0.1:4222
      nats-transform ingest --stream ORDERS --server nats://hub --cluster-header Nats-Cluster
      nats-transform ingest --stream 'ORDERS,EU_*' --context prod
      nats-transform ingest --stream ORDERS --parquet dump/ --subject-column topic
    """
    from jobs.ingest import IngestResult  # it takes long, and the job has done it

    if isinstance(result, IngestResult):
        _print(result)
        return
    rows = [(s.stream, f"{s.added:,}", f"{s.messages:,}") for s in result.streams]
    rows += [(stream, "failed", "") for stream in result.failed]
    print_table(rows, head=("stream", "added", "messages"), right=[1, 2])


def _print(result: IngestResult) -> None:
    print_line(f"{result.stream}: {plural(result.added, 'message')} added")
    if result.report is not None:
        print_report(result.report)
    if not (result.messages or result.erased):
        if result.refused is None:
            print_line("no message there has the subject, sequence or time that you asked for")
        return
    erased = {"erased": result.erased} if result.erased else {}
    counts = {"messages": result.messages, "gaps": result.gaps, "bytes": result.bytes}
    print_counts(counts | erased)
    print_line(f"sequences {result.first_seq} to {result.last_seq}")
    print_line(f"digest {result.digest}, snapshot {result.snapshot_id}")
    if result.files_read:
        print_line(f"files read: {len(result.files_read)}, not read: {len(result.files_not_read)}")
    for file in result.files_not_read:
        print_line(f"not read: {file}")
    if result.open_day is not None:
        print_line(f"{result.open_day} isn't over: run again later to add its other messages")


def _warning(result: IngestResult | AccountResult, settings: IngestSettings) -> str | None:
    loud = "the messages were NOT checked before they were published (--no-checks)"
    warnings = [loud if settings.no_checks else None, getattr(result, "warning", None)]
    return "; ".join(filter(None, warnings)) or None
