"""Dry runs: a real nats-server with the candidate loses, keeps and denies what was foretold."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import binom

from jobs.jetstream.process import nats_server
from nats_transform.config import load_mappings, parse_server_config
from nats_transform.config.permissions import users_of
from nats_transform.mappings.mapping import AccountMappings
from nats_transform.migration import MigrationFinding
from nats_transform.streams.consumer import parse_consumer
from nats_transform.streams.network import Network
from nats_transform.streams.stream import parse_stream
from tests.conformance.client import Client
from tests.support.dry_runs import CensusRow, dry_run

pytestmark = pytest.mark.server

CENSUS = {
    "orders.eu.1": 5, "orders.us.1": 4, "orders.us.2": 3,
    "bills.eu": 7, "bills.us": 2,
    "canary.a": 400, "canary.b": 600,
    "plain": 3,
}  # fmt: skip
PROBES = {"probe.a": 6, "probe.b": 5}
"""Published by the user who has permissions; all else by one who has none."""

MAPPINGS = """mappings {
  "orders.*.*": "shop.$2"
  "bills.*": "paid.$1"
  "canary.*": [{destination: "canary.old.$1", weight: 70}, {destination: "new.$1", weight: 30}]
  "probe.*": "probed.$1"
}
"""
USERS = """authorization { users: [
  {user: admin, password: secret}
  {user: limited, password: secret, permissions: {publish: ["probe.>", "probed.b"]}}
] }
"""
STREAMS: list[dict[str, Any]] = [
    {"name": "LIMITED", "subjects": ["orders.>", "shop.*"], "max_msgs_per_subject": 6},
    {"name": "BILLS", "subjects": ["bills.*", "paid.eu"]},
    {"name": "COPY", "sources": [{"name": "BILLS", "filter_subject": "bills.*"}]},
    {"name": "CANARY", "subjects": ["canary.>"]},
    {"name": "PROBES", "subjects": ["probe.*", "probed.*"]},
    {"name": "PLAIN", "subjects": ["plain"]},
]
CONSUMER = {"durable_name": "bills", "filter_subject": "bills.*", "ack_policy": "explicit"}


def observe(mappings: str) -> tuple[dict[str, dict[str, Any]], dict[str, Any], int]:
    """What the streams hold after all was published, the consumer, and how many were denied."""
    order = [subject for subject, count in CENSUS.items() for _ in range(count)]
    random.Random(1).shuffle(order)
    with nats_server(mappings + USERS) as server, Client(server.url, "admin") as admin:
        for config in STREAMS:
            admin.api(f"STREAM.CREATE.{config['name']}", config)
        for subject in order:
            admin.publish(subject, b"x")
        admin.flush()
        with Client(server.url, "limited") as limited:
            for subject, count in PROBES.items():
                for _ in range(count):
                    limited.publish(subject, b"x")
            denied = limited.denials()
        created = admin.request(
            "$JS.API.CONSUMER.DURABLE.CREATE.BILLS.bills",
            {"stream_name": "BILLS", "config": CONSUMER},
        )
        assert "error" not in created
        states = settled(admin)
        consumer = admin.request("$JS.API.CONSUMER.INFO.BILLS.bills")
        return states, consumer, denied


def settled(client: Client) -> dict[str, dict[str, Any]]:
    """The states of the streams, once they do not change any more."""
    states: dict[str, dict[str, Any]] = {}
    still = 0
    while still < 10:
        before = states
        infos = [
            client.request(f"$JS.API.STREAM.INFO.{s['name']}", {"subjects_filter": ">"})
            for s in STREAMS
        ]
        states = {i["config"]["name"]: i["state"] for i in infos}
        counts = [[s["last_seq"], s["messages"]] for s in states.values()]
        # A stream source that was not heard of yet (-1), or is behind, is not settled.
        sources = [source for info in infos for source in info.get("sources", [])]
        idle = all(source["active"] >= 0 and source["lag"] == 0 for source in sources)
        same = counts == [[s["last_seq"], s["messages"]] for s in before.values()]
        still = still + 1 if idle and same else 0
        time.sleep(0.05)
    return states


def foretold(mappings: AccountMappings) -> dict[tuple[str, str], list[tuple[int, int]]]:
    """For each stream and subject the messages that can come to it, each lot with its percent."""
    network = Network(parse_stream(config) for config in STREAMS)
    found: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for subject, count in CENSUS.items():
        for outcome, percent in mappings.outcomes(subject):
            for arrival in network.arrivals(outcome.subject or ""):
                found[arrival.stream, arrival.subject].append((count, percent))
    return found


def check_counts(states: dict[str, dict[str, Any]], mappings: AccountMappings) -> None:
    """Every subject of every stream has as many messages as foretold; limits hold some back."""
    limits = {config["name"]: config.get("max_msgs_per_subject") for config in STREAMS}
    expected = foretold(mappings)
    for name, state in states.items():
        subjects = state.get("subjects", {}) if name != "PROBES" else {}
        assert subjects.keys() == {subject for stream, subject in expected if stream == name}
        for subject, count in subjects.items():
            lots = expected[name, subject]
            if all(percent == 100 for _, percent in lots):
                assert count == min(sum(lot for lot, _ in lots), limits[name] or count)
            else:
                ((lot, percent),) = lots
                low, high = binom.interval(1 - 1e-9, lot, percent / 100)
                assert low <= count <= high


def test_a_real_server_does_what_was_foretold(tmp_path: Path) -> None:
    before, consumer, denied_before = observe("")
    after, consumer_after, denied = observe(MAPPINGS)

    conf = tmp_path / "server.conf"
    conf.write_text(MAPPINGS + USERS)
    census = [CensusRow(s, None, n) for s, n in {**CENSUS, **PROBES}.items()]
    found = dry_run(
        census,
        load_mappings(conf),
        AccountMappings(()),
        streams=[parse_stream(config) for config in STREAMS],
        consumers=[parse_consumer(consumer)],
        users=users_of(parse_server_config(conf)),
    )
    findings: dict[tuple[str, str], MigrationFinding] = {
        (f.code, f.about): f for f in found.findings
    }

    def messages(code: str, about: str) -> float:
        return findings.pop((code, about)).messages

    def stored(states: dict[str, dict[str, Any]], name: str) -> int:
        return int(states[name]["last_seq"])

    def discarded(states: dict[str, dict[str, Any]], name: str) -> int:
        return stored(states, name) - int(states[name]["messages"])

    check_counts(before, AccountMappings(()))
    check_counts(after, load_mappings(conf))
    for name in ("LIMITED", "PLAIN"):
        assert stored(before, name) == stored(after, name)
    bills, canary = "stream BILLS", "stream CANARY"
    assert messages("not-captured", bills) == stored(before, "BILLS") - stored(after, "BILLS") == 2
    gone = stored(before, "CANARY") - stored(after, "CANARY")
    low, high = binom.interval(1 - 1e-9, 1000, 0.3)
    assert messages("not-captured", canary) == 300
    assert low <= gone <= high
    assert messages("limit-discards", "stream LIMITED") == (
        discarded(after, "LIMITED") - discarded(before, "LIMITED")
    )
    assert messages("source-stops", "stream COPY") == (
        # What COPY lacks, but for what BILLS lacks too.
        stored(before, "COPY") - stored(after, "COPY") - 2
    )
    assert messages("consumer-none", "consumer bills of stream BILLS") == consumer["num_pending"]
    assert consumer_after["num_pending"] == 0
    assert denied_before == 0
    assert messages("publish-denied", "user limited") == denied
    assert denied == stored(before, "PROBES") - stored(after, "PROBES")
    # The rest is about subjects, not about who gets the messages.
    assert {code for code, _ in findings} == {"collision", "irreversible", "unmatched"}
