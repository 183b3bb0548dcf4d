"""Draws and `random()` in Spark: uniform, also one sequence after another, and independent.

The sequences are fixed, so a p-value is the same in every run: it says something about the hash and
nothing about luck.
"""

from __future__ import annotations

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from scipy.stats import chi2_contingency, chisquare

from nats_transform import AccountMappings, Destination, Mapping
from nats_transform.spark import apply

pytestmark = pytest.mark.spark

SIZES = [
    pytest.param(200_000, id="quick"),
    pytest.param(10_000_000, id="ten-million", marks=[pytest.mark.slow]),
]
FACES = 10
# A dozen p-values are looked at: by chance alone one in a thousand runs would have one below this.
ALARM = 1e-4


def chances(spark: SparkSession, count: int) -> DataFrame:
    """For each sequence what two mappings draw and what two `random()` of one of them give.

    Columns: seq, here (0..99), there (0..99), first, second (0..9).
    """
    random = f"{{{{random({FACES})}}}}"
    here = AccountMappings([Mapping("a", [Destination(f"{random}.{random}", 99)])])
    there = AccountMappings([Mapping(">", [Destination("x.>", 50)])])
    frame = spark.range(1, count + 1, numPartitions=8).select(
        F.lit("ORDERS").alias("stream"), F.col("id").alias("seq"), F.lit("a").alias("subject")
    )
    one = apply(here, frame, cluster=None).select(
        "stream", "seq", "subject", F.col("draw").alias("here"), F.split("mapped_subject", r"\.")
    )
    one = one.toDF("stream", "seq", "subject", "here", "random")
    two = apply(there, one, cluster=None)
    return two.select(
        "seq",
        "here",
        F.col("draw").alias("there"),
        F.get("random", F.lit(0)).try_cast("int").alias("first"),
        F.get("random", F.lit(1)).try_cast("int").alias("second"),
    )


def counts(frame: DataFrame, *columns: str) -> np.ndarray:
    """How often each value, or pair of values, comes up; rows with a null are left out."""
    rows = frame.dropna(subset=list(columns)).groupBy(*columns).count().collect()
    shape = [1 + max(row[column] for row in rows) for column in columns]
    table = np.zeros(shape, dtype=np.int64)
    for row in rows:
        table[tuple(row[column] for column in columns)] = row["count"]
    return table


@pytest.mark.parametrize("count", SIZES)
def test_uniform_and_independent(spark: SparkSession, count: int) -> None:
    frame = chances(spark, count).cache()
    try:
        # Where the remainder keeps the subject there is no random(): one draw of a hundred.
        for column, faces in (("here", 100), ("there", 100), ("first", FACES), ("second", FACES)):
            found = counts(frame, column)
            assert len(found) == faces
            assert found.sum() >= 0.98 * count
            assert chisquare(found).pvalue > ALARM, column
        for one, other in (
            ("here", "there"),
            ("first", "second"),
            ("here", "first"),
            ("there", "second"),
        ):
            table = counts(frame, one, other)
            seen = table[table.any(axis=1)]
            assert chi2_contingency(seen).pvalue > ALARM, (one, other)
    finally:
        frame.unpersist()


@pytest.mark.parametrize("count", SIZES)
def test_one_sequence_tells_nothing_about_the_next(spark: SparkSession, count: int) -> None:
    frame = chances(spark, count).cache()
    try:
        for step in (1, 2, 64):
            later = frame.select((F.col("seq") - step).alias("seq"), F.col("here").alias("later"))
            pairs = frame.join(later, "seq")
            assert chi2_contingency(counts(pairs, "here", "later")).pvalue > ALARM, step
    finally:
        frame.unpersist()
