"""The image, and the set-up of deploy/compose.yaml: built, started, and a schedule runs in it.

Needs a container engine with compose, and the images that the Dockerfile and compose name: pulled
from where you get images, or made by hand under these names where there is no such place.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import nats
import pytest

from tests.deploy.parts import COUNT, ENDED, PASSWORD, YAML, ask, make_archive, runs_that, until
from tests.support.programs import ended

pytestmark = [pytest.mark.dagster, pytest.mark.slow, pytest.mark.containers]

ROOT = Path(__file__).parents[2]
URL = "http://127.0.0.1:3000"
LIVE = 3000
"""Messages that go through the nats-server of the set-up."""
BACKFILL = """mutation { launchPartitionBackfill(backfillParams: {
  assetSelection: [{path: ["live", "messages"]}, {path: ["live", "transformed_messages"]}],
  partitionNames: ["DAY"]
}) { __typename ... on PythonError { message } } }"""
COUNTS = """
import json
from pyiceberg.catalog import load_catalog
table = load_catalog("archive").load_table(("nats", "transformed_messages"))
rows = table.scan(selected_fields=("stream", "fate")).to_arrow().to_pylist()
print(json.dumps(sorted([row["stream"], row["fate"]] for row in rows)))
"""


@dataclass
class Compose:
    """The running set-up."""

    day: date
    command: list[str]
    environment: dict[str, str]

    def __call__(self, *arguments: str, fails: bool = False) -> str:
        """What a command of compose prints; its exit code is looked at."""
        done = ended(*self.command, *arguments, cwd=ROOT, env=self.environment)
        assert bool(done.returncode) is fails, done.stdout + done.stderr
        return done.stdout + (done.stderr if fails else "")

    def in_code(self, *command: str) -> str:
        """What a command prints in the container of the code server, with the secrets."""
        return self("exec", "-T", "code", "deploy/with_secrets.sh", *command)


@pytest.fixture(scope="module")
def compose(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compose]:
    docker = shutil.which("docker")
    for asks in (["info"], ["compose", "version"]):
        if docker is None or ended(docker, *asks).returncode:
            pytest.skip("no container engine with compose here")
    root = tmp_path_factory.mktemp("compose")
    root.chmod(0o755)  # the containers' user reads the archives
    today = datetime.now(UTC).date()
    day = today - timedelta(days=1)
    make_archive(root / "archives" / "orders", day, Path("/srv/reports/orders"))
    make_live_archive(root / "archives" / "live", day)
    (root / "password").write_text(PASSWORD + "\n")
    changed = {"secrets": {"postgres-password": {"file": str(root / "password")}}}
    (root / "changed.yaml").write_text(json.dumps(changed))
    files = ["--file", "deploy/compose.yaml", "--file", str(root / "changed.yaml")]
    made = Compose(
        day,
        [str(docker), "compose", "--project-name", "nats-transform-test", *files],
        os.environ | {"ARCHIVES": str(root / "archives"), "DOCKER_BUILDKIT": "1"},
    )
    try:
        made("build", "code")
        made("up", "--detach", "--wait")
        yield made
    finally:
        made("down", "--volumes", "--timeout", "5")


def make_live_archive(folder: Path, start: date) -> None:
    """An archive of the stream in the nats-server of the set-up."""
    shutil.copytree(folder.parent / "orders", folder)
    (folder / "messages.jsonl").unlink()
    text = YAML.format(start=start, reports="/srv/reports/live")
    for ours, here in (
        ("name: orders", "name: live"),
        ("stream: ORDERS", "stream: LIVE"),
        ("- jsonl: messages.jsonl", "- { server: 'nats://nats:4222', from_stream: ORDERS }"),
        (text[text.index("  nightly") :], "  include_today: true\n"),
    ):
        assert ours in text
        text = text.replace(ours, here)
    (folder / "defs.yaml").write_text(text)


def counts(compose: Compose) -> dict[str, int]:
    """Mapped messages in the table by stream; every message must be one."""
    rows = json.loads(compose.in_code("python", "-c", COUNTS))
    assert {fate for _, fate in rows} == {"mapped"}
    streams = [stream for stream, _ in rows]
    return {stream: streams.count(stream) for stream in set(streams)}


def test_every_service_is_healthy(compose: Compose) -> None:
    lines = compose("ps", "--all", "--format", "json").splitlines()
    services: list[dict[str, Any]] = [json.loads(line) for line in lines]
    assert len(services) == 9
    assert {service["Health"] for service in services} == {"healthy"}, services


def test_the_containers_are_locked_down(compose: Compose) -> None:
    assert compose("exec", "-T", "code", "id", "-u").strip() == "10001"
    refused = compose("exec", "-T", "code", "touch", "/opt/project/new", fails=True)
    assert "Read-only file system" in refused


@pytest.fixture(scope="module")
def runs(compose: Compose) -> list[dict[str, Any]]:
    """What has run once the schedule has ticked and a day of the stream is filled, newest first."""
    asyncio.run(publish())
    today = datetime.now(UTC).date()
    ask(URL, BACKFILL.replace("DAY", today.isoformat()))

    def both() -> Any:
        runs = runs_that(URL, *ENDED)
        assert {run["status"] for run in runs} <= {"SUCCESS"}, compose("logs", "--tail=80", "code")
        return {run["jobName"] for run in runs} >= {"orders_reprocess", "__ASSET_JOB"} and runs

    ended: list[dict[str, Any]] = until(both)
    return ended


def test_a_tick_of_the_schedule_and_a_stream_run_to_the_end(
    compose: Compose, runs: list[dict[str, Any]]
) -> None:
    """Files of an archive and a live stream, by drivers in `code` and executors in workers."""
    (tick, *_) = [run for run in runs if run["jobName"] == "orders_reprocess"]
    assert tick["tags"]["dagster/schedule_name"] == "orders_nightly"
    assert tick["tags"]["dagster/partition"] == compose.day.isoformat()
    assert counts(compose) == {"ORDERS": COUNT, "LIVE": LIVE}
    assert "Asked to launch executor" in compose("logs", "spark-worker")


async def publish() -> None:
    """A stream of LIVE messages, all of today."""
    client = await nats.connect("nats://127.0.0.1:4222")
    stream = client.jetstream()
    await stream.add_stream(name="ORDERS", subjects=["orders.*"])
    for n in range(LIVE):
        await stream.publish(f"orders.{n}", b"x")
    await client.close()


@pytest.mark.usefixtures("runs")
def test_maintenance_and_metrics(compose: Compose) -> None:
    done = compose.in_code("nats-transform", "maintain", "--catalog", "archive", "--json")
    assert json.loads(done)["messages"]["snapshots_left"] >= 1
    with urllib.request.urlopen("http://127.0.0.1:9464/metrics", timeout=600) as page:
        text = page.read().decode()
    assert re.search(r'^nats_transform_runs\{status="SUCCESS"\} [1-9]', text, re.MULTILINE)


@pytest.mark.usefixtures("runs")
def test_the_password_is_in_no_log(compose: Compose) -> None:
    logs = compose("logs")
    assert len(logs) > 10_000
    assert not [secret for secret in (PASSWORD, quote(PASSWORD, safe="")) if secret in logs]
