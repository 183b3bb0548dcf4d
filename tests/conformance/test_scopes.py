"""The sequence of scopes: a trace shows where a real nats-server puts each message."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable

import pytest

from jobs.jetstream.process import nats_server
from nats_transform import parse_stream
from nats_transform.streams.trace import StreamStep, trace
from tests.cases import load
from tests.conformance.client import Client
from tests.conformance.test_streams import create, stored, subject_of, wait_until_settled
from tests.support.rules import mappings

pytestmark = pytest.mark.server

RULES = {
    "shop.*.*": "v1.$1.{{left(2,3)}}",
    # Would catch the result of the first, the republished and the sourced: none is mapped.
    "v1.>": "never.>",
    "live.>": "never.>",
    "copied.>": "never.>",
    "cut.*": "v2.{{split(1,-)}}",
}
CONFIG = f"""accounts {{ A {{
  users: [{{user: A, password: secret}}], jetstream: enabled, mappings: {json.dumps(RULES)}
}} }}"""
STREAMS = load("networks.yaml")["scopes"]
SUBJECTS = [
    *(f"shop.{place}.{name}" for place in ("eu", "us", "é") for name in ("a", "order", "日本")),
    "v1.direct.x",
    "v2.direct",
    "live.x.y",
    "cut.a-b",
    "cut.--",
    "late.x",
    "$KV.A.k",
    "$KV.B.k.l",
    "nowhere",
]


def _stored(steps: Iterable[StreamStep], found: dict[str, list[str]]) -> None:
    for step in steps:
        if step.stored is not None:
            found[step.stream].append(step.stored)
        _stored(step.taken_by, found)
        if step.republished is not None:
            _stored(step.republished.captured, found)


def test_each_scope_transforms_once() -> None:
    configs = [parse_stream(config) for config in STREAMS]
    expected: dict[str, list[str]] = defaultdict(list)
    for subject in SUBJECTS:
        (path,) = trace(subject, mappings(RULES), configs).paths
        _stored(path.streams, expected)
    with nats_server(CONFIG) as server, Client(server.url, "A") as client:
        create(client, STREAMS)
        for subject in SUBJECTS:
            client.publish(subject, subject.encode())
        wait_until_settled(client, sum(map(len, expected.values())))
        found = stored(client, [config.name for config in configs])
    theirs = {name: sorted(map(subject_of, messages)) for name, messages in found.items()}
    assert theirs == {name: sorted(subjects) for name, subjects in expected.items()}
    assert set(theirs) == {config.name for config in configs}
