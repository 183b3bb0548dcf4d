"""What the tests of both production set-ups share: an archive, and how to ask Dagster about it."""

from __future__ import annotations

import json
import time
import urllib.error
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.support.dagster_processes import Webserver

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
MAPPING = """mappings {
  "orders.*": [
    { destination: "orders.v1.$1", weight: 50% }
    { destination: "orders.v2.$1", weight: 50% }
  ]
}
"""
RUNS = """{ runsOrError(limit: 50) { ... on Runs { results {
  runId status jobName tags { key value }
} } } }"""


def make_archive(folder: Path, day: date, reports: Path) -> None:
    """An archive of COUNT messages of a day, whose schedule ticks every minute."""
    folder.mkdir(parents=True)
    (folder / "defs.yaml").write_text(YAML.format(start=day, reports=reports))
    (folder / "mapping.conf").write_text(MAPPING)
    start = datetime.combine(day, datetime.min.time(), UTC)
    rows = [
        {
            "seq": n + 1,
            "ts": (start + timedelta(minutes=n)).isoformat(),
            "subject": f"orders.{n}",
            "data": "x",
        }
        for n in range(COUNT)
    ]
    (folder / "messages.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


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


def ended_runs(url: str) -> list[dict[str, Any]]:
    """The runs that are over."""
    return runs_that(url, "SUCCESS", "FAILURE")


def until(found: Callable[[], Any]) -> Any:
    """What a function gives once it gives something."""
    while True:
        try:
            value = found()
        except (OSError, urllib.error.URLError):
            value = None
        if value:
            return value
        time.sleep(0.5)  # pytest's timeout ends it
