"""What must hold of `subject_census`: that it counts the messages, and nothing impossible."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from expectations.expectation import Expectation, Judgement, Suite, no_row
from expectations.measures import Measures, by_day, flags
from nats_transform.digest import Digest
from nats_transform.words import plural


def measure_census(batches: Iterable[pa.RecordBatch]) -> Measures:
    """The measures of rows of `subject_census`, with the columns in the order of the table."""
    measures = Measures()
    for day, rows in by_day(batches):
        is_counted = pc.and_(pc.greater(rows["messages"], 0), pc.greater_equal(rows["bytes"], 0))
        is_timed = pc.less_equal(rows["first_ts"], rows["last_ts"])
        impossible = ~flags(pc.and_(is_counted, is_timed))
        measures.count(day, rows, rows.schema.names, rows.schema.names, impossible=impossible)
    return measures


def census_suite(messages: int, counted: int, payload_bytes: int, digest: Digest) -> Suite:
    """The suite of `subject_census`: what a count of messages must have left.

    Args:
        counted, payload_bytes: how many the job counted, and the size of their payloads.
        digest: the digest of the rows that say so.
    """

    def judge(measures: Measures) -> Judgement:
        measured = measures.digest
        observed = f"{counted:,} messages in {plural(measured.rows, 'row')} with digest {measured}"
        return Judgement((counted, measured) == (messages, digest), observed)

    adds_up = Expectation(
        "ExpectMessagesToBeCounted", "counts",
        f"{digest.rows:,} rows with the digest {digest} count {messages:,} messages with payloads "
        f"of {payload_bytes:,} bytes.",
        _KNOWN, judge,
    )  # fmt: skip
    return Suite("subject_census", measure_census, (adds_up, _POSSIBLE))


_KNOWN = "A dry run reads the census instead of the messages, so it sees only what is counted."
_POSSIBLE = no_row(
    "ExpectCountsToBePossible", "counts", "impossible",
    "Every row counts at least one message, and its first time isn't after its last.", _KNOWN,
    "with impossible counts", noun="row",
)  # fmt: skip
