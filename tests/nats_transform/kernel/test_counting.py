"""Counts by several columns: as counting the rows one by one."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from nats_transform.errors import NatsTransformError
from nats_transform.kernel.counting import combinations, hours, texts
from tests.support.refused import refused

TEXT = st.sampled_from(["east", "west", "\udcff", "", None])
HOUR = st.integers(-3, 2**21)


@given(st.lists(st.tuples(TEXT, TEXT, HOUR), min_size=1, max_size=50), st.booleans())
def test_counts_are_those_of_the_rows(rows: list, as_dictionary: bool) -> None:
    columns = []
    for place in (0, 1):
        raw = [r[place] and r[place].encode("utf-8", "surrogateescape") for r in rows]
        column = pa.array(raw, pa.binary()).view(pa.string())
        columns.append(texts(column.dictionary_encode() if as_dictionary else column))
    micros = [row[2] * 3_600_000_000 + 1 for row in rows]
    found = Counter(dict(combinations(*columns, hours(pa.array(micros, pa.timestamp("us"))))))
    assert found == Counter(rows)


def test_more_cells_than_a_number_holds() -> None:
    values = pa.array([str(n) for n in range(70_000)])
    columns = [texts(values)] * 4
    assert dict(combinations(*columns)) == {(str(n),) * 4: 1 for n in range(70_000)}


def test_a_message_without_a_time() -> None:
    with refused(NatsTransformError, "message-without-time"):
        hours(pa.array([datetime(2026, 1, 1, tzinfo=UTC), None], pa.timestamp("us", "UTC")))
