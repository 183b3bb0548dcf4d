"""The result of an audit: verdicts on shares, on mappings, on clusters, and on the whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from nats_transform.audit.account import Account
from nats_transform.errors import InvalidValue


class Verdict(StrEnum):
    """The verdict on a share, on a mapping or on all of them; the worst is first."""

    OUTSIDE = "outside"
    NOT_RANDOM = "not-random"
    """The order or the keys of the messages are such as chance does not make them."""
    UNDECIDED = "undecided"
    WITHIN = "within"
    NOTHING = "nothing to audit"
    """There are no weights, or no message was counted."""


WORST_FIRST = tuple(Verdict)


def worst_of(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst of several verdicts; a verdict without messages does not count."""
    return min(verdicts, key=WORST_FIRST.index, default=Verdict.NOTHING)


@dataclass(frozen=True, slots=True)
class Criteria:
    """What a split is compared with.

    Attributes:
        tolerance: how many percentage points a share may differ from its weight at most; for a
            small weight it is less, see `tolerance_of`.
        confidence: the probability that all intervals hold the true shares, that no change is found
            where there was none, and that chance is not taken for a fault.
        by: `hour` or `day`. Each hour or day gets a verdict of its own.
        sequential: whether the counts grow and the audit is repeated. `confidence` is then the
            probability that none of all the looks gives a wrong verdict.
    """

    tolerance: float = 1.0
    confidence: float = 0.99
    by: Literal["hour", "day"] = "day"
    sequential: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.tolerance <= 100:
            raise InvalidValue("tolerance-unconfirmable", tolerance=self.tolerance)
        if not 0 < self.confidence < 1:
            raise InvalidValue("confidence-not-between", confidence=self.confidence)

    def tolerance_of(self, share: float) -> float:
        """How much may be added to or taken from an expected share; both are fractions.

        At most half of the share itself and of the rest: so nothing at all is never within a
        weight, and everything never within a smaller one. A share of 0 or 1 has no such limit:
        there it is one of the two.
        """
        halves = (part / 2 for part in (share, 1 - share) if part > 0)
        return min(self.tolerance / 100, *halves)


Kind: TypeAlias = Literal["destination", "remainder", "lost", "unlisted", "unmapped", "uncaptured"]


class _Result(BaseModel):
    model_config = ConfigDict(frozen=True, serialize_by_alias=True, validate_by_name=True)


class DestinationAudit(_Result):
    """The share of one destination, compared with its weight.

    Attributes:
        destination: the destination as the mapping has it; null for messages that are lost or not
            captured.
        end: `destination`; `remainder`, the part that keeps its subject; `lost`; `unlisted`, a
            destination of another cluster; `unmapped`, the source itself, where no destination
            keeps it: the mapping was not in force; `uncaptured`, several ends that the archive
            cannot hold.
        weight: the configured weight, in percent.
        expected: the expected share in percent of the counted messages. It differs from the weight
            if the archive cannot hold every end.
        tolerance: how many percentage points the share may differ from that.
        count: how many messages certainly came to this destination.
        ambiguous: how many further messages may have come to it.
        inferred: whether the count was not observed, but is the number of published messages minus
            those that the archive holds.
        share, low, high: the share and the ends of its interval, in percent. The interval holds
            for every possible destination of the ambiguous messages.
        verdict: the verdict on the interval.
        messages_to_decide: about how many messages would decide it if the share is the expected
            one. If there are so many already, the share is near an edge of the tolerance; the
            number is then what it takes if it stays there. Null if no number would decide it.
        messages_as_seen: about how many messages would decide what is undecided if the share stays
            as it was seen; null if no number would, and for an hour or day with few messages.
    """

    destination: str | None
    end: Kind = "destination"
    weight: float
    expected: float
    tolerance: float
    count: int
    ambiguous: int = 0
    inferred: bool = False
    share: float | None
    low: float
    high: float
    verdict: Verdict
    messages_to_decide: int | None
    messages_as_seen: int | None = None

    @property
    def name(self) -> str:
        """The destination, or what stands for it where there is none."""
        return self.destination or self.end

    @property
    def off(self) -> float:
        """How many points the share is above (or, if negative, below) what is expected."""
        return (self.share or 0.0) - self.expected


class Goodness(_Result):
    """A test whether the split has exactly the expected shares, without a tolerance.

    Attributes:
        method: the name of the test.
        p_value: the p-value of this test alone.
        p_adjusted: the p-value, corrected for the number of tests in the audit (Bonferroni).
    """

    method: str
    p_value: float
    p_adjusted: float


