"""Mappings that are too large to compile: refused before Spark plans anything."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pyspark.sql import SparkSession

from nats_transform import AccountMappings, Destination, Mapping, StreamSource
from nats_transform.errors import TooLarge
from nats_transform.spark import apply, take
from nats_transform.spark.size import MAX_FUNCTIONS, MAX_PARTITIONS, MAX_SHAPES, MAX_TOKENS
from nats_transform.stream_source import SubjectTransform
from tests.nats_transform.spark.conftest import Case, Compare, Message
from tests.nats_transform.spark.test_plans import messages

pytestmark = pytest.mark.spark


def shape(number: int) -> str:
    """A source of a shape of its own: literal tokens where the number has a bit."""
    return ".".join("a" if bit == "1" else "*" for bit in f"{number + 1:b}")


def one(*destinations: str) -> list[Mapping]:
    return [Mapping(f"s{n}.*.*", [Destination(to)]) for n, to in enumerate(destinations)]


SHAPES = [Mapping(shape(n), [Destination("x")]) for n in range(MAX_SHAPES + 1)]
CUTS = one(*[f"x.{{{{left(1,{n + 1})}}}}" for n in range(MAX_FUNCTIONS + 1)])
PARTITIONS = one(".".join(["{{partition(9,1)}}"] * (MAX_PARTITIONS + 1)))
TOKENS = one(".".join(["$1.x"] * (MAX_TOKENS + 1)))


@pytest.mark.parametrize(
    ("mappings", "told"),
    [
        pytest.param(SHAPES, "1,001 shapes of sources", id="shapes"),
        pytest.param(CUTS, "201 different functions", id="functions"),
        pytest.param(PARTITIONS, "17 partition numbers in one destination", id="partitions"),
        pytest.param(TOKENS, "257 tokens that depend on the subject", id="tokens"),
    ],
)
def test_what_is_too_large(spark: SparkSession, mappings: Sequence[Mapping], told: str) -> None:
    with pytest.raises(TooLarge, match=f"^too large to compile: {told}.*; leave out") as refused:
        apply(AccountMappings(mappings), messages(spark, 1))
    assert refused.value.count > refused.value.most
    assert "\n" not in str(refused.value)


def test_too_many_filters_of_a_source(spark: SparkSession) -> None:
    rules = [SubjectTransform(src=mapping.source, dest="x") for mapping in SHAPES]
    with pytest.raises(TooLarge, match="shapes"):
        take(StreamSource(name="O", subject_transforms=rules), messages(spark, 1))


@pytest.mark.slow
def test_as_many_as_there_may_be(compare: Compare) -> None:
    """Of partition numbers and of what depends on the subject."""
    subjects = [f"s{n}.{a}.b-c" for n in range(3) for a in ("a", "éé", "x" * 40)]
    mappings = one(
        ".".join(["{{partition(9,1)}}", "{{partition(7,2)}}"] * (MAX_PARTITIONS // 2)),
        ".".join(["$2.x"] * MAX_TOKENS),
        ".".join(["{{right(1,2)}}", "{{splitfromleft(2,1)}}"] * 20),
    )
    found = compare([Case(AccountMappings(mappings), [Message(s) for s in subjects])])
    assert found == len(subjects)
