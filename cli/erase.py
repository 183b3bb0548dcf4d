"""`nats-transform erase`: messages leave every table, and nothing brings them back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.command import job_command
from cli.output import print_line
from nats_transform.words import and_more, plural

if TYPE_CHECKING:
    from jobs.erase import EraseResult
    from jobs.settings.erase import EraseSettings

_MOST_SHOWN = 20
"""How many ranges of sequences are shown. `--json` has them all."""


@job_command(
    "erase",
    exit_codes="0 no file of the warehouse has the messages; 1 nothing was erased, because --yes "
    "is missing or no message matches, or files of stopped jobs may still have them; 2 it failed, "
    "and the line on stderr says why.",
    json="stream, messages, days, sequences, tombstones, tables, not_erased, refused.",
)
def command(result: EraseResult, settings: EraseSettings) -> None:
    """Erase messages from all tables, with all branches, old snapshots and files.

    Without --yes, this only shows which messages. A tombstone stays: sequences, how many messages,
    their digest, who, why and when. So checks hold, and an ingest never brings them back.
    Snapshots of other streams in these tables that are not the newest go, too. If a run is stopped,
    the next one finishes it; then no filter is needed.

    \b
    Examples:
      nats-transform erase --stream ORDERS --subject "orders.*.customer-17.>"
      nats-transform erase --stream ORDERS --seq 4711 --reason "ticket 12" --yes
      nats-transform erase --stream ORDERS --header Customer=17 --reason "ticket 12" --yes
    """
    if result.refused and not (result.messages or result.sequences):
        return  # nothing matches, as the line on stderr says
    which = "erased" if settings.yes else "would be erased"
    print_line(f"{result.stream}: {plural(result.messages, 'message')} {which}")
    for day, messages in result.days.items():
        print_line(f"{day}: {plural(messages, 'message')}")
    if ranges := result.sequences.split():
        shown = ", ".join(ranges[:_MOST_SHOWN]) + and_more(len(ranges[_MOST_SHOWN:]))
        print_line(f"sequences {shown}, which no ingest brings back")
    for name, its in result.tables.items():
        rewritten, deleted = plural(its.rewritten, "data file"), plural(its.deleted, "file")
        print_line(f"{name}: {rewritten} rewritten, {deleted} deleted")
    for stone in result.tombstones:
        print_line(f"tombstone {stone.name}: digest {stone.digest}, by {stone.by}: {stone.reason}")
    print_line("look for them yourself, because the warehouse doesn't know about:")
    for place in result.not_erased:
        print_line(place, indent=2)
