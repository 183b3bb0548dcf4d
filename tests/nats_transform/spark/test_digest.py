"""The digest: order does not matter, everything else does, and Spark agrees with Python."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import Observation, SparkSession
from pyspark.sql import types as T

from jobs.warehouse.specs import MESSAGES
from nats_transform.spark.digest import Digest, aggregates, digest, digest_of, observed

SCHEMA = MESSAGES.spark_schema

A1, A2 = {"name": "A", "value": "1"}, {"name": "A", "value": "2"}
ROW: dict[str, Any] = {
    "stream": "ORDERS",
    "seq": 1,
    "ts": datetime(2026, 1, 2, 3, 4, 5, 678901, UTC),
    "ts_ns": 1767323045678901234,
    "day": date(2026, 1, 2),
    "subject": "orders.eu",
    "cluster": None,
    "headers": [A1, A2],
    "headers_raw": None,
    "data": b"payload",
}

CHANGES = [
    pytest.param({"seq": 2}, id="seq"),
    pytest.param({"ts_ns": 1767323045678901235}, id="nanosecond"),
    pytest.param({"subject": "orders.eU"}, id="case-of-subject"),
    pytest.param({"cluster": ""}, id="empty-is-not-null"),
    pytest.param({"data": b""}, id="empty-payload"),
    pytest.param({"data": None}, id="no-payload"),
    pytest.param({"headers_raw": b"payload", "data": None}, id="value-in-another-column"),
    pytest.param({"headers": [A2, A1]}, id="header-order"),
    pytest.param({"headers": [{"name": "a", "value": "1"}, A2]}, id="header-case"),
    pytest.param({"headers": [A1]}, id="header-missing"),
    pytest.param({"headers": []}, id="no-headers"),
    pytest.param({"headers": None}, id="null-headers"),
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_shows(change: dict[str, Any]) -> None:
    assert digest_of([ROW], SCHEMA) != digest_of([ROW | change], SCHEMA)


def test_order_does_not_matter_and_repeats_count() -> None:
    other = ROW | {"seq": 2}
    assert digest_of([ROW, other], SCHEMA) == digest_of([other, ROW], SCHEMA)
    assert digest_of([ROW, ROW], SCHEMA).total != 0
    assert digest_of([ROW, ROW, other], SCHEMA) != digest_of([ROW, other, other], SCHEMA)


def test_digests_add_up_and_survive_text() -> None:
    other = ROW | {"seq": 2}
    both = digest_of([ROW], SCHEMA) + digest_of([other], SCHEMA)
    assert both == digest_of([ROW, other], SCHEMA)
    assert Digest.parse(both.rows, str(both)) == both


@pytest.mark.spark
def test_spark_agrees_with_python(spark: SparkSession) -> None:
    rows = [ROW] + [ROW | p.values[0] for p in CHANGES]
    frame = spark.createDataFrame(rows, SCHEMA)
    assert digest(frame) == digest_of(rows, SCHEMA)
    assert digest(frame.repartition(3)) == digest_of(rows, SCHEMA)
    for row in rows:
        assert digest(spark.createDataFrame([row], SCHEMA)) == digest_of([row], SCHEMA)


EVERY_TYPE = T.StructType(
    [
        T.StructField("text", T.StringType()),
        T.StructField("bytes", T.BinaryType()),
        T.StructField("long", T.LongType()),
        T.StructField("int", T.IntegerType()),
        T.StructField("yes", T.BooleanType()),
        T.StructField("double", T.DoubleType()),
        T.StructField("day", T.DateType()),
        T.StructField("moment", T.TimestampType()),
        T.StructField("many", T.ArrayType(T.StringType())),
    ]
)
VALUES = st.tuples(
    st.none() | st.text(st.characters(codec="utf-8"), max_size=20),
    st.none() | st.binary(max_size=40),
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | st.integers(-(2**31), 2**31 - 1),
    st.none() | st.booleans(),
    st.none() | st.floats(allow_nan=False),
    st.none() | st.dates(date(1800, 1, 1), date(2200, 1, 1)),
    st.none()
    | st.datetimes(datetime(1970, 1, 2), datetime(2200, 1, 1)).map(lambda d: d.replace(tzinfo=UTC)),
    st.none() | st.lists(st.none() | st.text("ab", max_size=3), max_size=3),
)  # fmt: skip


@pytest.mark.spark
@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(VALUES, min_size=20, max_size=60))
def test_spark_agrees_on_every_type(spark: SparkSession, rows: list[tuple[Any, ...]]) -> None:
    plain = [dict(zip(EVERY_TYPE.names, row, strict=True)) for row in rows]
    assert digest(spark.createDataFrame(rows, EVERY_TYPE)) == digest_of(plain, EVERY_TYPE)


@pytest.mark.spark
def test_many_rows_wrap_around_as_python_does(spark: SparkSession) -> None:
    """The sum of so many hashes leaves 64 bits, which ANSI mode would refuse."""
    frame = spark.range(100_000).selectExpr("1 AS same")
    one = digest_of([{"same": 1}], frame.schema)
    assert one.total * 100_000 > 2**64
    assert digest(frame).total == one.total * 100_000 % 2**64


@pytest.mark.spark
def test_observed_in_the_pass_that_writes(spark: SparkSession) -> None:
    frame = spark.createDataFrame([ROW, ROW | {"seq": 2}], SCHEMA)
    seen = Observation()
    frame.observe(seen, *aggregates(SCHEMA)).write.format("noop").mode("overwrite").save()
    assert observed(seen) == digest(frame)


@pytest.mark.spark
def test_no_rows(spark: SparkSession) -> None:
    empty = spark.createDataFrame([], SCHEMA)
    assert digest(empty) == Digest() == digest_of([], SCHEMA)
    seen = Observation()
    empty.observe(seen, *aggregates(SCHEMA)).collect()
    assert observed(seen) == Digest()
