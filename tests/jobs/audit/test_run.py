"""The audit job on real tables."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from jobs.audit.headline import headline
from jobs.audit.run import run
from jobs.settings.audit import AuditSettings
from jobs.settings.warehouse import Warehouse
from nats_transform.audit import Period, Verdict
from tests.jobs.audit.rehearsal import HERE, MAPPINGS, archived, audit, observe
from tests.support.archive import archive, message
from tests.support.rules import mappings as account


def test_versions_in_force_are_replayed_in_their_own_time(warehouse: Warehouse) -> None:
    rows = archived(warehouse)
    change = datetime(2026, 3, 2, 0, 30, tzinfo=UTC)
    later = account({"shop.*": [("v1.$1", 10)]})
    periods = [Period(MAPPINGS, "one", None, change), Period(later, "two", change, None)]
    result = audit(warehouse, periods=periods, by="hour")
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


def test_a_mapping_without_weights(warehouse: Warehouse) -> None:
    result = audit(warehouse, periods=[Period(account({"plain": "renamed"}), "v")])
    assert result.verdict is Verdict.NOTHING
    assert result.notes == ("no mapping in m.conf has weights, so there is nothing to audit",)
    assert not warehouse.folder.exists()


@pytest.mark.spark
def test_spark_counts_the_same(spark: SparkSession, warehouse: Warehouse) -> None:
    archived(warehouse)
    for more in ({"observed": True}, {"observed": False}):
        settings = AuditSettings(
            stream="S", mapping=Path("m"), warehouse=warehouse, key=1, run_id="r", **more
        )
        skip = {"snapshot_id"}
        one, other = (
            run(where, settings, [Period(MAPPINGS, "v")]).model_dump(exclude=skip)
            for where in (spark, HERE)
        )
        assert (one.pop("engine"), other.pop("engine")) == ("spark", "process")
        assert one == other
        assert one["keys"]


def test_what_got_no_message_is_named(warehouse: Warehouse) -> None:
    west = [("w.v1.$1", 50, "west"), ("w.v2.$1", 50, "west")]
    config = account(
        {"shop.*": [("v1.$1", 50), ("v2.$1", 50), *west], "rare": [("a", 50), ("b", 50)]}
    )
    start = datetime(2026, 3, 1, tzinfo=UTC)
    rows = [
        message(n, f"v{n % 2 + 1}.x", start, stream="OUT", cluster="east") for n in range(1, 9_001)
    ]
    result = observe(warehouse, config, rows, sequential=True)
    assert result.verdict is Verdict.WITHIN
    assert any("rare, shop.* in west, which got no message" in note for note in result.notes)
    assert "within the tolerance in 1 of 2 rules" in headline(result)
    assert [result.fails(level) for level in ("outside", "undecided", "nothing")] == [0, 0, 1]
    assert not any("west" in note for note in observe(warehouse, config, cluster="east").notes)


def test_a_version_without_a_message_is_no_mapping_without_one(warehouse: Warehouse) -> None:
    """The days of an audit need not be those of every version."""
    config = account({"shop.*": [("v1.$1", 50), ("v2.$1", 50)]})
    start = datetime(2026, 3, 1, tzinfo=UTC)
    archive(warehouse, [message(n, f"v{n % 2 + 1}.x", start, stream="OUT") for n in range(9_000)])
    named: Any = {"stream": "OUT", "mapping": "m", "warehouse": warehouse, "tolerance": 5}
    settings = AuditSettings(**named, observed=True, sequential=True)
    change = datetime(2026, 3, 2, tzinfo=UTC)
    periods = [Period(config, "one", None, change), Period(config, "two", change, None)]
    result = run(HERE, settings, periods)
    assert [rule.verdict for rule in result.rules] == [Verdict.WITHIN, Verdict.NOTHING]
    assert "within the tolerance in the one rule" in headline(result)
    assert not result.fails("nothing")
    assert not any("no message" in note for note in result.notes)
