"""The digest of DataFrames: that of plain Python rows, however they are divided."""

from __future__ import annotations

from random import Random

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from nats_transform.digest import Digest
from nats_transform.spark.digest import digest
from tests.nats_transform.kernel.test_digest import SPARK, rows
from tests.support.digest import digest_of

pytestmark = pytest.mark.spark


def test_every_type(spark: SparkSession, seed: int) -> None:
    given = rows(Random(seed))
    frame = spark.createDataFrame(given, SPARK).repartition(3)
    assert digest(frame) == digest_of(given, SPARK)


def test_some_columns(spark: SparkSession) -> None:
    given = [{"a.b": 1, "c": None, "d": "x"}, {"a.b": None, "c": 2, "d": "y"}]
    values = [tuple(row.values()) for row in given]
    frame = spark.createDataFrame(values, "a int, c long, d string").toDF(*given[0])
    columns = ["c", "a.b"]
    assert digest(frame, columns) == digest_of(given, frame.schema, columns)
    assert digest(frame.where("c > 2")) == Digest()


def test_many_rows_wrap_around_as_python_does(spark: SparkSession) -> None:
    """The sum of so many hashes leaves 64 bits."""
    frame = spark.range(100_000).select(F.lit(1).alias("same"))
    one = digest_of([{"same": 1}], frame.schema)
    assert one.total * 100_000 > 2**64
    assert digest(frame).total == one.total * 100_000 % 2**64
