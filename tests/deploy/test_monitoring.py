"""The alerts and the dashboard of deploy/monitoring ask for metrics that are served.

Where Prometheus' programs are not installed, its tests are skipped; `.ci/run` takes Debian's.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from orchestration.metrics import Runs
from tests.support.dagster_processes import environment
from tests.support.dagster_project import Project, empty_project
from tests.support.programs import output_of
from tests.support.spark_cluster import daemon, free_port

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "monitoring"
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


PROMTOOL, PROMETHEUS = shutil.which("promtool"), shutil.which("prometheus")
in_prometheus = pytest.mark.skipif(
    PROMTOOL is None or PROMETHEUS is None, reason="promtool and prometheus are not on PATH"
)
FAILED = 'nats_transform_last_run_end_timestamp_seconds{job="a",status="FAILURE",archive="prod/A"}'
WELL = FAILED.replace("FAILURE", "SUCCESS")
MADE = 'nats_transform_asset_made_timestamp_seconds{asset="shop/messages"}'
SENSOR = 'nats_transform_daemon_healthy{daemon="SENSOR"}'
QUEUED = 'nats_transform_oldest_run_age_seconds{status="QUEUED"}'
OFF = {"asset": "shop/canary_watch", "name": "splits off"}
SPLITS = f'nats_transform_asset_value{{asset="{OFF["asset"]}",name="{OFF["name"]}"}}'
JOB_A = {"job": "a", "archive": "prod/A"}
JOB_B, PROD_B = WELL.replace('"a"', '"b"'), WELL.replace("prod/A", "prod/B")
# The alert, series with a value each minute, minutes at which it is silent, the minute at which it
# fires, and with what labels.
CASES: list[Any] = [
    pytest.param("Down", {}, [4], 6, {}, id="nothing is served"),
    pytest.param("Down", {SENSOR: "1x20"}, [6, 20], None, {}, id="something is served"),
    pytest.param(
        "DaemonUnhealthy", {SENSOR: "1x5 0x20"}, [5, 14], 17, {"daemon": "SENSOR"}, id="a thread"
    ),
    pytest.param(
        "RunFailed", {WELL: "1x5 300x5", FAILED: "60x10"}, [7], 3, JOB_A, id="and then one did not"
    ),
    pytest.param("RunFailed", {FAILED: "60x10", JOB_B: "99x10"}, [], 3, JOB_A, id="the only run"),
    pytest.param("RunFailed", {FAILED: "60x10", PROD_B: "99x10"}, [], 3, JOB_A, id="of one stream"),
    pytest.param("RunWaits", {QUEUED: "20000x5 22000x5"}, [4], 7, {"status": "QUEUED"}, id="waits"),
    pytest.param(
        "AssetOld",
        {MADE: "0x2000", MADE.replace("messages", "weight_audit"): "0x2000"},
        [1800],
        1802,
        {"asset": "shop/messages"},
        id="the nightly run is missing",
    ),
    pytest.param("ShareOff", {SPLITS: "0x5 6x5"}, [4], 7, OFF, id="a canary is off"),
]


@in_prometheus
def test_the_rules_are_rules() -> None:
    command = (str(PROMTOOL), "check", "rules", "--lint=all", "--lint-fatal")
    assert f"{len(RULES)} rules found" in output_of(*command, FOLDER / "rules.yaml")


@in_prometheus
@pytest.mark.parametrize(("alert", "series", "silent", "fires", "labels"), CASES)
def test_alerts_fire_when_they_should(
    tmp_path: Path,
    alert: str,
    series: dict[str, str],
    silent: list[int],
    fires: int | None,
    labels: dict[str, str],
) -> None:
    alert = f"NatsTransform{alert}"
    (rule,) = (rule for rule in RULES if rule["alert"] == alert)
    told = {
        name: re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: labels[found[1]], text).replace(
            "{{ $value }}", "6"
        )
        for name, text in rule["annotations"].items()
    }
    fired = [{"exp_labels": labels | rule["labels"], "exp_annotations": told}]
    looks = [(minute, []) for minute in silent] + ([(fires, fired)] if fires is not None else [])
    test = {
        "interval": "1m",
        "input_series": [{"series": one, "values": values} for one, values in series.items()],
        "alert_rule_test": [
            {"eval_time": f"{minute}m", "alertname": alert, "exp_alerts": expected}
            for minute, expected in looks
        ],
    }
    file = tmp_path / "test.yaml"
    rules = str(FOLDER / "rules.yaml")
    file.write_text(yaml.safe_dump({"rule_files": [rules], "tests": [test]}))
    output_of(str(PROMTOOL), "test", "rules", file)


def test_every_alert_has_a_case() -> None:
    fired = {f"NatsTransform{case.values[0]}" for case in CASES if case.values[3] is not None}
    assert fired == {rule["alert"] for rule in RULES}


@in_prometheus
@pytest.mark.dagster
@pytest.mark.slow
def test_prometheus_answers_every_panel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It scrapes the real process, evaluates the rules, and has an answer for each query."""
    with empty_project(tmp_path, monkeypatch) as project:
        folder = project.add("east", count=4)
        project.made("east", ["mapping_version"])
        (folder / "mapping.conf").write_text("mappings { a: [ { destination: b, weight: 120 } ] }")
        assert not project.materialize("east", ["mapping_version"]).success
        _scraped(project, tmp_path)


def _scraped(project: Project, folder: Path) -> None:
    port, served = free_port(), free_port()
    scraped = {
        "job_name": "nats-transform",
        "honor_labels": True,
        "static_configs": [{"targets": [f"127.0.0.1:{served}"]}],
    }
    settings = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(FOLDER / "rules.yaml")],
        "scrape_configs": [scraped],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(settings))
    exporter = [sys.executable, "-m", "orchestration.metrics", "--port", str(served)]
    prometheus = [str(PROMETHEUS), "--config.file=prometheus.yml", "--storage.tsdb.path=data"]
    prometheus.append(f"--web.listen-address=127.0.0.1:{port}")
    with (
        daemon(exporter, folder / "exporter.log", environment(project), ROOT) as metrics,
        daemon(prometheus, folder / "prometheus.log", {}, folder) as server,
    ):
        metrics.wait_for("metrics at")
        server.wait_for("Server is ready")
        firing: set[str] = set()
        while "NatsTransformRunFailed" not in firing:  # pytest's timeout ends it
            time.sleep(0.5)
            firing = {one["labels"]["alertname"] for one in ask(port, "alerts")["alerts"]}
        groups = ask(port, "rules")["groups"]
        states = {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}
        assert states == {rule["alert"]: "ok" for rule in RULES}
        empty = []
        for panel in DASHBOARD["panels"]:
            for target in panel["targets"]:
                query = re.sub(r"\$\{?(archive)(:\w+)?\}?", ".*", target["expr"])
                if not ask(port, "query", query=query)["result"]:
                    empty.append(panel["title"])
        assert set(empty) == NOTHING_YET


# No message, no audit and no run that waits.
NOTHING_YET = {
    "Oldest run that is not over",
    "Messages per second",
    "Largest deviation from a weight, in points",
    "Share of each destination, in percent",
    "Messages by fate",
}


def ask(port: int, what: str, **values: str) -> Any:
    """What Prometheus answers; a query that it cannot read is an error."""
    url = f"http://127.0.0.1:{port}/api/v1/{what}?{urllib.parse.urlencode(values)}"
    with urllib.request.urlopen(url, timeout=60) as answer:
        found = json.load(answer)
    assert found["status"] == "success", found
    return found["data"]
