"""The suites of expectations, one for each table.

An expectation that blocks keeps the table as it was: what is downstream must not be made from rows
that break it. Another one warns.
"""

from __future__ import annotations

from collections.abc import Sequence

from expectations import aggregates
from expectations.determinism import every_outcome, scalar_replay
from expectations.expectation import Expectation, Suite
from expectations.measures.census import measure_census
from expectations.measures.messages import measure_messages
from expectations.measures.partitions import partitioned_ends
from expectations.measures.transformed import MeasureTransformed
from expectations.partitions import keys_stay, numbers_in_range, partitions_balanced
from expectations.weights import weights_hold
from nats_transform import AccountMappings
from nats_transform.audit import is_audited
from nats_transform.coverage import Range
from nats_transform.digest import Digest


def messages_suite(ingested: Digest | None, explained: Sequence[Range] = ()) -> Suite:
    """The suite of `messages`: what an ingest must have left for any day.

    Args:
        ingested: the digest of these messages, as the ingest counted them; None if nobody knows.
        explained: sequences that may be missing.
    """
    expectations = (
        *([] if ingested is None else [aggregates.as_ingested(ingested)]),
        aggregates.DATED,
        aggregates.NO_SEQUENCE_TWICE,
        aggregates.no_unexplained_gap(explained),
        aggregates.ARCHIVED_LEGAL,
    )
    return Suite("messages", measure_messages, expectations)


def census_suite(messages: int, payload_bytes: int, digest: Digest) -> Suite:
    """The suite of `subject_census`: what a count of messages must have left.

    Args:
        messages: how many messages there are.
        payload_bytes: the size of their payloads, as the job counted it.
        digest: the digest of the rows that the job made.
    """
    counted = aggregates.counted(messages, payload_bytes, digest)
    return Suite("subject_census", measure_census, (counted, aggregates.COUNTS_POSSIBLE))


def transformed_messages_suite(
    mappings: AccountMappings,
    *,
    archive: Digest | None,
    messages: int = 0,
    seed: int = 0,
    version: str | None = None,
    before: str | None = None,
    tolerance: float = 1.0,
    confidence: float = 0.99,
    run_id: str = "",
) -> Suite:
    """The suite of `transformed_messages`: what a transform must have left for any day.

    Args:
        mappings: the mappings that the rows were written with.
        archive: the digest of the messages of these days, as the ingest counted them; None if
            nobody knows.
        messages: about how many there are, if nobody knows the digest.
        seed: the seed that the rows were written with.
        version: the mapping version they should name.
        before: the digest that an earlier run over the same messages, mappings and seed published.
        tolerance: how many percentage points a share may differ from its weight.
        confidence: the probability, 0 to 1, that all intervals of shares are right together.
        run_id: decides which messages are replayed.
    """
    expectations: list[Expectation] = []
    if archive is not None:
        expectations += [aggregates.conserved(archive.rows), aggregates.untouched(archive)]
    expectations += [aggregates.TRANSFORMED_DATED, aggregates.FATES_COHERENT]
    if version is not None:
        expectations.append(aggregates.one_version(version))
    if before is not None:
        expectations.append(aggregates.same_digest(before))
    expectations += [
        every_outcome(mappings, seed),
        scalar_replay(mappings, seed),
        aggregates.MAPPED_LEGAL,
    ]
    if any(is_audited(mapping) for mapping in mappings.mappings):
        expectations.append(weights_hold(mappings, tolerance, confidence))
    if partitioned_ends(mappings):
        expectations += [numbers_in_range(mappings), keys_stay(), partitions_balanced(mappings)]
    rows = messages if archive is None else archive.rows
    measure = MeasureTransformed(mappings, rows, seed=seed, version=version, run_id=run_id)
    return Suite("transformed_messages", measure, tuple(expectations), mappings, seed)
