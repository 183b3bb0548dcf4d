"""The settings of an audit, and its result as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Annotated
from typing import Literal as OneOf

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from jobs.days import StreamDays
from jobs.errors import ArchiveError
from nats_transform.audit import ClustersAudit, Criteria, MappingAudit, Verdict
from nats_transform.errors import printable
from nats_transform.subject import is_valid_filter


class AuditError(ArchiveError):
    """The messages cannot be audited."""


class InForce(BaseModel):
    """A mapping file and the time in which it was in force.

    Attributes:
        since: when it took over.
        until: when it ended, if that is to be checked: the next one must start there.
        mapping: the file.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    since: AwareDatetime
    until: AwareDatetime | None = None
    mapping: Path


class Published(BaseModel):
    """How many messages were published to the source of a mapping, from a counter.

    Attributes:
        source: the source of the mapping.
        messages: the number of messages.
        cluster: the cluster; None if the messages of the archive name no cluster.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    source: str
    messages: int = Field(ge=0)
    cluster: str | None = None


class AuditSettings(StreamDays):
    """The settings of an audit.

    Attributes:
        mapping: the file with the weights.
        account: the account whose mappings are used, if the file has several accounts.
        seed: the number that decides every draw, if the audit applies the mapping.
        cluster: count only messages of this cluster, and messages that name no cluster.
        by: the length of the times that get a verdict of their own.
        tolerance: how many percentage points a share may differ from its weight.
        confidence: the probability that all intervals are right together.
        key: the number of a wildcard of the source. The audit reports how many of its values came
            to more than one destination.
        in_force: mapping files that took over from `mapping`, one after the other. Each is compared
            with the messages of its own time. `git` takes the versions in the git history of
            `mapping`.
        since: count only messages from this time on.
        until: count only messages before this time, which must be over.
        sequential: whether the audit is one of many looks at messages that still grow in number;
            `confidence` then holds for all looks together.
        observed: whether the messages were stored after the mapping. Only then the next four count.
        source_stream: a stream with the same messages as they were published. What was lost or is
            not captured follows from it.
        published: the numbers of published messages from counters, instead of a stream.
        captured: filters of the subjects that the archive holds.
        publishers: filters of subjects that something else publishes to as well.
    """

    mapping: Path
    account: str = "$G"
    seed: int = 0
    cluster: str | None = None
    by: OneOf["hour", "day"] = "day"
    tolerance: float = 1.0
    confidence: float = 0.99
    key: int | None = Field(default=None, ge=1)
    in_force: tuple[InForce, ...] | OneOf["git"] = ()
    since: AwareDatetime | None = None
    until: AwareDatetime | None = None
    sequential: bool = False
    observed: bool = False
    source_stream: str | None = None
    published: tuple[Published, ...] = ()
    captured: tuple[str, ...] = ()
    publishers: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _checked(self) -> AuditSettings:
        _check_turns(() if self.in_force == "git" else self.in_force)
        if self.since and self.until and self.since >= self.until:
            raise ValueError("the time to audit must start before it ends: correct since and until")
        if self.published and (self.in_force or self.since or self.until):
            raise ValueError(
                "counts of what was published say nothing of when: give a source stream "
                "(--source-stream), or audit one mapping over the whole archive"
            )
        if not self.observed and (
            self.source_stream or self.published or self.captured or self.publishers
        ):
            raise ValueError(
                "a source stream, counts of what was published, captured subjects and publishers "
                "need an observed audit (--observed)"
            )
        if self.source_stream and self.published:
            raise ValueError("give a source stream or counts of what was published, not both")
        for filter in (*self.captured, *self.publishers):
            if not is_valid_filter(filter):
                raise ValueError(f"{printable(filter)} is not a valid subject filter")
        _ = self.criteria
        return self

    @property
    def days(self) -> list[date] | None:
        """Every day of the range, or of the window; None for all that the archive has."""
        first, last = self.since, self.ends
        if self.first_day is not None or first is None or last is None:
            return super().days
        there = first.astimezone(UTC).date()
        count = (last.astimezone(UTC) - timedelta(microseconds=1)).date() - there
        return [there + timedelta(days=n) for n in range(count.days + 1)]

    @property
    def ends(self) -> datetime | None:
        """The end of the time that counts: of the window, or of the last mapping."""
        last = self.in_force[-1].until if self.in_force and self.in_force != "git" else None
        return min((end for end in (self.until, last) if end is not None), default=None)

    @property
    def criteria(self) -> Criteria:
        """The criteria that splits are compared with."""
        return Criteria(self.tolerance, self.confidence, self.by, self.sequential)

    @property
    def range(self) -> str:
        """The days in words."""
        if self.first_day is None:
            days = self.days
            return f"{days[0]}..{days[-1]}" if days else "any day"
        if self.last_day in (None, self.first_day):
            return str(self.first_day)
        return f"{self.first_day}..{self.last_day}"


def _check_turns(in_force: Sequence[InForce]) -> None:
    """Refuses mappings in force that overlap or leave a gap."""
    for version in in_force:
        if version.until is not None and version.until <= version.since:
            raise ValueError(
                f"{printable(str(version.mapping))} is in force from {version.since} until "
                f"{version.until}: it must start before it ends"
            )
    for one, other in pairwise(in_force):
        names = f"{printable(str(one.mapping))} and {printable(str(other.mapping))}"
        if other.since <= one.since:
            raise ValueError(
                f"{names} are not in the order of their times ({one.since}, {other.since}): give "
                "the mappings in force oldest first, each with a time of its own"
            )
        if one.until is not None and one.until != other.since:
            what = "overlap" if one.until > other.since else "leave a gap"
            raise ValueError(
                f"{names} {what}: the first is in force until {one.until}, the second from "
                f"{other.since} on; give both the same moment"
            )


class PartitionBalance(BaseModel):
    """How `partition()` of one destination spread the messages.

    Attributes:
        source: the source of the mapping.
        destination: the destination that contains the `partition()`.
        partitions: the number of partitions.
        counts: the number of messages of each partition, from partition 0 on.
        busiest: the messages of the busiest partition, divided by the mean.
    """

    source: str
    destination: str
    partitions: int
    counts: tuple[int, ...]
    busiest: float


class KeyStickiness(BaseModel):
    """How many keys came to more than one destination, as each message has a draw of its own.

    Attributes:
        source: the source of the mapping.
        wildcard: the number of the wildcard of the source that is the key.
        keys: how many different values the wildcard had.
        split: how many of them came to more than one destination.
    """

    source: str
    wildcard: int
    keys: int
    split: int


class MappingInForce(BaseModel):
    """A mapping version, and the time in which it was in force.

    Attributes:
        mapping_version: the version.
        since, until: the time, the end excluded; null without a limit.
        verdict: the worst verdict on its mappings.
        messages: how many messages of its mappings were counted.
    """

    mapping_version: str
    since: datetime | None
    until: datetime | None
    verdict: Verdict = Verdict.NOTHING
    messages: int = 0


class AuditResult(BaseModel):
    """The result of an audit: the JSON of `nats-transform audit --json`.

    Attributes:
        verdict: `outside` if a rule is, else `undecided` if one is, else `within`;
            `nothing to audit` without weights or messages.
        kind: `expected` for a rehearsal by replay, `observed` for what the servers did.
        basis: the table whose messages were counted.
        engine: what counted them: `process` (this process) or `spark`.
        stream: the name of the stream.
        from, to: the time from the first hour with messages to the end of the last one.
        by, tolerance, confidence: the same as in the settings.
        sequential: whether the confidence holds for any number of looks.
        comparisons: how many intervals share the error that the confidence allows.
        mapping_version: the version of the mapping file and the seed; the last one in force.
        in_force: all versions, each with its time.
        messages: the number of messages that were counted.
        fates: the number of messages of each fate. In an observed audit: how many came to one
            certain destination, how many are ambiguous, and how many belong to no mapping with
            weights.
        rules: the verdicts, one for each mapping with weights, cluster and mapping version.
        clusters: the verdict on each mapping over all its clusters.
        partitions: the balance of every `partition()`, if `kind` is `expected`.
        keys: how many keys came to more than one destination, if the settings ask for it.
        notes: sentences with everything else that the reader must know.
        input_snapshot: the snapshot that was read.
        run_id: the id of the run, which is also kept with the snapshot.
        snapshot_id: the new snapshot of `weight_audit`; null if there was nothing to write.
    """

    model_config = ConfigDict(frozen=True, serialize_by_alias=True, validate_by_name=True)

    verdict: Verdict
    kind: OneOf["expected", "observed"]
    basis: str
    engine: str = "process"
    stream: str
    from_: Annotated[datetime | None, Field(alias="from")] = None
    to: datetime | None = None
    by: OneOf["hour", "day"]
    tolerance: float
    confidence: float
    sequential: bool = False
    comparisons: int
    mapping_version: str
    in_force: tuple[MappingInForce, ...] = ()
    messages: int
    fates: dict[str, int]
    rules: tuple[MappingAudit, ...]
    clusters: tuple[ClustersAudit, ...] = ()
    partitions: tuple[PartitionBalance, ...] = ()
    keys: tuple[KeyStickiness, ...] = ()
    notes: tuple[str, ...] = ()
    input_snapshot: int | None = None
    run_id: str
    snapshot_id: int | None = None

    def fails(self, level: str) -> bool:
        """Whether the verdict is at least as bad as `outside`, `undecided` or `nothing`."""
        verdicts = {
            "outside": Verdict.OUTSIDE,
            "undecided": Verdict.UNDECIDED,
            "nothing": Verdict.NOTHING,
        }
        return self.verdict in list(verdicts.values())[: list(verdicts).index(level) + 1]
