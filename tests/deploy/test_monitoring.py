"""The alerts and the dashboard of deploy/monitoring ask for metrics that are served."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from orchestration.metrics import Runs

FOLDER = Path(__file__).parents[2] / "deploy" / "monitoring"
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((FOLDER / "rules.yaml").read_text())["groups"]
    for rule in group["rules"]
]
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text())
ASKED = [
    *((rule["alert"], rule["expr"]) for rule in RULES),
    *(
        (panel["title"], target["expr"])
        for panel in DASHBOARD["panels"]
        for target in panel["targets"]
    ),
    *((one["name"], one["query"]["query"]) for one in DASHBOARD["templating"]["list"][1:]),
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Metric -> the names of its labels, from an instance with a run and an asset."""
    with dg.DagsterInstance.local_temp(str(tmp_path_factory.mktemp("dagster"))) as instance:

        @dg.asset
        def made() -> dg.MaterializeResult[None]:
            return dg.MaterializeResult(metadata={"messages": 1})

        dg.materialize([made], instance=instance)
        instance.create_run_for_job(dg.job(name="queued")(lambda: None))
        found = {}
        for family in Runs(instance).collect():
            labels = {label for sample in family.samples for label in sample.labels}
            found[family.name] = labels | set(family._labelnames)
        return found


@pytest.mark.parametrize(("title", "asked"), ASKED, ids=[title for title, _ in ASKED])
def test_asks_for_what_is_served(title: str, asked: str, served: dict[str, set[str]]) -> None:
    names = set(re.findall(r"nats_transform_\w+", asked))
    assert names
    assert names <= served.keys()
    labels = {label for name in names for label in served[name]}
    for block in re.findall(r"\{(.*?)\}", asked):
        assert set(re.findall(r"(\w+)\s*(?:=~|!=|!~|=)", block)) <= labels


def test_alerts_name_labels_that_are_served_and_a_cure(served: dict[str, set[str]]) -> None:
    for rule in RULES:
        assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
        labels = {label for name in served if name in rule["expr"] for label in served[name]}
        texts = rule["annotations"]
        assert set(re.findall(r"\$labels\.(\w+)", " ".join(texts.values()))) <= labels
        assert texts["summary"]
        assert texts["action"]


def test_panels_do_not_overlap_and_name_labels_that_are_served(
    served: dict[str, set[str]],
) -> None:
    cells: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        own = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not own & cells
        assert max(x for x, _ in own) < 24
        cells |= own
        for target in panel["targets"]:
            labels = {label for name in served if name in target["expr"] for label in served[name]}
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= labels
