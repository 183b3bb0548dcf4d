"""Audits of what a real nats-server made of 240,000 messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from jobs.audit.result import AuditResult
from jobs.audit.run import audit
from jobs.jetstream.process import nats_server
from jobs.settings.audit import AuditSettings
from jobs.warehouse import tables
from nats_transform.audit import Verdict
from tests.conformance.client import Client
from tests.jobs.audit.rehearsal import HERE
from tests.support.archive import Row, archive, message
from tests.support.files import written

pytestmark = [pytest.mark.server]

START = datetime(2026, 3, 1, tzinfo=UTC)
CLUSTERS = ("east", "west")
PER_CLUSTER = 120_000
BATCH = 5_000
CONFIG = """
mappings {
  "shop.*.*": [
    {destination: "v1.$1.$2", weight: %(stable)d%%}, {destination: "v2.$1.$2", weight: %(canary)d%%}
  ]
  "pay.*": [
    {destination: "a.$1", weight: %(pay)d%%},
    {destination: "b.$1", weight: %(pay_east)d%%, cluster: east}
  ]
  "lose": [
    {destination: "keep", weight: %(keep)d%%}, {destination: "lose", weight: %(stay)d%%}
  ]
}
"""
WEIGHTS = {"stable": 98, "canary": 2, "pay": 30, "pay_east": 60, "keep": 50, "stay": 20}
OTHERS = {"stable": 90, "canary": 10, "pay": 40, "pay_east": 50, "keep": 40, "stay": 30}


def published() -> Iterator[str]:
    for n in range(PER_CLUSTER):
        yield (f"shop.eu.{n % 500}", f"pay.{n % 300}", "lose")[n % 3]


def through_the_server(config: str, cluster: str) -> list[str]:
    """The subjects under which the messages come out, in order."""
    with (
        nats_server(f"server_name: {cluster}\ncluster {{ name: {cluster} }}\n{config}") as server,
        Client(server.url) as receiver,
        Client(server.url) as sender,
    ):
        receiver.subscribe(">")
        receiver.flush()
        out: list[str] = []
        for n, subject in enumerate(published(), start=1):
            sender.publish(subject)
            if n % BATCH == 0:
                # One flush each: what the server has taken from one it has sent to the other.
                sender.flush()
                receiver.flush()
                out += [message.subject for message in receiver.received()]
        return out


def messages(stream: str, subjects: Sequence[tuple[str, str]]) -> list[Row]:
    """Subjects, each with its cluster, as two days of messages of a stream."""
    step = timedelta(days=2) / len(subjects)
    return [
        message(n + 1, subject, START + n * step, stream=stream, cluster=cluster)
        for n, (subject, cluster) in enumerate(subjects)
    ]


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> tables.Warehouse:
    """What was published in stream IN, and what came out of two clusters in stream OUT."""
    folder = tmp_path_factory.mktemp("audit")
    warehouse = tables.Warehouse(dir=folder / "warehouse")
    before = [(subject, cluster) for subject in published() for cluster in CLUSTERS]
    out = {cluster: through_the_server(CONFIG % WEIGHTS, cluster) for cluster in CLUSTERS}
    assert len(before) == 240_000
    # Side by side, as two clusters are: a split that changed would be one of the time.
    parts = [
        (at / len(subjects), subject, cluster)
        for cluster, subjects in out.items()
        for at, subject in enumerate(subjects)
    ]
    after = [(subject, cluster) for _, subject, cluster in sorted(parts)]
    archive(warehouse, messages("IN", before) + messages("OUT", after))
    return warehouse


def observe(
    warehouse: tables.Warehouse, folder: Path, weights: dict[str, int], source_stream: str | None
) -> AuditResult:
    settings = AuditSettings(
        stream="OUT",
        mapping=written(folder / "server.conf", CONFIG % weights),
        warehouse=warehouse,
        observed=True,
        tolerance=2,
        source_stream=source_stream,
    )
    return audit(HERE, settings)


@pytest.mark.parametrize("source_stream", [None, "IN"], ids=["alone", "with the source"])
def test_the_weights_that_were_in_force_are_within(
    warehouse: tables.Warehouse, tmp_path: Path, source_stream: str | None
) -> None:
    result = observe(warehouse, tmp_path, WEIGHTS, source_stream)
    assert {(rule.source, rule.cluster): rule.verdict for rule in result.rules} == dict.fromkeys(
        [(source, cluster) for source in ("shop.*.*", "pay.*", "lose") for cluster in CLUSTERS],
        Verdict.WITHIN,
    )
    assert result.verdict is Verdict.WITHIN
    ends = {
        (rule.source, rule.cluster): [
            (end.end, end.weight, end.inferred) for end in rule.destinations
        ]
        for rule in result.rules
    }
    assert ends["pay.*", "east"] == [("remainder", 40, False), ("destination", 60, False)]
    assert ends["pay.*", "west"] == [("destination", 30, False), ("remainder", 70, False)]
    lost = [("lost", 30, True)] if source_stream else []
    assert ends["lose", "east"] == [("destination", 20, False), ("destination", 50, False), *lost]
    if source_stream:
        assert {rule.messages for rule in result.rules} == {PER_CLUSTER // 3}


def test_other_weights_are_outside(warehouse: tables.Warehouse, tmp_path: Path) -> None:
    result = observe(warehouse, tmp_path, OTHERS, "IN")
    assert [rule.verdict for rule in result.rules] == [Verdict.OUTSIDE] * 6


def test_only_the_weights_that_differ_are_outside(
    warehouse: tables.Warehouse, tmp_path: Path
) -> None:
    result = observe(warehouse, tmp_path, WEIGHTS | {"pay_east": 50}, None)
    assert [(r.source, r.cluster) for r in result.rules if r.verdict is Verdict.OUTSIDE] == [
        ("pay.*", "east")
    ]
    assert sum(rule.verdict is Verdict.WITHIN for rule in result.rules) == 5
