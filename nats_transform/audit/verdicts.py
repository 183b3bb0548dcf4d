"""The verdicts of an audit on shares, mappings and clusters, and on all of them together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field


class Verdict(StrEnum):
    """The verdict on a share, on a mapping or on all of them."""

    WITHIN = "within"
    OUTSIDE = "outside"
    UNDECIDED = "undecided"
    NOTHING = "nothing to audit"
    """No weights, or no message."""


def worst_of(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst of several verdicts; a verdict without messages does not count."""
    told = set(verdicts)
    for verdict in (Verdict.OUTSIDE, Verdict.UNDECIDED, Verdict.WITHIN):
        if verdict in told:
            return verdict
    return Verdict.NOTHING


@dataclass(frozen=True, slots=True)
class Criteria:
    """What a split is compared with.

    Attributes:
        tolerance: how many percentage points a share may differ from its weight.
        confidence: that none of the intervals misses, and no change is seen where none was.
        by: `hour` or `day`: each of them gets a verdict of its own.
        sequential: the counts grow and are looked at again and again; `confidence` is then that
            no look of all ever gives a wrong verdict.
    """

    tolerance: float = 1.0
    confidence: float = 0.99
    by: Literal["hour", "day"] = "day"
    sequential: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.tolerance <= 100:
            raise ValueError(
                f"a tolerance of {self.tolerance:g} can never be shown to hold: "
                "give percentage points above 0 and up to 100"
            )
        if not 0 < self.confidence < 1:
            raise ValueError(
                f"a confidence of {self.confidence:g} is not between 0 and 1: give 0.99, say"
            )


Kind: TypeAlias = Literal["destination", "remainder", "lost", "unlisted", "uncaptured"]


class _Result(BaseModel):
    model_config = ConfigDict(frozen=True, serialize_by_alias=True, validate_by_name=True)


class DestinationAudit(_Result):
    """The share of one destination, compared with its weight.

    Attributes:
        destination: as it is configured; null for messages that are lost or not captured.
        end: `destination`; `remainder`, the part that keeps its subject; `lost`; `unlisted`, a
            destination of another cluster; `uncaptured`, several ends that the archive cannot hold.
        weight: the weight that is configured, in percent.
        expected: percent of the messages counted; differs from the weight where the archive cannot
            hold every end.
        count: messages that certainly came to this destination.
        ambiguous: further messages of which that is not certain.
        inferred: the count is what the source archive has more than the observed one.
        share, low, high: percent; the interval holds whatever the ambiguous messages are.
        verdict: the verdict on the interval.
        messages_to_decide: how many messages would decide it; null if no number would.
    """

    destination: str | None
    end: Kind = "destination"
    weight: float
    expected: float
    count: int
    ambiguous: int = 0
    inferred: bool = False
    share: float | None
    low: float
    high: float
    verdict: Verdict
    messages_to_decide: int | None


class Goodness(_Result):
    """A test of exactly these weights, without tolerance.

    Attributes:
        method: the name of the test.
        p_value: the p-value of this test alone.
        p_adjusted: the same, corrected for the number of tests in the audit (Bonferroni).
    """

    method: str
    p_value: float
    p_adjusted: float


class Split(_Result):
    """How the messages of one mapping and cluster were split over some time.

    Attributes:
        from, to: the time, the end excluded; null where there is no message.
        verdict: outside if one of the destinations is, within if all of them are.
        messages: how many messages came to a known end of the mapping.
        ambiguous: further messages of which that is not certain.
        destinations: those of the mapping by ascending weight, as nats-server tries them.
        test: a test of the exact weights; null where the counts are not certain.
    """

    from_: Annotated[datetime | None, Field(alias="from")]
    to: datetime | None
    verdict: Verdict
    messages: int
    ambiguous: int = 0
    destinations: tuple[DestinationAudit, ...]
    test: Goodness | None = None


class Timeline(_Result):
    """Counts by hour.

    Attributes:
        starts: when each hour with messages began.
        counts: for each hour, one for each destination of the mapping.
    """

    starts: tuple[datetime, ...]
    counts: tuple[tuple[int, ...], ...]


class MappingAudit(Split):
    """The verdict on one mapping in one cluster under one mapping version.

    Attributes:
        from, to: the time, the end excluded; null where there is no message.
        verdict: outside if one of the destinations, buckets or regimes is.
        messages: how many messages came to a known end of the mapping.
        ambiguous: further messages of which that is not certain.
        destinations: those of the mapping by ascending weight, as nats-server tries them.
        test: a test of the exact weights; null where the counts are not certain.
        source: the source of the mapping.
        cluster: where the messages were published; null if the archive does not say.
        mapping_version: the version that was in force.
        stage: which of the mapping versions in force, from 0 on.
        alarm: sequential audits only: the end of the hour after which the evidence against the
            weights was too strong; it stays, whatever comes after it.
        reason: the verdict in a few words.
        buckets: the same by hour or day; empty if there is only one.
        regimes: the same for each stretch of time with one split; empty if it never changed.
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
    timeline: Timeline


class ClustersAudit(_Result):
    """One mapping over all clusters: whether a total that looks right hides clusters that differ.

    Attributes:
        source: the source of the mapping.
        mapping_version: the version that was in force.
        total: the split of all clusters together, expected as their messages weigh.
        same_split: p-value that clusters with the same weights share one split; null where the
            clusters have weights of their own.
        hides: the total is within the tolerance and a cluster is outside.
        message: the same in a sentence.
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
        comparisons: how many intervals and changes share the error that `confidence` allows.
    """

    verdict: Verdict
    rules: tuple[MappingAudit, ...]
    clusters: tuple[ClustersAudit, ...]
    comparisons: int
