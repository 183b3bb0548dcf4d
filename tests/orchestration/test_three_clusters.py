"""Audits of what three real clusters did: one has stale weights for an hour, one day is a ramp."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from jobs.settings.warehouse import Warehouse
from orchestration.demo.clusters import Change, write_mapped
from orchestration.demo.traffic import CLUSTER_HEADER, CLUSTERS, Message
from tests.support.command import document
from tests.support.jobs import archived

pytestmark = [pytest.mark.server, pytest.mark.slow]

DAY = date(2026, 3, 1)
COUNT = 200_000
SUBJECTS = ["shop.>", "v1.>", "v2.>", "west.>"]
TOLERANCE = "5"


def mapping(canary: int, west: int) -> str:
    return f"""mappings {{
  "shop.*": [
    {{ destination: "v1.$1", weight: {100 - canary}% }}
    {{ destination: "v2.$1", weight: {canary}% }}
    {{ destination: "west.v1.$1", weight: {100 - west}%, cluster: west }}
    {{ destination: "west.v2.$1", weight: {west}%, cluster: west }}
  ]
}}
"""


# A canary of 2 % has a tolerance of one point, for which there are too few messages here.
NOW, YESTERDAY = mapping(10, 10), mapping(10, 30)


def traffic(count: int) -> Iterator[Message]:
    rng = random.Random(1)
    for n in range(count):
        header = ((CLUSTER_HEADER, rng.choice(CLUSTERS)),)
        yield Message(f"shop.{n % 500}", header, b"")


def store(folder: Path, count: int, mappings: str, changes: list[Change]) -> None:
    """Archives what the clusters store."""
    file, warehouse = folder / "mapped.parquet", Warehouse(dir=folder / "warehouse")
    write_mapped(file, DAY, traffic(count), count, SUBJECTS, mappings, changes)
    assert archived(warehouse, parquet=str(file), cluster_header=CLUSTER_HEADER).added > 0


def verdicts(document: dict, name: str = "buckets") -> dict[tuple[str, str], str]:
    return {
        (rule["cluster"], bucket["from"]): bucket["verdict"]
        for rule in document["rules"]
        for bucket in rule[name]
    }


def test_exactly_the_stale_cluster_and_hour_are_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`test_observed.py` has the same under Dagster."""
    monkeypatch.chdir(tmp_path)
    changes = [Change(13, "west", YESTERDAY), Change(14, "west", NOW)]
    store(tmp_path, COUNT, NOW, changes)
    (tmp_path / "mapping.conf").write_text(NOW)
    found = document(
        *("audit", "--stream", "S", "--mapping", "mapping.conf", "--observed"),
        *("--by", "hour", "--tolerance", TOLERANCE),
        code=1,
    )
    assert found["messages"] == COUNT
    expected = {
        (cluster, f"2026-03-01T{hour:02}:00:00Z"): "within"
        for cluster, hour in itertools.product(CLUSTERS, range(24))
    }
    expected["west", "2026-03-01T13:00:00Z"] = "outside"
    assert verdicts(found) == expected
    assert {rule["cluster"]: rule["verdict"] for rule in found["rules"]} == {
        "central": "within",
        "east": "within",
        "west": "outside",
    }


def test_a_ramp_is_within_in_each_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    stages = {8: mapping(10, 10), 16: mapping(50, 50)}
    changes = [Change(h, name, text) for h, text in stages.items() for name in CLUSTERS]
    store(tmp_path, 60_000, mapping(5, 5), changes)
    (tmp_path / "5.conf").write_text(mapping(5, 5))
    command = ["audit", "--stream", "S", "--mapping", "5.conf", "--observed"]
    command += ["--tolerance", TOLERANCE]
    assert document(*command, code=1)["verdict"] == "outside"
    for hour, text in stages.items():
        (tmp_path / f"{hour}.conf").write_text(text)
        moment = datetime(2026, 3, 1, tzinfo=UTC) + timedelta(hours=hour)
        command += ["--in-force", f"{moment.isoformat()}={hour}.conf"]
    found = document(*command)
    assert [stage["verdict"] for stage in found["in_force"]] == ["within"] * 3
    assert {rule["verdict"] for rule in found["rules"]} == {"within"}
    assert len(found["rules"]) == 9
