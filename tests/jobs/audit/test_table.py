"""The table `weight_audit`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from jobs.settings.warehouse import Warehouse
from jobs.warehouse import tables
from jobs.warehouse.specs import WEIGHT_AUDIT
from nats_transform.audit import Period
from tests.jobs.audit.rehearsal import DAY, MAPPINGS, VERSION, archived, audit, transform


def test_the_table_has_a_row_for_each_destination_and_day(warehouse: Warehouse) -> None:
    archived(warehouse)
    transform(warehouse)
    result = audit(warehouse, run_id="r1")
    table = tables.open_table(warehouse, WEIGHT_AUDIT)
    there = table.scan().to_arrow().to_pylist()
    assert {row["mapping_version"] for row in there} == {VERSION}
    assert {row["day"] for row in there} == {DAY, DAY + timedelta(days=1)}
    assert len(there) == sum(
        len(split.destinations) for rule in result.rules for split in rule.buckets
    )
    assert sum(row["count"] for row in there) == sum(rule.messages for rule in result.rules)
    assert tables.snapshot_id(table) == result.snapshot_id
    assert tables.snapshot_properties(table)["run-id"] == "r1"

    # Again for one day and another version: each takes the place of its own rows only.
    audit(warehouse, run_id="r2", first_day=DAY)
    audit(warehouse, "v2", run_id="r3", first_day=DAY)
    table.refresh()
    again = table.scan().to_arrow().to_pylist()
    assert {(row["day"].day, row["mapping_version"], row["run_id"]) for row in again} == {
        (1, VERSION, "r2"),
        (2, VERSION, "r1"),
        (1, "v2", "r3"),
    }
    assert len(again) == len(there) // 2 * 3


def test_the_audit_of_a_cluster_takes_the_place_of_its_own_rows(warehouse: Warehouse) -> None:
    archived(warehouse)
    for run_id, cluster in (("1", "east"), ("2", "west"), ("3", "east")):
        audit(warehouse, run_id=run_id, cluster=cluster)
    rows = tables.open_table(warehouse, WEIGHT_AUDIT).scan().to_arrow().to_pylist()
    assert {(row["cluster"], row["run_id"]) for row in rows} == {("west", "2"), ("east", "3")}


def test_an_audit_of_several_versions_takes_the_place_of_all_its_rows(warehouse: Warehouse) -> None:
    archived(warehouse)
    change = datetime(2026, 3, 2, tzinfo=UTC)
    periods = [Period(MAPPINGS, "one", None, change), Period(MAPPINGS, "two", change, None)]
    counts = []
    for run_id in "12":
        audit(warehouse, periods=periods, run_id=run_id)
        rows = tables.open_table(warehouse, WEIGHT_AUDIT).scan().to_arrow().to_pylist()
        counts.append(len(rows))
        assert {row["run_id"] for row in rows} == {run_id}
    assert counts[0] == counts[1]
