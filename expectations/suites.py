"""The suites of expectations, one for each table; each expectation has its severity.

A critical expectation blocks: what is downstream of the table must not be made from it. A warning
is shown and does not block.
"""

from __future__ import annotations

from collections.abc import Sequence

from expectations.completeness import ExpectNoUnexplainedGap
from expectations.conservation import (
    ExpectArchiveToBeAsIngested,
    ExpectArchiveToBeUntouched,
    ExpectFatesToBeCoherent,
    ExpectMessagesToBeConserved,
    ExpectNoSequenceTwice,
    ExpectOneMappingVersion,
    ExpectRowsToBeDated,
    ExpectTransformedRowsToBeDated,
)
from expectations.counts import ExpectCountsToBePossible, ExpectMessagesToBeCounted
from expectations.determinism import (
    ExpectEveryOutcomeToAgree,
    ExpectScalarReplayToAgree,
    ExpectTheSameDigest,
)
from expectations.expectation import Expectation, Severity, Suite
from expectations.measures.messages import Range
from expectations.partitions import (
    ExpectKeysToKeepTheirPartition,
    ExpectPartitionNumbersInRange,
    ExpectPartitionsToBeBalanced,
    counted_ends,
)
from expectations.subjects import ExpectArchivedSubjectsToBeLegal, ExpectMappedSubjectsToBeLegal
from expectations.weights import ExpectWeightsToHold
from nats_transform import AccountMappings
from nats_transform.audit import is_audited
from nats_transform.digest import Digest

MESSAGES_SUITE = "messages"
TRANSFORMED_SUITE = "transformed_messages"
CENSUS_SUITE = "subject_census"


def messages_suite(ingested: Digest, explained: Sequence[Range] = ()) -> Suite:
    """The suite of `messages`: what an ingest must have left for any day.

    Args:
        ingested: the digest of these messages, as the ingest counted them.
        explained: sequences that may be missing.
    """
    suite: list[Expectation] = [
        ExpectArchiveToBeAsIngested(messages=ingested.rows, digest=str(ingested)),
        ExpectRowsToBeDated(),
        ExpectNoSequenceTwice(),
        ExpectNoUnexplainedGap(explained=tuple(explained)),
        ExpectArchivedSubjectsToBeLegal(severity=Severity.WARNS),
    ]
    return Suite(MESSAGES_SUITE, tuple(suite))


def census_suite(messages: int, payload_bytes: int, digest: Digest) -> Suite:
    """The suite of `subject_census`: what a count of messages must have left.

    Args:
        messages: how many messages there are.
        payload_bytes: the size of their payloads, as the job counted it.
        digest: the digest of the rows that the job made.
    """
    counted = ExpectMessagesToBeCounted(messages=messages, bytes=payload_bytes, digest=str(digest))
    return Suite(CENSUS_SUITE, (counted, ExpectCountsToBePossible()))


def transformed_messages_suite(
    mappings: AccountMappings,
    *,
    archive: Digest,
    seed: int = 0,
    version: str | None = None,
    before: str | None = None,
    tolerance: float = 1.0,
    confidence: float = 0.99,
) -> Suite:
    """The suite of `transformed_messages`: what a transform must have left for any day.

    Args:
        mappings: the mappings that the rows were written with.
        archive: the digest of the messages of these days, as the ingest counted them.
        seed: the seed that the rows were written with.
        version: the mapping version they should name.
        before: the digest that an earlier run over the same messages, mappings and seed published.
        tolerance: how many percentage points a share may differ from its weight.
        confidence: the probability, 0 to 1, that all intervals of shares are right together.
    """
    suite: list[Expectation] = [
        ExpectMessagesToBeConserved(messages=archive.rows),
        ExpectArchiveToBeUntouched(messages=archive.rows, digest=str(archive)),
        ExpectTransformedRowsToBeDated(),
        ExpectFatesToBeCoherent(),
    ]
    if version is not None:
        suite.append(ExpectOneMappingVersion(mapping_version=version))
    if before is not None:
        suite.append(ExpectTheSameDigest(digest=before))
    suite += [
        ExpectEveryOutcomeToAgree(mappings=mappings, seed=seed),
        ExpectScalarReplayToAgree(mappings=mappings, seed=seed),
        ExpectMappedSubjectsToBeLegal(),
    ]
    if any(is_audited(mapping) for mapping in mappings.mappings):
        weights = ExpectWeightsToHold(mappings=mappings, tolerance=tolerance, confidence=confidence)
        suite.append(weights)
    if counted_ends(mappings):
        suite += [
            ExpectPartitionNumbersInRange(mappings=mappings),
            ExpectKeysToKeepTheirPartition(),
            ExpectPartitionsToBeBalanced(mappings=mappings, severity=Severity.WARNS),
        ]
    return Suite(TRANSFORMED_SUITE, tuple(suite), mappings, seed)
