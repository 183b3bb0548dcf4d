"""The measures say of a table what a plain look at its rows says."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from expectations.measures.messages import Sequences, runs_of_ones
from expectations.measures.partitions import MAX_NUMBERS, PartitionedEnd, partitioned_ends
from expectations.measures.transformed import measure_transformed, prepare_transformed
from nats_transform import AccountMappings, Destination, Mapping
from nats_transform.audit import End
from tests.expectations.tables import (
    MAPPINGS,
    PER_DAY,
    archive_digest,
    hashes,
    measured_messages,
    measured_transformed,
    messages,
    table_digest,
    transformed,
)
from tests.support.archive import Row, frame


@given(st.sets(st.integers(0, 63)))
def test_runs_cover_just_the_ones(places: set[int]) -> None:
    runs = list(runs_of_ones(sum(1 << place for place in places)))
    assert {place for first, last in runs for place in range(first, last + 1)} == places
    assert all(one[1] + 1 < other[0] for one, other in pairwise(runs))


def test_gaps_lie_between_ranges() -> None:
    assert Sequences(((1, 3), (5, 5), (9, 20)), 0).gaps == ((4, 4), (6, 8))


def _ranges(sequences: list[int]) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    for seq in sorted(sequences):
        if ranges and ranges[-1][1] + 1 == seq:
            ranges[-1] = (ranges[-1][0], seq)
        else:
            ranges.append((seq, seq))
    return ranges


@pytest.mark.spark
@pytest.mark.parametrize(
    "sequences",
    [
        pytest.param([1], id="one"),
        pytest.param(list(range(4096, 8192)), id="a whole block"),
        pytest.param([63, 64, 4095, 4096, 2**62, 2**63 - 1], id="at edges"),
        pytest.param(random.Random(1).sample(range(10_000), 7_000), id="at random"),
        pytest.param(random.Random(2).sample(range(10**15), 300), id="far apart"),
    ],
)
def test_sequences(spark: SparkSession, sequences: list[int]) -> None:
    (row, *_) = messages(1)
    measures = measured_messages(spark, [row | {"seq": seq} for seq in sequences])
    (found,) = measures.sequences.values()
    assert list(found.ranges) == _ranges(sequences)
    assert found.repeated == 0


@pytest.mark.spark
def test_measures_of_messages(spark: SparkSession) -> None:
    rows = messages()
    measures = measured_messages(spark, rows)
    assert measures.archive.rows == len(rows)
    assert str(measures.archive) == archive_digest(rows)
    assert {day: bag.rows for (_, day), bag in measures.days.items()} == Counter(
        row["day"] for row in rows
    )
    assert {(stream, day): found.ranges for (stream, day), found in measures.sequences.items()} == {
        ("SHOP", rows[0]["day"]): ((1, PER_DAY),),
        ("SHOP", rows[-1]["day"]): ((PER_DAY + 1, 2 * PER_DAY),),
    }


@pytest.mark.spark
def test_measures_of_transformed_messages(spark: SparkSession) -> None:
    rows = transformed(messages())
    measures = measured_transformed(spark, rows)
    assert str(measures.archive) == archive_digest(rows)
    assert str(measures.table) == table_digest(rows)
    assert measures.fates == Counter(row["fate"] for row in rows)
    assert len(measures.sample) == len(rows)
    names = ("day", "cluster", "fate", "mapping_source", "mapping_destination")
    assert Counter(tuple(row[name] for name in names) for row in rows) == {
        (e.day, e.cluster, e.fate, e.source, e.destination): count
        for e, count in measures.endings.items()
    }
    orders = [row for row in rows if row["mapping_source"] == "orders.*.*"]
    ((rule, numbers),) = measures.numbers.items()
    assert rule == End("orders.*.*", "orders.{{partition(8,2)}}.$1.$2")
    assert numbers == Counter(row["mapped_subject"].split(".")[1] for row in orders)
    assert len(measures.keys[rule]) == len({row["subject"].split(".")[2] for row in orders})
    assert measures.key_share == 1


@pytest.mark.spark
def test_samples_of_a_large_table_are_small_and_keep_all_of_a_key(spark: SparkSession) -> None:
    rows = transformed(messages())
    prepared = prepare_transformed(frame(spark, rows), MAPPINGS, messages=100_000, **hashes())
    measures = measure_transformed(prepared)
    assert measures.key_share == 10
    assert 0 < len(measures.sample) < len(rows) // 10
    ((rule, keys),) = measures.keys.items()
    every = Counter(
        row["subject"].split(".")[2] for row in rows if row["mapping_source"] == rule.source
    )
    assert 0 < len(keys) < len(every) // 4
    assert {sum(numbers.values()) for numbers in keys.values()} <= set(every.values())


@pytest.mark.parametrize(
    ("source", "destination", "expected"),
    [
        pytest.param("a.*", "b.{{partition(4,1)}}.$1", (4, 2, (1,)), id="counted from the left"),
        pytest.param("a.*.*", "{{partition(4,2,1)}}", (4, 1, (2, 1)), id="several keys"),
        pytest.param("a.*", "b.{{partition(4)}}", (4, 2, ()), id="the whole subject"),
        pytest.param("a.*", "{{partition(0,1)}}", (1, 1, (1,)), id="none is one"),
        pytest.param(
            "a.*.*", "{{split(1,-)}}.{{partition(4,2)}}", (4, -1, (2,)), id="from the right"
        ),
        pytest.param(
            "a.*.*",
            "{{split(1,-)}}.{{partition(4,2)}}.x.{{left(2,1)}}",
            (4, -3, (2,)),
            id="further from the right",
        ),
        pytest.param(
            "a.*.>", "{{splitfromleft(1,2)}}.{{partition(4,1)}}.>", (4, None, (1,)), id="nowhere"
        ),
    ],
)
def test_where_the_partition_number_is(
    source: str, destination: str, expected: tuple[int, int | None, tuple[int, ...]]
) -> None:
    mappings = AccountMappings([Mapping(source, [Destination(destination)])])
    assert partitioned_ends(mappings) == [PartitionedEnd(End(source, destination), *expected)]


PARTITIONED = AccountMappings(
    [
        # One text under two sources, with the key in another place.
        Mapping("a.*", [Destination("p.{{partition(5,1)}}")]),
        Mapping("b.x.*", [Destination("p.{{partition(5,1)}}")]),
        Mapping("c.*.*", [Destination("{{split(1,-)}}.q.{{partition(7,2)}}")]),
        Mapping("d.*", [Destination("\udcff.{{partition(3,1)}}")]),
        Mapping("e.*", [Destination(f"big.{{{{partition({MAX_NUMBERS + 1},1)}}}}")]),
        Mapping("f.*", [Destination("{{splitfromright(1,1)}}.{{partition(3,1)}}.{{split(1,-)}}")]),
    ]
)


@pytest.mark.spark
def test_numbers_are_found_under_every_rule(spark: SparkSession) -> None:
    (first, *_) = messages(1)
    subjects = [f"{kind}.{n % 40}" for kind in ("a", "b.x", "d", "e", "f") for n in range(60)]
    subjects += [f"c.u-{n % 3}.{n % 50}" for n in range(60)]
    archived: list[Row] = [
        first | {"seq": seq, "subject": subject} for seq, subject in enumerate(subjects, 1)
    ]
    rows = transformed(archived, PARTITIONED)
    prepared = prepare_transformed(frame(spark, rows), PARTITIONED, messages=1, **hashes())
    measures = measure_transformed(prepared)
    expected: dict[End, Counter[str]] = {}
    for row in rows:
        source, destination = row["mapping_source"], row["mapping_destination"]
        if source not in ("e.*", "f.*"):  # one is not counted, one cannot be found
            number = row["mapped_subject"].split(".")[-1]
            expected.setdefault(End(source, destination), Counter())[number] += 1
    assert measures.numbers == expected
    assert {rule.source: len(keys) for rule, keys in measures.keys.items()} == {
        "a.*": 40,
        "b.x.*": 40,
        "c.*.*": 50,
        "d.*": 40,
    }
    assert all(len(numbers) == 1 for keys in measures.keys.values() for numbers in keys.values())
