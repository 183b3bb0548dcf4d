"""Numbers of a dry run that go to a file: the same is found."""

from __future__ import annotations

import io
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_transform import AccountMappings, Destination, Mapping, parse_stream
from nats_transform.migration import CensusRow, Question
from nats_transform.migration import rows as module
from nats_transform.migration.columns import Part, added_up, dry_run_of_columns
from nats_transform.migration.rows import Groups, Largest, Store, Table
from tests.support.scalar import dry_run

HASHES = st.integers(0, 2**64 - 1)


@given(
    st.lists(st.tuples(HASHES, st.integers(0, 2**40)), max_size=60),
    st.lists(HASHES, min_size=1, max_size=3),
    st.integers(0, 80),
)
def test_sums_are_those_of_a_dictionary(
    entries: list[tuple[int, int]], often: list[int], most: int
) -> None:
    entries += [(key, 1) for key in often for _ in range(3)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MOST_IN_MEMORY", most)
        store = Store(io.BytesIO())
        groups, other = Groups(store), Table(store, 1)
        expected: dict[int, list[int]] = defaultdict(list)
        for key, parts in entries:
            groups.add(key, parts)
            other.add(parts)
            expected[key].append(parts)
        found = {
            int(key): (int(parts), int(count))
            for sums in groups.sums()
            for key, parts, count in zip(*sums, strict=True)
        }
        largest = Largest(5)
        for keys, parts, _ in groups.sums():
            largest.add(keys, parts)
        assert len(store.buckets) == (1 if 3 * len(entries) <= most else 256)
        left = np.concatenate([other.bucket(bucket) for bucket in store.buckets])
    assert found == {key: (sum(all_of), len(all_of)) for key, all_of in expected.items()}
    assert sorted(left[:, 0].tolist()) == sorted(parts for _, parts in entries)
    order = sorted(expected, key=lambda key: (-sum(expected[key]), key))
    assert list(largest.keys) == order[:5]


def parts(census: list[CensusRow], size: int) -> list[Part]:
    """A census in parts of so many rows."""
    pieces = [census[start : start + size] for start in range(0, len(census), size)]
    return [
        added_up(
            pa.table(
                {
                    "subject": [row.subject for row in piece],
                    "cluster": pa.nulls(len(piece), pa.string()),
                    "messages": [row.messages for row in piece],
                    "bytes": [row.bytes for row in piece],
                }
            )
        )
        for piece in pieces
    ]


def test_a_dry_run_finds_the_same_in_parts_and_with_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    candidate = AccountMappings(
        [
            Mapping(
                "a.*.*",
                [
                    Destination("b.{{partition(7,2)}}.$2", weight=30),
                    Destination("c.{{random(9)}}.$1", weight=60),
                ],
            ),
            Mapping("d.*", [Destination("e")]),
        ]
    )
    current = AccountMappings([Mapping("a.*.*", [Destination("b.{{partition(5,2)}}.$2")])])
    census = [
        CensusRow(subject, None, 1 + n % 13)
        for n in range(400)
        for subject in (f"a.{n % 20}.{n}", f"d.{n}")
    ]
    census.sort()
    streams = [
        parse_stream({"name": "S", "subjects": ["a.>", "b.>", "e"], "max_msgs_per_subject": 3})
    ]
    wanted = dry_run(census, candidate, current, streams=streams)
    monkeypatch.setattr(module, "MOST_IN_MEMORY", 500)
    question = Question(candidate, current, tuple(streams))
    with io.BytesIO() as file:
        assert dry_run_of_columns(parts(census, 30), question, file) == wanted
        assert len(file.getvalue()) > 8 * 500
    codes = {finding.code for finding in wanted.findings}
    assert {"collision", "limit-discards", "partition-moves", "subject-explosion"} <= codes
