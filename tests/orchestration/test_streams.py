"""Archives whose messages come from streams of a real nats-server."""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

from jobs.jetstream.process import NatsServer
from tests.support.dagster_project import Project, failures, materialized
from tests.support.jobs import dumped
from tests.support.saying import saying
from tests.support.streams import Stream, new_stream

pytestmark = [pytest.mark.dagster, pytest.mark.spark, pytest.mark.server]

MAPPING = """mappings {{
  "{stream}.orders.*.*": [
    {{ destination: "orders.v1.$1.$2", weight: 60% }}
    {{ destination: "orders.v2.$1.$2", weight: 40% }}
  ]
  "{stream}.paid.*": "paid.{{{{partition(3,1)}}}}.$1"
}}
"""


MADE = ("mapping_version", "messages", "transformed_messages")


def publish(stream: Stream, first: int, count: int) -> None:
    """Publishes orders, payments and what no mapping matches."""
    stream.publish(
        (
            (b"orders.eu.%d", b"orders.us.%d", b"paid.%d", b"other.%d")[n % 4] % n,
            b"NATS/1.0\r\nCluster: east\r\n\r\n" if n % 3 else b"",
            b"payload %d" % n,
        )
        for n in range(first, first + count)
    )


def today() -> date:
    """As the server dates what is published now."""
    return datetime.now(UTC).date()


def add(project: Project, name: str, stream: str, start: date, sources: list[Any]) -> None:
    """A new archive of a stream, up to today."""
    project.add(name, "  include_today: true\n", MAPPING.format(stream=stream), count=0)
    given = ("\n    - jsonl: messages.jsonl", f" {json.dumps(sources)}")
    project.edit(name, ("2026-03-01", start.isoformat()), given)


@pytest.mark.slow
def test_history_and_a_live_stream_are_one_archive(
    project: Project, spark: SparkSession, nats_server: NatsServer
) -> None:
    """Yesterday comes from a dump, as it was before the stream; today from the server."""
    yesterday = today() - timedelta(days=1)
    live = new_stream(nats_server, first_seq=41)
    publish(live, 40, 60)
    source = {"server": nats_server.url, "from_stream": live.name, "cluster_header": "Cluster"}
    add(project, "east", live.name, yesterday, [{"jsonl": "messages.jsonl"}, source])
    subject = f"{live.name}.orders.eu"
    lines = (
        {"seq": n + 1, "ts": f"{yesterday}T12:00:{n:02}Z", "subject": f"{subject}.{n}"}
        for n in range(40)
    )
    dumped(project.defs_folder / "east" / "messages.jsonl", lines)

    published = today()
    result = project.made("east", MADE, (yesterday, published))
    assert all(check.passed for check in result.get_asset_check_evaluations())
    made = rows(project, spark)
    assert made.pop(yesterday) == 40
    assert sum(made.values()) == 60  # of one day, or of two if midnight has just passed

    # The stream goes on, and so does the archive.
    publish(live, 100, 20)
    project.made("east", MADE[1:], (published, today()))
    assert sum(rows(project, spark).values()) == 120


def rows(project: Project, spark: SparkSession) -> dict[date, int]:
    """Transformed messages of each day, as readers of the table see them."""
    found = project.rows(spark).groupBy("day").count().collect()
    return {row["day"]: row["count"] for row in found}


@pytest.mark.parametrize(
    ("server", "code"), [("", "no-stream"), ("nats://127.0.0.1:1", "server-not-reached")]
)
def test_a_stream_that_is_missing_fails_the_one_asset(
    project: Project, nats_server: NatsServer, server: str, code: str
) -> None:
    first = today()
    live = new_stream(nats_server)
    publish(live, 0, 20)
    days = (first, today())
    source = {"server": nats_server.url, "from_stream": live.name}
    add(project, "east", live.name, first, [source])
    gone = {"server": server or nats_server.url, "from_stream": "GONE"}
    add(project, "bad", live.name, first, [gone])

    result = project.materialize("bad", days=days)

    # What does not need the stream is made, what does is not tried.
    failed = failures(result)
    assert list(failed) == ["bad/messages"]
    assert re.search(saying(code), failed["bad/messages"])
    assert "\n" not in failed["bad/messages"]
    assert materialized(result) == {("bad/mapping_version", None)}
    project.made("east", ["messages"], days)
