"""The result of an audit, as JSON."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from typing import Literal as OneOf

from pydantic import BaseModel, ConfigDict, Field

from jobs.errors import ArchiveError
from nats_transform.audit import Account, ClustersAudit, MappingAudit, Verdict


class AuditError(ArchiveError):
    """The messages cannot be audited."""


_COLUMNS = {
    "published": "published",
    "attributed": "= attributed",
    "inferred": "+ inferred",
    "ambiguous": "+ ambiguous",
    "unmapped": "+ not mapped",
    "doubled": "+ doubled",
    "missing": "+ missing",
    "unpublished": "- unpublished",
}
_RARE = ("inferred", "unpublished")


class PartitionBalance(BaseModel):
    """How the first `partition()` of one destination spread the messages.

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
        verdict: the worst of its rules: `outside`, `not-random`, `undecided` or `within`;
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
            certain destination, how many are ambiguous, how many kept the source of a mapping that
            no destination keeps, how many repeat an earlier one, and how many belong to no mapping
            with weights.
        accounts: in an observed audit, where the messages of each of the rules are.
        rules: the verdicts, one for each mapping with weights, cluster and mapping version.
        clusters: the verdict on each mapping over all its clusters.
        partitions: the balance of the first `partition()` of each destination, if `kind` is
            `expected`.
        keys: how many keys came to more than one destination, if the settings ask for it.
        notes: sentences with everything else that the reader must know.
        input_snapshot: the snapshot that was read.
        run_id: the id of the run, which is also kept with the snapshot.
        snapshot_id: the new snapshot of `weight_audit`; null if there was nothing to write.
        allow_nothing: the same as in the settings.
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
    accounts: tuple[Account, ...] = ()
    rules: tuple[MappingAudit, ...]
    clusters: tuple[ClustersAudit, ...] = ()
    partitions: tuple[PartitionBalance, ...] = ()
    keys: tuple[KeyStickiness, ...] = ()
    notes: tuple[str, ...] = ()
    input_snapshot: int | None = None
    run_id: str
    snapshot_id: int | None = None
    allow_nothing: bool = False

    @property
    def account_columns(self) -> list[tuple[str, list[int | None]]]:
        """The counts of the accounts by column, as a sum; without rare ones that are all 0."""
        return [
            (label, counts)
            for name, label in _COLUMNS.items()
            for counts in [[getattr(account, name) for account in self.accounts]]
            if any(counts) or name not in _RARE
        ]

    @property
    def silent(self) -> set[str]:
        """The sources of mappings without a message, whichever version was in force."""
        heard = {rule.source for rule in self.rules if rule.verdict is not Verdict.NOTHING}
        return {rule.source for rule in self.rules} - heard

    def fails(self, level: str) -> bool:
        """Whether a verdict is at least as bad as `outside`, `undecided` or `nothing`.

        If no mapping has one, nothing was shown: that fails at each level unless it is allowed.
        """
        if level == "nothing" and self.silent:
            return True
        match self.verdict:
            case Verdict.NOTHING:
                return level == "nothing" or not self.allow_nothing
            case Verdict.UNDECIDED:
                return level != "outside"
            case verdict:
                return verdict in (Verdict.OUTSIDE, Verdict.NOT_RANDOM)
