"""The demo as a newcomer runs it, only smaller."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections import Counter
from datetime import date, timedelta
from pathlib import Path
from statistics import median

import pytest

from tests.support.command import nats_transform
from tests.support.programs import SCRIPT, output_of
from tests.support.saying import saying
from tests.support.spark_cluster import children

pytestmark = [pytest.mark.dagster, pytest.mark.server]

DEMO = [SCRIPT, "demo"]
CHECKS = {
    "shop/messages/no_unexplained_gaps",
    "shop/messages/every_message_once",
    "shop/messages/subjects_are_legal",
    "shop/transformed_messages/every_message_once",
    "shop/transformed_messages/same_result_twice",
    "shop/transformed_messages/partitions_steady_and_even",
    "shop/transformed_messages/subjects_are_legal",
    "shop/transformed_messages/weights_within_tolerance",
    "shop_mapped/messages/no_unexplained_gaps",
    "shop_mapped/messages/every_message_once",
    "shop_mapped/messages/subjects_are_legal",
}
STALE = "shop_mapped/weight_audit/split_as_configured"


@pytest.mark.slow
def test_gives_the_same_digest_again(tmp_path: Path) -> None:
    folder = tmp_path / "a demo"  # a space, as many home folders have
    command = [*DEMO, "--messages", "2000", "--json", "--dir", str(folder)]
    first, second = (json.loads(output_of(*command)) for _ in range(2))
    assert first["checks"] == dict.fromkeys(CHECKS, True) | {STALE: False}
    for run in (first, second):
        assert run["caught"] == "west ran yesterday's weights from 13:00 to 14:00"
        assert run["observed"].startswith(
            "Observed: outside the tolerance: orders.*.*.created in west "
            f"from {(date.fromisoformat(first['days'][0]) + timedelta(days=1))} 13:00 to 14:00 UTC"
        )
    assert (first["same_as_before"], second["same_as_before"]) == (None, True)
    assert first["digest"] == second["digest"]
    (observed,) = (folder / "reports").glob("shop_mapped-observed-*.json")
    assert "<svg" in observed.with_suffix(".html").read_text()
    parts = [
        part
        for rule in json.loads(observed.read_text())["rules"]
        for part in (rule, *rule["buckets"], *rule["regimes"])
    ]
    assert len(parts) > 5
    assert {part["verdict"] for part in parts} == {"within", "outside", "nothing to audit"}
    # The traffic is spread over its days: no hour stands out.
    (rehearsal,) = (folder / "reports").glob("shop-rehearsal-*.json")
    hours: Counter[str] = Counter()
    for rule in json.loads(rehearsal.read_text())["rules"]:
        for start, counts in zip(*rule["timeline"].values(), strict=True):
            hours[start] += sum(counts)
    assert len(hours) > 48
    assert max(hours.values()) < 3 * median(hours.values())


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_stops_its_server_when_it_is_stopped(tmp_path: Path, number: signal.Signals) -> None:
    command = [*DEMO, "--messages", "20000", "--dir", str(tmp_path / "demo")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as demo:
        while not (servers := children({demo.pid}, b"nats-server")):
            assert demo.poll() is None
            time.sleep(0.05)
        demo.send_signal(number)
        told = demo.stderr.read()
    assert demo.returncode == 128 + number
    first, *_, last = told.splitlines() * 2
    assert first.endswith("starting nats-server")
    assert (last == "nats-transform: interrupted") is (number == signal.SIGINT)
    assert not [pid for pid in servers if Path(f"/proc/{pid}").exists()]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["--server", "nats://127.0.0.1:1"], "127.0.0.1:1", id="no server there"),
        pytest.param(["--dir", "."], saying("demo-folder-not-empty"), id="of others"),
        pytest.param(["--dir", "full/demo"], "full", id="a file in the way"),
        pytest.param(["--messages", "5"], "messages", id="too few messages"),
    ],
)
def test_bad_input_is_one_line(folder: Path, arguments: list[str], said: str) -> None:
    (folder / "full").write_text("a file")
    code, out, err = nats_transform("demo", "--messages", "1000", *arguments)
    last = err.strip().splitlines()[-1]
    assert (code, out) == (2, "")
    assert last.startswith("nats-transform")
    assert re.search(said, last)
    assert "Traceback" not in err
