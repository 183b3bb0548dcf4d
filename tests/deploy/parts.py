"""What the tests of both production set-ups share: an archive, and how to ask Dagster about it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.support.configs import HALVES
from tests.support.dagster_processes import Webserver
from tests.support.jobs import dumped

COUNT = 500
PASSWORD = "s3cret/p@ss:word%1"  # noqa: S105 - planted, and looked for
YAML = """type: nats_transform.dagster.SubjectArchive

attributes:
  name: orders
  stream: ORDERS
  start_date: "{start}"
  sources:
    - jsonl: messages.jsonl
  mapping: mapping.conf
  catalog: archive
  reports: {reports}
  tolerance: 20
  nightly: {{ cron: "* * * * *", timezone: UTC, days: 1 }}
"""
ENDED = ("SUCCESS", "FAILURE")
RUNS = """{ runsOrError(limit: 50) { ... on Runs { results {
  runId status jobName tags { key value }
} } } }"""


def make_archive(folder: Path, day: date, reports: Path) -> None:
    """An archive of COUNT messages of a day, whose schedule ticks every minute."""
    folder.mkdir(parents=True)
    (folder / "defs.yaml").write_text(YAML.format(start=day, reports=reports))
    (folder / "mapping.conf").write_text(HALVES)
    start = datetime.combine(day, datetime.min.time(), UTC)
    times = [(start + timedelta(minutes=n)).isoformat() for n in range(COUNT)]
    rows = (
        {"seq": n, "ts": ts, "subject": f"orders.{n - 1}", "data": "x"}
        for n, ts in enumerate(times, 1)
    )
    dumped(folder / "messages.jsonl", rows)


def ask(url: str, query: str) -> Any:
    """The data of an answer of the webserver's GraphQL."""
    return Webserver(url, "nats-transform").ask(query)


def runs_that(url: str, *statuses: str) -> list[dict[str, Any]]:
    """The runs with one of these statuses, newest first; their tags as a mapping."""
    runs = ask(url, RUNS)["runsOrError"]["results"]
    return [
        run | {"tags": {tag["key"]: tag["value"] for tag in run["tags"]}}
        for run in runs
        if run["status"] in statuses
    ]


def until(found: Callable[[], Any]) -> Any:
    """What a function gives once it gives something."""
    while True:
        with suppress(OSError):
            if value := found():
                return value
        time.sleep(0.5)  # pytest's timeout ends it
