"""The table `weight_audit`."""

from __future__ import annotations

from datetime import timedelta

from jobs.warehouse import tables
from jobs.warehouse.specs import WEIGHT_AUDIT
from tests.jobs.audit.rehearsal import (
    DAY,
    VERSION,
    audit,
    messages,
    transform,
)
from tests.support.archive import archive


def test_the_table_has_a_row_for_each_destination_and_day(warehouse: tables.Warehouse) -> None:
    archive(warehouse, list(messages()))
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
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.snapshot_id == result.snapshot_id
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
