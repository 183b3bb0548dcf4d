"""What must hold of `transformed_messages`, which a transform has made of messages."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from expectations import partitions
from expectations.expectation import Expectation, Judgement, Suite, digest_is, no_row
from expectations.measures import Ending, TransformedMeasures, by_day
from expectations.messages import DATED, LEGAL, as_ingested, is_misdated, is_too_long
from expectations.outcomes import OUTCOME, Outcomes, every_outcome
from expectations.weights import weights_hold
from nats_transform import AccountMappings
from nats_transform.audit import is_audited
from nats_transform.audit.partitions import partitioned_ends
from nats_transform.digest import Digest
from nats_transform.kernel.counting import combinations, texts
from nats_transform.kernel.digest import digest_batch
from nats_transform.kernel.messages import columns_of_messages
from nats_transform.kernel.proof import IS_ILLEGAL
from nats_transform.words import plural

KEYED_ROWS = 10_000
"""About how many rows the keys have whose spread over the partitions is judged."""

_ENDING = ("cluster", "fate", "mapping_source", "mapping_destination")
_SHOWN = ("stream", "seq", "subject", "cluster", "day", *OUTCOME)


class MeasureTransformed:
    """Measures rows of `transformed_messages`; it can be sent to a task.

    Args:
        mappings, seed: what the rows were written with.
        messages: about how many there are, which decides how many keys are looked at.
        version: the mapping version that the rows should name; not looked at if None.
    """

    def __init__(
        self, mappings: AccountMappings, messages: int, seed: int = 0, version: str | None = None
    ) -> None:
        self._outcomes, self._version = Outcomes(mappings, seed), version
        states = self._outcomes.proof.states
        self._partitions = partitions.Partitions(mappings, states, max(1, messages // KEYED_ROWS))

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> TransformedMeasures:
        """The measures of some rows, with the columns in the order of the table."""
        measures = TransformedMeasures()
        for day, rows in by_day(batches):
            opinion, is_right, is_of_end = self._outcomes.judge(rows)
            mapped = rows.column("mapped_subject")
            versions = texts(rows.column("mapping_version"))
            is_other = np.array([self._version not in (None, name) for name in versions.values])
            measures.digest += digest_batch(rows)
            measures.count(
                day, rows, columns_of_messages(rows), _SHOWN,
                misdated=is_misdated(rows),
                misversioned=is_other[versions.numbers],
                illegal=(opinion.marks & IS_ILLEGAL > 0) | is_too_long(mapped),
                different=~is_right,
                **self._partitions.count(measures, mapped, opinion, is_right, is_of_end),
            )  # fmt: skip
            endings = (texts(rows.column(name)) for name in _ENDING)
            for ending, count in combinations(*endings):
                measures.endings[Ending(day[1], *ending)] += count
        return measures


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
) -> Suite:
    """The suite of `transformed_messages`: what a transform must have left for any day.

    Args:
        archive: the digest of the messages of these days, as the ingest counted them; None if
            nobody knows.
        messages: about how many there are, if nobody knows the digest.
        version: the mapping version they should name.
        before: the digest that an earlier run over the same messages, mappings and seed published.
        tolerance: how many percentage points a share may differ from its weight.
        confidence: the probability, 0 to 1, that all intervals of shares are right together.
    """
    expectations = [DATED, every_outcome(mappings, seed), _LEGAL_SUBJECTS]
    if archive is not None:
        expectations += [_conserved(archive.rows), as_ingested(archive)]
    if version is not None:
        expectations.append(_one_version(version))
    if before is not None:
        expectations.append(_same_digest(before))
    if any(is_audited(mapping) for mapping in mappings.mappings):
        expectations.append(weights_hold(mappings, tolerance, confidence))
    if partitioned_ends(mappings, partitions.MAX_NUMBERS):
        expectations += [partitions.numbers_in_range(), partitions.keys_stay()]
        expectations.append(partitions.partitions_balanced(mappings))
    rows = messages if archive is None else archive.rows
    measure = MeasureTransformed(mappings, rows, seed, version)
    return Suite("transformed_messages", measure, tuple(expectations), mappings, seed)


_LEGAL_SUBJECTS = no_row(
    "ExpectMappedSubjectsToBeLegal", "subjects", "illegal", f"Every mapped {LEGAL}",
    "nats-server drops a message with an empty token, and closes the connection on a protocol line "
    "above max_control_line (4,096 bytes by default).",
    "mapped to an illegal subject",
)  # fmt: skip


def _conserved(messages: int) -> Expectation:
    """As many rows come out as messages went in."""

    def judge(measures: TransformedMeasures) -> Judgement:
        rows = measures.archive.rows
        fateless = rows - sum(measures.fates_of().values())
        observed = f"{plural(rows, 'message')}, {fateless:,} without a known fate"
        return Judgement(rows == messages and not fateless, observed)

    return Expectation(
        "ExpectMessagesToBeConserved", "conservation",
        f"All {messages:,} messages that went in come out, each with one fate.",
        "Nothing else notices a message that is dropped on the way or written twice.",
        judge, "unaccounted",
    )  # fmt: skip


def _one_version(version: str) -> Expectation:
    return no_row(
        "ExpectOneMappingVersion", "conservation", "misversioned",
        f"Every row names the mapping version {version}.",
        "Rows of two mapping versions cannot be explained by either of them.",
        "of another version",
    )  # fmt: skip


def _same_digest(digest: str) -> Expectation:
    return digest_is(
        "digest", digest, "ExpectTheSameDigest", "determinism", "changed",
        f"The rows have the digest {digest}, like an earlier run over the same input.",
        "The same messages, mappings and seed must give the same rows, however the work is "
        "divided.",
    )  # fmt: skip
