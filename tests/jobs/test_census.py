"""The subject census on real tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from jobs.census import CENSUS
from jobs.dry_run.subjects import archived_days, counted_census
from jobs.errors import ArchiveError
from jobs.files import grouped
from jobs.settings.census import CensusSettings
from jobs.settings.warehouse import Warehouse
from jobs.warehouse import tables
from nats_transform.mappings.subject import decode
from nats_transform.streams.features import CARRIED
from tests.support.archive import Row, archive, lose_a_row, message
from tests.support.jobs import HERE, counted, dumped, ingested
from tests.support.meanwhile import just_before
from tests.support.refused import refused

DAY = date(2026, 3, 1)
HEADERS = [
    [],
    [("Nats-Msg-Id", "1"), ("Nats-Msg-Id", "2"), ("nats-incr", "+1"), ("Traceparent", "00")],
    [],
    [("Nats-Schedule", "@every 1h"), ("Nats-Msg-Id", "3")],
    [("Nats-Expected-Last-Subject-Sequence", "4")],
    [],
    [("Nats-Incr", "+1"), ("Nats-Batch-Id", "b"), ("Nats-Batch-Sequence", "1")],
]
SUBJECTS = ["shop.eu", "shop.us", "a..b", "shop.\udcff", "shop.\udcfe", None]


def messages(count: int = 60) -> list[Row]:
    rows = []
    for seq in range(1, count + 1):
        ts = datetime(2026, 3, 1, tzinfo=UTC) + timedelta(hours=seq * 48 / (count + 1))
        data = None if seq % 5 == 0 else b"x" * (seq % 7)
        cluster = ("east", "west", None)[seq % 3]
        more = {"cluster": cluster, "headers": HEADERS[seq % len(HEADERS)], "data": data}
        rows.append(message(seq, SUBJECTS[seq % len(SUBJECTS)], ts, **more))
    return rows


def groups_of(rows: Sequence[Row]) -> set[tuple[Any, ...]]:
    groups = defaultdict(list)
    for row in rows:
        names = {name for name, _ in row["headers"]}
        carries = " ".join(word for name, word in CARRIED.items() if name in names)
        groups[row["day"], row["subject"], row["cluster"], carries].append(row)
    return {
        (
            "S",
            *key[:3],
            len(group),
            sum(len(row["data"] or b"") for row in group),
            min(row["ts"] for row in group),
            max(row["ts"] for row in group),
            key[3],
        )
        for key, group in groups.items()
    }


def found(warehouse: Warehouse) -> set[tuple[Any, ...]]:
    rows = tables.open_table(warehouse, CENSUS).scan().to_arrow().to_pylist()
    for row in rows:
        raw = row.pop("subject_raw")
        row["subject"] = row["subject"] if raw is None else decode(raw)
        assert row.pop("cluster_raw") is None
    found = [tuple(row.values()) for row in rows]
    assert len(found) == len(set(found))
    return set(found)


@pytest.mark.parametrize("held", [grouped.MOST_ROWS, 4], ids=["in one part", "in many parts"])
def test_every_subject_of_each_day_and_cluster(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    monkeypatch.setattr(grouped, "MOST_ROWS", held)
    rows = messages()
    archive(warehouse, rows)
    result = counted(warehouse, run_id="r1")
    there = found(warehouse)
    assert there == groups_of(rows)
    assert (result.messages, result.rows) == (len(rows), len(there))
    assert result.engine == "process"
    assert result.bytes == sum(len(row["data"] or b"") for row in rows)
    table = tables.open_table(warehouse, CENSUS)
    assert tables.snapshot_id(table) == result.snapshot_id
    properties = tables.snapshot_properties(table)
    assert properties["run-id"] == "r1"
    assert properties["input-snapshot"] == str(result.input_snapshot)

    # A day of its own takes the place of that day only.
    again = counted(warehouse, first_day=DAY)
    assert again.messages == sum(row["day"] == DAY for row in rows)
    assert found(warehouse) == there


def test_days_whose_headers_nobody_looked_at_are_counted_again(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = messages()
    archive(warehouse, rows)
    settings = CensusSettings(stream="S", warehouse=warehouse)
    nothing = partial(pa.nulls, type=pa.string())
    with monkeypatch.context() as older:
        older.setattr("jobs.files.census.words", lambda numbers: nothing(len(numbers)))
        counted(warehouse, first_day=DAY, last_day=DAY)
    assert {row[-1] for row in found(warehouse)} == {None}
    counted_census(HERE, settings, *archived_days(settings))
    assert found(warehouse) == groups_of(rows)


def test_headers_that_are_not_utf_8(warehouse: Warehouse, tmp_path: Path) -> None:
    headers = [
        {"Nats-Msg-Id": "\udcff"},
        {"Nats-Msg-Id\udcff": "1"},
        {"X\udcff": "", "Nats-Incr": "1"},
    ]
    lines = [
        {"seq": n, "subject": "a", "ts": "2026-03-01T00:00:00Z", "data": "", "headers": one}
        for n, one in enumerate(headers, 1)
    ]
    ingested(warehouse, dumped(tmp_path / "dump.jsonl", lines))
    counted(warehouse)
    assert {row[-1] for row in found(warehouse)} == {"id", "", "counter"}


def test_a_stream_that_is_not_there(warehouse: Warehouse) -> None:
    archive(warehouse, messages(5))
    with refused(ArchiveError, "no-messages-of-stream", stream="T"):
        counted(warehouse, stream="T")


def test_counts_that_were_damaged_are_refused(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive(warehouse, messages())
    assert counted(warehouse).checks["hold"]
    before = found(warehouse)
    just_before(monkeypatch, "jobs.gate.publish", lose_a_row)
    result = counted(warehouse)
    assert result.snapshot_id is None
    assert "ExpectMessagesToBeCounted" in result.refused
    assert found(warehouse) == before
    just_before(monkeypatch, "jobs.gate.publish", lose_a_row)
    unchecked = counted(warehouse, no_checks=True)
    assert unchecked.checks["ran"] is False
    table = tables.open_table(warehouse, CENSUS)
    assert tables.snapshot_properties(table)["checks"] == "not run"
