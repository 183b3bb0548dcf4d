"""The result of a dry run, as JSON."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any

from nats_transform.lint.findings import Severity
from nats_transform.mappings.unseen import Unseen
from nats_transform.migration import DryRun

MOST_FLOWS = 200
"""The flows that the JSON has; a picture shows fewer."""


@dataclass(frozen=True, slots=True)
class SimulatedStream:
    """What becomes of the messages that come to a simulated stream.

    Attributes:
        stream: the name of the stream.
        messages: how many messages it holds when the last message of the archive is published.
        discarded: how many of its messages its limits have dropped.
        refused: how many messages it refused because it was full, or they are too large. A stream
            source stops at the first of them; the messages that wait behind it count here too.
        duplicates: how many messages it dropped because it knew their `Nats-Msg-Id`.
        not_followed: the settings and headers that decide what the stream holds and that a
            simulation does not follow. If there are any, all numbers are null.
        keeps_up_with: the streams that drop messages and fill this one. The numbers are right if
            this one reads every message before it is dropped.
    """

    stream: str
    messages: int | None
    discarded: int | None
    refused: int | None
    duplicates: int | None = 0
    not_followed: tuple[str, ...] = ()
    keeps_up_with: tuple[str, ...] = ()

    @property
    def condition(self) -> str:
        """What the numbers depend on, or why there are none; empty if on nothing."""
        if self.not_followed:
            return f"not known: a simulation does not follow {', '.join(self.not_followed)}"
        if self.keeps_up_with:
            return (
                f"if it reads {' and '.join(self.keeps_up_with)} before messages are dropped there"
            )
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRunResult:
    """The result of a dry run, with everything needed to repeat it.

    As JSON, `summary` holds all of this but the lists of `dry_run`: these are beside `summary`, by
    their names. The counts of findings in it are of those as things are.

    Attributes:
        dry_run: the findings, and the numbers behind them.
        stream: the name of the stream.
        days: the days on which the stream has messages.
        candidate, current: the names of the mapping files; null without current mappings.
        candidate_version, current_version: the SHA-256 of the meaning of these files.
        streams, consumers, users: how many of each were compared with the change.
        seed: the seed of the draws if messages were replayed; null if weights counted as shares.
        census_snapshot, input_snapshot: the snapshots of `subject_census` and `messages`.
        run_id: the id of the run.
        simulated: the counts of each simulated stream, if the settings ask for a simulation.
        simulated_snapshot: the new snapshot of `simulated_streams`.
        simulated_seed: the seed of the draws of the simulation.
        streams_from: the server, folder or file that showed the streams; null if none was asked.
        not_looked_at: what the result says nothing about.
        server: the server that counted the messages by subject; null if an archive has them.
        counted: the streams whose messages it counted.
    """

    dry_run: DryRun
    stream: str
    days: tuple[date, ...]
    candidate: str
    current: str | None
    candidate_version: str
    current_version: str
    streams: int
    consumers: int
    users: int
    seed: int | None = None
    census_snapshot: int | None = None
    input_snapshot: int | None = None
    run_id: str
    simulated: tuple[SimulatedStream, ...] = ()
    simulated_snapshot: int | None = None
    simulated_seed: int | None = None
    streams_from: str | None = None
    not_looked_at: tuple[Unseen, ...] = ()
    server: str | None = None
    counted: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The stream, or what stands for all streams of a server."""
        return self.stream or "all streams"

    @property
    def counts(self) -> dict[Severity, int]:
        """The number of findings of each severity."""
        counts = Counter(finding.severity for finding in self.dry_run.findings)
        return {severity: counts[severity] for severity in Severity}

    def fails(self, mildest: str) -> bool:
        """Whether a finding is at least as bad as this severity."""
        return any(f.severity.rank <= Severity(mildest).rank for f in self.dry_run.findings)

    def as_json(self) -> dict[str, Any]:
        """One JSON document: the summary, the findings, and the numbers behind them."""
        summary = asdict(self)
        numbers = summary.pop("dry_run")
        lists = {
            name: numbers.pop(name)
            for name in ("findings", "with_room", "changes", "partitions", "levels")
        }
        flows = numbers.pop("flows")[:MOST_FLOWS]
        reverse = [
            {"source": m.source, "destination": m.destinations[0].subject}
            for m in self.dry_run.reverse
        ]
        del numbers["reverse"], numbers["trees"]
        summary["days"] = [day.isoformat() for day in self.days]
        summary |= numbers | {severity.value: count for severity, count in self.counts.items()}
        return {"summary": summary, **lists, "flows": flows, "reverse": reverse}