class Split(_Result):
    """How the messages of one mapping and cluster were split over some time.

    Attributes:
        from, to: the time, the end excluded; null if there is no message.
        verdict: outside if one of the destinations is, within if all of them are.
        messages: how many messages came to a known end of the mapping.
        ambiguous: how many further messages may have come to more than one end.
        destinations: the ends of the mapping by ascending weight, as nats-server tries them.
        test: a test of the exact weights; null if the counts are not certain.
        cause: what the account of the messages says against them, other than their shares.
    """

    from_: Annotated[datetime | None, Field(alias="from")]
    to: datetime | None
    verdict: Verdict
    messages: int
    ambiguous: int = 0
    destinations: tuple[DestinationAudit, ...]
    test: Goodness | None = None
    cause: str | None = None

    @property
    def furthest(self) -> DestinationAudit:
        """The share that is furthest off; of two that are as far off, the lighter one: the canary.

        There must be a destination.
        """
        return max(self.destinations, key=lambda end: round(abs(end.off), 6))

    @property
    def distance(self) -> float:
        """How many points the share that is furthest off is off; 0 without destinations."""
        return max((abs(end.off) for end in self.destinations), default=0.0)


class ChanceTest(_Result):
    """A test whether destinations come as if each message had been drawn for by itself.

    Attributes:
        test: `runs`, how often a destination follows itself; `spacing`, how evenly it is spread; or
            `keys`, whether all values of the wildcards have the same split.
        destination: the destination; null for keys.
        messages: how many messages were looked at.
        seen, expected: what is tested, and what it is on average by chance. `runs`: messages right
            after one of the same destination; `spacing`: squared differences between the halves of
            stretches of 256 messages; `keys`: Pearson's chi-square.
        p_value: the p-value of this test alone, or a bound of it.
        p_adjusted: the p-value, corrected for the part of the error that each of these tests has.
        is_random: whether chance makes this often enough.
    """

    test: Literal["runs", "spacing", "keys"]
    destination: str | None
    messages: int
    seen: float
    expected: float
    p_value: float
    p_adjusted: float
    is_random: bool


class Timeline(_Result):
    """Counts by hour.

    Attributes:
        starts: when each hour with messages began.
        counts: for each of these hours, the number of messages of each destination.
    """

    starts: tuple[datetime, ...]
    counts: tuple[tuple[int, ...], ...]


class MappingAudit(Split):
    """The verdict on one mapping in one cluster under one mapping version.

    Attributes:
        from, to: the time, the end excluded; null if there is no message.
        verdict: outside if one of the destinations, buckets or regimes is; else not-random if one
            of the tests of chance says so.
        messages: how many messages came to a known end of the mapping.
        ambiguous: how many further messages may have come to more than one end.
        destinations: the ends of the mapping by ascending weight, as nats-server tries them.
        test: a test of the exact weights; null if the counts are not certain.
        cause: what the account of the messages says against them, other than their shares.
        source: the source of the mapping.
        cluster: the cluster where the messages were published; null if the archive does not say.
        mapping_version: the version that was in force.
        stage: the number of that version among those in force during the audit, from 0 on.
        alarm: the end of the first hour after which the evidence against the weights was too
            strong. Later messages do not take the alarm back. Only sequential audits have one.
        reason: a sentence that explains the verdict.
        buckets: the split of each hour or day; empty if there is only one.
        regimes: the split of each stretch of time in which it did not change; empty if it never
            changed.
        chance: the tests of chance, for what servers have mapped.
        timeline: the counts by hour.
    """

    source: str
    cluster: str | None
    mapping_version: str
    stage: int = 0
    alarm: datetime | None = None
    reason: str
    buckets: tuple[Split, ...] = ()
    regimes: tuple[Split, ...] = ()
    chance: tuple[ChanceTest, ...] = ()
    timeline: Timeline

    def shares(self, split: Split) -> Iterator[dict[str, Any]]:
        """Every share of one of its splits as plain values; it is such a split itself."""
        for share in split.destinations:
            yield {
                "source": self.source,
                "cluster": self.cluster,
                "destination": share.name,
                "weight": share.weight,
                "expected": share.expected,
                "count": share.count,
                "share": share.share,
                "low": share.low,
                "high": share.high,
                "verdict": str(share.verdict),
            }


class ClustersAudit(_Result):
    """All clusters of a mapping together, which can look right where one is wrong, or wrong where
    each has too few messages to show it.

    Attributes:
        source: the source of the mapping.
        mapping_version: the version that was in force.
        total: the split of all clusters together. Its expected shares are the mean over the
            clusters, each weighted by its number of messages.
        same_split: a test whether all clusters have the same split; null if their weights differ
            or the counts are not certain.
        hides: whether a cluster is outside the tolerance although the total is not, or the total
            although no cluster is.
        message: a sentence that says this.
    """

    source: str
    mapping_version: str
    total: Split
    same_split: Goodness | None
    hides: bool
    message: str


@dataclass(frozen=True, slots=True)
class Assessment:
    """The verdicts of an audit.

    Attributes:
        verdict: the worst verdict of the rules; outside if all clusters of a mapping together are.
        rules: the verdict on each mapping in each cluster and period.
        clusters: the verdict on each mapping over all its clusters.
        comparisons: how many intervals share the error that `confidence` allows.
        accounts: where the messages of each of the rules are.
    """

    verdict: Verdict
    rules: tuple[MappingAudit, ...]
    clusters: tuple[ClustersAudit, ...]
    comparisons: int
    accounts: tuple[Account, ...] = ()
