"""The measures say of a table what a plain look at its rows says."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from expectations.measures import Ending, TransformedMeasures
from expectations.messages import measure_messages
from expectations.partitions import (
    MAX_NUMBERS,
    key_limits,
    partitions_balanced,
    sample_hashes,
)
from expectations.weights import weights_hold
from nats_transform.audit import End
from nats_transform.audit.partitions import PartitionedEnd, partitioned_ends
from nats_transform.kernel.coverage import Sequences
from tests.expectations.tables import (
    FIRST_DAY,
    PER_DAY,
    archive_digest,
    batches,
    measure,
    messages,
    table_digest,
    transformed,
)
from tests.support import rules
from tests.support.archive import Row


def _ranges(sequences: list[int]) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    for seq in sorted(sequences):
        if ranges and ranges[-1][1] + 1 == seq:
            ranges[-1] = (ranges[-1][0], seq)
        else:
            ranges.append((seq, seq))
    return ranges


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
def test_sequences(sequences: list[int]) -> None:
    (row, *_) = messages(1)
    measures = measure_messages(batches([row | {"seq": seq} for seq in sequences], 1000))
    (found,) = measures.sequences.values()
    assert list(found.ranges) == _ranges(sequences)
    assert found.repeated == 0


@given(st.lists(st.lists(st.integers(0, 60), min_size=1), min_size=1))
def test_parts_of_sequences_add_up(parts: list[list[int]]) -> None:
    every = [seq for part in parts for seq in part]
    found = [Sequences.of(np.array(part)) for part in parts]
    for whole in (Sequences.together(found), sum(found[1:], start=found[0])):
        assert list(whole.ranges) == _ranges(sorted(set(every)))
        assert whole.repeated == len(every) - len(set(every))


def test_measures_of_messages() -> None:
    rows = messages()
    measures = measure_messages(batches(rows))
    assert measures.archive.rows == len(rows)
    assert measures.archive == archive_digest(rows)
    assert {day: bag.rows for (_, day), bag in measures.days.items()} == Counter(
        row["day"] for row in rows
    )
    assert {(stream, day): found.ranges for (stream, day), found in measures.sequences.items()} == {
        ("SHOP", rows[0]["day"]): ((1, PER_DAY),),
        ("SHOP", rows[-1]["day"]): ((PER_DAY + 1, 2 * PER_DAY),),
    }


def test_measures_of_transformed_messages() -> None:
    rows = transformed(messages())
    measures = measure()(batches(rows))
    assert measures.archive == archive_digest(rows)
    assert str(measures.digest) == table_digest(rows)
    fates = measures.fates_of()
    assert {fate: count for fate, count in fates.items() if count} == Counter(
        row["fate"] for row in rows
    )
    assert sum(sum(measures.fates_of(day).values()) for _, day in measures.days) == len(rows)
    names = ("day", "cluster", "fate", "mapping_source", "mapping_destination")
    assert Counter(tuple(row[name] for name in names) for row in rows) == {
        (e.day, e.cluster, e.fate, e.source, e.destination): count
        for e, count in measures.endings.items()
    }
    orders = [row for row in rows if row["mapping_source"] == "orders.*.*"]
    ((rule, numbers),) = measures.numbers.items()
    assert rule == End("orders.*.*", "orders.{{partition(8,2)}}.$1.$2")
    assert numbers == Counter(int(row["mapped_subject"].split(".")[1]) for row in orders)
    keys = {key for key, _ in measures.keys[rule]}
    assert len(keys) == len({row["subject"].split(".")[2] for row in orders})


@pytest.mark.parametrize("size", [41, 999, 2000])
def test_measures_of_tasks_add_up(size: int) -> None:
    rows = transformed(messages())
    rows[5] |= {"mapped_subject": "a..b"}
    parts = [measure()([batch]) for batch in batches(rows, size)]
    assert sum(parts, start=measure()([])) == measure()(batches(rows))


@pytest.mark.parametrize("step", [1, 2, 7, 1000, 2**40, -1])
@pytest.mark.parametrize("one_in", [2, 10, 1000])
def test_samples_are_even_whatever_the_numbers_are(step: int, one_in: int) -> None:
    chosen = sample_hashes(np.arange(1_000 * one_in) * step) % one_in == 0
    assert 850 < chosen.sum() < 1150


def test_samples_of_a_large_table_are_small_and_keep_all_of_a_key() -> None:
    rows = transformed(messages())
    measures = measure(messages=100_000)(batches(rows))
    every = Counter(
        row["subject"].split(".")[2] for row in rows if row["mapping_source"] == "orders.*.*"
    )
    ((_, keys),) = measures.keys.items()
    assert 0 < len(keys) < len(every) // 4
    assert set(keys.values()) <= set(every.values())


@pytest.mark.parametrize(
    ("source", "destination", "expected"),
    [
        pytest.param("a.*", "b.{{partition(4,1)}}.$1", (4, 2), id="counted from the left"),
        pytest.param("a.*.*", "{{partition(4,2,1)}}", (4, 1), id="several keys"),
        pytest.param("a.*", "b.{{partition(4)}}", (4, 2), id="the whole subject"),
        pytest.param("a.*", "{{partition(0,1)}}", (1, 1), id="none is one"),
        pytest.param("a.*.*", "{{split(1,-)}}.{{partition(4,2)}}", (4, -1), id="from the right"),
        pytest.param(
            "a.*.*",
            "{{split(1,-)}}.{{partition(4,2)}}.x.{{left(2,1)}}",
            (4, -3),
            id="further from the right",
        ),
        pytest.param("a.*.>", "{{splitfromleft(1,2)}}.{{partition(4,1)}}.>", None, id="nowhere"),
        pytest.param("a.*", f"{{{{partition({MAX_NUMBERS + 1},1)}}}}", None, id="too many"),
    ],
)
def test_where_the_partition_number_is(
    source: str, destination: str, expected: tuple[int, int] | None
) -> None:
    mappings = rules.mappings({source: destination})
    ends = [PartitionedEnd(End(source, destination), *expected)] if expected else []
    assert partitioned_ends(mappings, MAX_NUMBERS) == ends


@pytest.mark.parametrize("keys", [1, 2, 40, 999, 10_000])
@pytest.mark.parametrize("partitions", [1, 2, 16, 4096])
def test_limits_of_keys_are_those_of_scipy(keys: int, partitions: int) -> None:
    for tail in (0.5e-4 / partitions, 0.005, 0.2):
        low, high = (int(limit(tail, keys, 1 / partitions)) for limit in (binom.ppf, binom.isf))
        assert key_limits(keys, partitions, tail) == (low, high)


PARTITIONED = rules.mappings(
    {
        # One text under two sources, with the key in another place.
        "a.*": "p.{{partition(5,1)}}",
        "b.x.*": "p.{{partition(5,1)}}",
        "c.*.*": "{{split(1,-)}}.q.{{partition(7,2)}}",
        "d.*": "\udcff.{{partition(3,1)}}",
        "e.*": f"big.{{{{partition({MAX_NUMBERS + 1},1)}}}}",
        "f.*": "{{splitfromright(1,1)}}.{{partition(3,1)}}.{{split(1,-)}}",
    }
)


def test_numbers_are_found_under_every_rule() -> None:
    (first, *_) = messages(1)
    subjects = [f"{kind}.{n % 40}" for kind in ("a", "b.x", "d", "e", "f") for n in range(60)]
    subjects += [f"c.u-{n % 3}.{n % 50}" for n in range(60)]
    archived: list[Row] = [
        first | {"seq": seq, "subject": subject} for seq, subject in enumerate(subjects, 1)
    ]
    rows = transformed(archived, PARTITIONED)
    measures = measure(PARTITIONED, version=None)(batches(rows))
    expected: dict[End, Counter[int]] = {}
    for row in rows:
        source, destination = row["mapping_source"], row["mapping_destination"]
        if source not in ("e.*", "f.*"):  # one is not counted, one cannot be found
            number = int(row["mapped_subject"].split(".")[-1])
            expected.setdefault(End(source, destination), Counter())[number] += 1
    assert measures.numbers == expected
    keys = {"a.*": 40, "b.x.*": 40, "c.*.*": 50, "d.*": 40}
    assert {rule.source: len(found) for rule, found in measures.keys.items()} == keys
    for found in measures.keys.values():  # each key has one number
        assert len({key for key, _ in found}) == len(found)


def test_a_dead_canary_that_no_cluster_shows_by_itself() -> None:
    mappings = rules.mappings({"shop.*": [("v1.$1", 98), ("v2.$1", 2)]})
    measures = TransformedMeasures()
    for number in range(40):
        ending = Ending(FIRST_DAY, f"c{number}", "mapped", "shop.*", "v1.$1")
        measures.endings[ending] = 400
    judgement = weights_hold(mappings).judge(measures)
    assert not judgement.success
    assert judgement.observed == "of 40 splits: 40 undecided; 1 outside over all clusters"
    (row,) = judgement.examples
    assert (row["mapping"], row["cluster"]) == ("shop.*", "all")


def test_many_partition_functions_are_even_together() -> None:
    """Each of them has a part of the error that the confidence allows."""
    mappings = rules.mappings({f"s{n}.*": f"d{n}.{{{{partition(4,1)}}}}" for n in range(200)})
    chance, measures = random.Random(1), TransformedMeasures()
    for end in partitioned_ends(mappings, MAX_NUMBERS):
        measures.keys[end.end] = Counter((key, chance.randrange(4)) for key in range(300))
    judgement = partitions_balanced(mappings, confidence=0.9).judge(measures)
    assert judgement.observed == "200 of 200 partition functions even"
