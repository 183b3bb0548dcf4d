"""Runs messages through the scalar path and through Spark, and finds the first difference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from nats_transform import AccountMappings, Outcome
from nats_transform.spark import apply
from nats_transform.subject import decode, encode

SCHEMA = "case int, row int, subject binary, cluster binary, stream string, seq long"


@dataclass(frozen=True)
class Message:
    subject: str | None
    cluster: str | None = None
    stream: str | None = "S"
    seq: int | None = 1


@dataclass(frozen=True)
class Case:
    """Messages to compare with the mappings of one account."""

    mappings: AccountMappings
    messages: Sequence[Message]
    seed: int = 0


Compare = Callable[[Sequence[Case]], int]


def messages_frame(spark: SparkSession, cases: Sequence[Case]) -> DataFrame:
    """All messages of all cases: (case, row, subject, cluster, stream, seq)."""
    rows = [
        (number, row, _bytes(m.subject), _bytes(m.cluster), m.stream, m.seq)
        for number, case in enumerate(cases)
        for row, m in enumerate(case.messages)
    ]
    frame = spark.createDataFrame(rows, SCHEMA)
    # Any bytes: a string column of Spark takes them as they are.
    return frame.withColumns({n: F.col(n).cast("string") for n in ("subject", "cluster")})


def outcome(row: Row) -> Outcome:
    """What a row of `apply` says."""
    return Outcome(
        _text(row["mapped_subject"]),
        row["fate"],
        _text(row["mapping_source"]),
        _text(row["mapping_destination"]),
        row["draw"],
        row["reason"],
    )


def collected(frame: DataFrame) -> list[Row]:
    """The rows, with what may not be UTF-8 as bytes."""
    raw = ("mapped_subject", "mapping_source", "mapping_destination")
    return frame.withColumns({name: F.col(name).cast("binary") for name in raw}).collect()


@pytest.fixture
def compare(spark: SparkSession) -> Compare:
    """Asserts that Spark gives what the scalar path gives; returns how many messages it saw."""

    def run(cases: Sequence[Case]) -> int:
        messages = messages_frame(spark, cases)
        frames = [
            apply(case.mappings, messages.where(F.col("case") == number), seed=case.seed)
            for number, case in enumerate(cases)
        ]
        rows = collected(reduce(DataFrame.unionByName, frames))
        assert len(rows) == sum(len(case.messages) for case in cases)
        for row in rows:
            case = cases[row["case"]]
            message = case.messages[row["row"]]
            wanted = case.mappings.replay(
                message.subject,
                message.cluster,
                stream=message.stream,
                seq=message.seq,
                seed=case.seed,
            )
            assert outcome(row) == wanted, (case.mappings, case.seed, message)
        return len(rows)

    return run


def _bytes(text: str | None) -> bytearray | None:
    return None if text is None else bytearray(encode(text))


def _text(data: bytearray | None) -> str | None:
    return None if data is None else decode(bytes(data))
