"""The audit job on real tables."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from jobs.audit.run import WEIGHT_AUDIT, AuditError, AuditResult, AuditSettings, run
from jobs.transform import TransformSettings, publish, stage
from jobs.warehouse import tables
from nats_transform import AccountMappings, Destination, Fate, Mapping
from nats_transform.audit import Period, Verdict
from tests.support.archive import Row, archive, message

pytestmark = pytest.mark.spark

DAY = date(2026, 3, 1)
MAPPINGS = AccountMappings(
    [
        Mapping("shop.*", [Destination("v1.$1", 75), Destination("v2.{{partition(4,1)}}", 25)]),
        Mapping("east.*", [Destination("e.$1", 50, "east"), Destination("all.$1", 100)]),
        Mapping("drop", [Destination("kept", 60), Destination("drop", 0)]),
        Mapping("plain", [Destination("renamed")]),
    ]
)
SUBJECTS = ["shop.{}", "shop.{}", "east.{}", "drop", "plain", "other.{}", "a..b"]


def messages(count: int = 4000, days: int = 2, clusters: Sequence[str | None] = ("east", "west")):
    start = datetime(2026, 3, 1, tzinfo=UTC)
    for seq in range(1, count + 1):
        ts = start + timedelta(days=days) * ((seq - 1) / count)
        subject = SUBJECTS[seq % len(SUBJECTS)].format(seq % 97)
        cluster = clusters[seq // len(SUBJECTS) % len(clusters)]
        yield message(seq, subject, ts, cluster=cluster, data=b"payload")


def transform(spark: SparkSession, warehouse: tables.Warehouse, **more: Any) -> None:
    settings = TransformSettings(stream="S", mapping=Path("m"), warehouse=warehouse, **more)
    publish(stage(spark, settings, MAPPINGS, "v"))


def audit(
    spark: SparkSession, warehouse: tables.Warehouse, version: str = "v", **more: Any
) -> AuditResult:
    settings = AuditSettings(stream="S", mapping=Path("m.conf"), warehouse=warehouse, **more)
    return run(spark, settings, [Period(MAPPINGS, version)])


def replayed(rows: Sequence[Row], seed: int = 0) -> dict[tuple[str | None, ...], int]:
    """Counts by mapping, cluster and destination from the scalar path."""
    counts: dict[tuple[str | None, ...], int] = {}
    for row in rows:
        outcome = MAPPINGS.replay(
            row["subject"], row["cluster"], stream="S", seq=row["seq"], seed=seed
        )
        key = (outcome.mapping_source, row["cluster"], outcome.mapping_destination)
        counts[key] = counts.get(key, 0) + 1
    return counts


def counts_of(result: AuditResult) -> dict[tuple[str | None, ...], int]:
    return {
        (rule.source, rule.cluster, end.destination): end.count
        for rule in result.rules
        for end in rule.destinations
        if end.count
    }


def audited(counts: dict[tuple[str | None, ...], int]) -> dict[tuple[str | None, ...], int]:
    return {key: count for key, count in counts.items() if key[0] not in (None, "plain")}


def test_an_expected_audit_counts_the_transformed_messages(
    spark: SparkSession, warehouse: tables.Warehouse
) -> None:
    rows = list(messages())
    archive(spark, warehouse, rows)
    transform(spark, warehouse)
    result = audit(spark, warehouse, tolerance=10, run_id="r1")
    assert result.basis == "transformed_messages"
    assert counts_of(result) == audited(replayed(rows))
    assert result.messages == len(rows) == sum(result.fates.values())
    assert set(result.fates) == {fate.value for fate in Fate}
    assert [(rule.source, rule.cluster) for rule in result.rules] == [
        (source, cluster) for source in ("shop.*", "east.*", "drop") for cluster in ("east", "west")
    ]
    lost = next(rule for rule in result.rules if rule.source == "drop").destinations[-1]
    assert (lost.end, lost.destination, lost.weight) == ("lost", None, 40)
    east = next(rule for rule in result.rules if rule.source == "east.*")
    assert [(end.end, end.weight) for end in east.destinations] == [
        ("destination", 50),
        ("remainder", 50),
    ]
    assert result.verdict is Verdict.UNDECIDED
    assert (result.from_, result.to) == (
        datetime(2026, 3, 1, tzinfo=UTC),
        datetime(2026, 3, 3, tzinfo=UTC),
    )


def test_the_table_has_a_row_for_each_destination_and_day(
    spark: SparkSession, warehouse: tables.Warehouse
) -> None:
    archive(spark, warehouse, list(messages()))
    transform(spark, warehouse)
    result = audit(spark, warehouse, run_id="r1")
    table = tables.open_table(warehouse, WEIGHT_AUDIT)
    there = tables.read(spark, table, WEIGHT_AUDIT).collect()
    assert {row["mapping_version"] for row in there} == {"v"}
    assert {row["day"] for row in there} == {DAY, DAY + timedelta(days=1)}
    assert len(there) == sum(
        len(split.destinations) for rule in result.rules for split in rule.buckets
    )
    assert sum(row["count"] for row in there) == sum(rule.messages for rule in result.rules)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.snapshot_id == result.snapshot_id
    assert tables.snapshot_properties(table)["run-id"] == "r1"

    # Again for one day and another version: each takes the place of its own rows only.
    audit(spark, warehouse, run_id="r2", first_day=DAY)
    audit(spark, warehouse, "v2", run_id="r3", first_day=DAY)
    table.refresh()
    again = tables.read(spark, table, WEIGHT_AUDIT).collect()
    assert {(row["day"].day, row["mapping_version"], row["run_id"]) for row in again} == {
        (1, "v", "r2"),
        (2, "v", "r1"),
        (1, "v2", "r3"),
    }
    assert len(again) == len(there) // 2 * 3


def test_messages_are_replayed_where_they_are_not_transformed(
    spark: SparkSession, warehouse: tables.Warehouse
) -> None:
    rows = list(messages())
    archive(spark, warehouse, rows)
    without_table = audit(spark, warehouse)
    transform(spark, warehouse, first_day=DAY)
    in_part = audit(spark, warehouse)
    transform(spark, warehouse)
    whole = audit(spark, warehouse)
    assert without_table.basis == in_part.basis == "messages, replayed"
    assert whole.basis == "transformed_messages"
    skip = {"basis", "run_id", "snapshot_id", "input_snapshot"}
    assert without_table.model_dump(exclude=skip) == whole.model_dump(exclude=skip)
    assert in_part.model_dump(exclude=skip) == whole.model_dump(exclude=skip)
    assert audit(spark, warehouse, "other").basis == "messages, replayed"


def test_partition_balance(spark: SparkSession, warehouse: tables.Warehouse) -> None:
    rows = list(messages())
    archive(spark, warehouse, rows)
    (balance,) = audit(spark, warehouse).partitions
    counts = [0] * 4
    for row in rows:
        outcome = MAPPINGS.replay(row["subject"], row["cluster"], stream="S", seq=row["seq"])
        if outcome.mapping_destination == "v2.{{partition(4,1)}}":
            assert outcome.subject is not None
            counts[int(outcome.subject.split(".")[1])] += 1
    assert balance.counts == tuple(counts)
    assert balance.busiest == max(counts) * 4 / sum(counts)


def test_one_cluster(spark: SparkSession, warehouse: tables.Warehouse) -> None:
    rows = list(messages())
    archive(spark, warehouse, rows)
    transform(spark, warehouse)
    result = audit(spark, warehouse, cluster="west")
    wanted = [row for row in rows if row["cluster"] == "west"]
    assert counts_of(result) == audited(replayed(wanted))
    assert result.messages == len(wanted)


def test_the_named_cluster_stands_in_where_messages_have_none(
    spark: SparkSession, warehouse: tables.Warehouse
) -> None:
    rows = list(messages(clusters=("west", None)))
    archive(spark, warehouse, rows)
    transform(spark, warehouse)
    assert any("do not say their cluster" in note for note in audit(spark, warehouse).notes)
    result = audit(spark, warehouse, cluster="east")
    wanted = [row | {"cluster": "east"} for row in rows if row["cluster"] is None]
    assert counts_of(result) == audited(replayed(wanted))


def test_keys_that_saw_more_than_one_destination(
    spark: SparkSession, warehouse: tables.Warehouse
) -> None:
    rows = list(messages())
    archive(spark, warehouse, rows)
    result = audit(spark, warehouse, key=1)
    ends: dict[tuple[str, str], set[str | None]] = {}
    for row in rows:
        outcome = MAPPINGS.replay(row["subject"], row["cluster"], stream="S", seq=row["seq"])
        if outcome.mapping_source in ("shop.*", "east.*"):
            key = outcome.mapping_source, row["subject"].split(".")[1]
            ends.setdefault(key, set()).add(outcome.mapping_destination)
    assert [(k.source, k.wildcard, k.keys, k.split) for k in result.keys] == [
        (
            source,
            1,
            sum(key[0] == source for key in ends),
            sum(key[0] == source and len(saw) > 1 for key, saw in ends.items()),
        )
        for source in ("east.*", "shop.*")
    ]


def test_versions_in_force_are_replayed_in_their_own_time(
    spark: SparkSession, warehouse: tables.Warehouse
) -> None:
    rows = list(messages())
    archive(spark, warehouse, rows)
    change = datetime(2026, 3, 2, 0, 30, tzinfo=UTC)
    later = AccountMappings([Mapping("shop.*", [Destination("v1.$1", 10)])])
    settings = AuditSettings(stream="S", mapping=Path("m.conf"), warehouse=warehouse, by="hour")
    periods = [Period(MAPPINGS, "one", None, change), Period(later, "two", change, None)]
    result = run(spark, settings, periods)
    for version, mappings in (("one", MAPPINGS), ("two", later)):
        (east,) = (
            rule
            for rule in result.rules
            if (rule.source, rule.cluster, rule.mapping_version) == ("shop.*", "east", version)
        )
        outcomes = Counter(
            mappings.replay(row["subject"], "east", stream="S", seq=row["seq"]).mapping_destination
            for row in rows
            if row["cluster"] == "east"
            and row["subject"].startswith("shop.")
            and (row["ts"] < change) == (version == "one")
        )
        assert {end.destination: end.count for end in east.destinations} == outcomes
        start, end = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 3, 3, tzinfo=UTC)
        assert (east.from_, east.to) == ((start, change) if version == "one" else (change, end))


def test_no_message_says_its_cluster(spark: SparkSession, warehouse: tables.Warehouse) -> None:
    archive(spark, warehouse, list(messages(clusters=(None,))))
    with pytest.raises(AuditError, match=r"east\.\* has weights for clusters, but none of its"):
        audit(spark, warehouse)


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"first_day": date(2020, 1, 1)}, "no messages of stream S on 2020-01-01"),
        ({"cluster": "north"}, "no messages of stream S of cluster north on any day"),
    ],
    ids=["empty range", "unknown cluster"],
)
def test_nothing_in_range(
    spark: SparkSession, warehouse: tables.Warehouse, more: dict[str, Any], text: str
) -> None:
    archive(spark, warehouse, list(messages(count=50)))
    with pytest.raises(AuditError, match=text):
        audit(spark, warehouse, **more)


def test_a_mapping_without_weights(spark: SparkSession, warehouse: tables.Warehouse) -> None:
    settings = AuditSettings(stream="S", mapping=Path("m.conf"), warehouse=warehouse)
    plain = AccountMappings([Mapping("plain", [Destination("renamed")])])
    result = run(spark, settings, [Period(plain, "v")])
    assert result.verdict is Verdict.NOTHING
    assert result.notes == ("no mapping in m.conf has weights: nothing to audit",)
    assert not warehouse.folder.exists()


def test_json_has_the_names_of_the_design(spark: SparkSession, warehouse: tables.Warehouse) -> None:
    archive(spark, warehouse, list(messages(count=500)))
    document = json.loads(audit(spark, warehouse, by="hour").model_dump_json())
    assert {"verdict", "rules"} <= set(document)
    rule = document["rules"][0]
    assert {"source", "cluster", "from", "to", "verdict", "messages", "destinations"} <= set(rule)
    assert {"destination", "weight", "count", "share", "low", "high", "verdict"} <= set(
        rule["destinations"][0]
    )
    assert len(rule["buckets"]) > 24
    assert AuditResult.model_validate(document).model_dump(mode="json") == document


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"tolerance": 0}, "a tolerance of 0 can never be shown to hold"),
        ({"confidence": 1}, "a confidence of 1: give one between 0 and 1"),
        ({"captured": ("a",)}, "are of an observed audit only"),
        ({"observed": True, "publishers": ("a..b",)}, "'a..b' is not a valid subject filter"),
        ({"key": 0}, "greater than or equal to 1"),
        ({"last_day": DAY}, "the last day needs a first day"),
        ({"first_day": DAY, "last_day": DAY - timedelta(days=1)}, "not after it"),
    ],
    ids=[
        "tolerance 0",
        "confidence 1",
        "observed only",
        "no filter",
        "key 0",
        "no first day",
        "days backwards",
    ],
)
def test_settings_that_are_refused(more: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        AuditSettings(stream="S", mapping=Path("m.conf"), **more)
