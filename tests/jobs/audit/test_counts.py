"""The counts of expected audits: of transformed messages, or of a replay."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest

from jobs.audit.result import AuditError
from jobs.settings.warehouse import Warehouse
from nats_transform import Fate
from nats_transform.audit import Verdict
from tests.jobs.audit.rehearsal import DAY, archived, audit, audited, counts_of, replayed, transform
from tests.support.archive import archive
from tests.support.refused import refused


def test_an_expected_audit_counts_the_transformed_messages(warehouse: Warehouse) -> None:
    rows = archived(warehouse)
    transform(warehouse)
    result = audit(warehouse, tolerance=10, run_id="r1")
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


def test_messages_are_replayed_where_they_are_not_transformed(warehouse: Warehouse) -> None:
    archived(warehouse)
    without_table = audit(warehouse)
    transform(warehouse, first_day=DAY)
    in_part = audit(warehouse)
    transform(warehouse)
    whole = audit(warehouse)
    assert without_table.basis == in_part.basis == "messages, replayed"
    assert whole.basis == "transformed_messages"
    skip = {"basis", "run_id", "snapshot_id", "input_snapshot", "notes"}
    assert without_table.model_dump(exclude=skip) == whole.model_dump(exclude=skip)
    assert in_part.model_dump(exclude=skip) == whole.model_dump(exclude=skip)
    assert audit(warehouse, "other").basis == "messages, replayed"


def test_messages_that_came_to_a_day_after_its_transform_count(warehouse: Warehouse) -> None:
    rows = archived(warehouse)
    transform(warehouse)
    archive(warehouse, [{**rows[0], "seq": 4001}])
    result = audit(warehouse)
    assert (result.basis, result.messages) == ("messages, replayed", 4001)


def test_one_cluster(warehouse: Warehouse) -> None:
    rows = archived(warehouse)
    transform(warehouse)
    result = audit(warehouse, cluster="west")
    wanted = [row for row in rows if row["cluster"] == "west"]
    assert counts_of(result) == audited(replayed(wanted))
    assert result.messages == len(wanted)


def test_the_named_cluster_stands_in_where_messages_have_none(warehouse: Warehouse) -> None:
    rows = archived(warehouse, clusters=("west", None))
    transform(warehouse)
    assert any("have no cluster name" in note for note in audit(warehouse).notes)
    result = audit(warehouse, cluster="east")
    wanted = [row | {"cluster": "east"} for row in rows if row["cluster"] is None]
    assert counts_of(result) == audited(replayed(wanted))


@pytest.mark.parametrize(
    ("more", "fields"),
    [
        ({"first_day": date(2020, 1, 1)}, {"of_cluster": "", "days": "2020-01-01"}),
        ({"cluster": "north"}, {"of_cluster": " of cluster north", "days": "any day"}),
    ],
    ids=["empty range", "unknown cluster"],
)
def test_nothing_in_range(
    warehouse: Warehouse, more: dict[str, Any], fields: dict[str, str]
) -> None:
    archived(warehouse, count=50)
    with refused(AuditError, "audit-without-messages", stream="S", **fields):
        audit(warehouse, **more)
