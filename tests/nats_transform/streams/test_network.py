"""What can be said of some streams together, whatever is published."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from typing import Any

import pytest

from jobs.jetstream.process import nats_server
from nats_transform.errors import NatsTransformError
from nats_transform.streams.network import Network
from nats_transform.streams.stream import parse_stream
from nats_transform.streams.trace import trace
from tests.conformance.client import Client
from tests.support.refused import refused

MOVES, DRAWS = ({"src": "a.*", "dest": to} for to in ("b.$1", "b.{{random(2)}}.$1"))


def network(*streams: dict[str, Any]) -> Network:
    return Network([parse_stream(one) for one in streams])


@pytest.mark.parametrize(
    ("more", "draws"),
    [
        ({}, False),
        ({"subject_transform": MOVES, "republish": MOVES}, False),
        ({"subject_transform": DRAWS}, True),
        ({"subject_transform": MOVES, "republish": DRAWS}, True),
        ({"subjects": [], "sources": [{"name": "O", "subject_transforms": [DRAWS]}]}, True),
        ({"subjects": [], "mirror": {"name": "O", "subject_transforms": [MOVES]}}, False),
    ],
)
def test_whether_chance_decides(more: dict[str, Any], draws: bool) -> None:
    assert network({"name": "S", "subjects": ["a.*"], **more}).draws is draws


def test_circles_of_republished_messages() -> None:
    first = {"name": "A", "subjects": ["a.*"], "republish": MOVES}
    for more, circle in (
        ({}, []),
        ({"republish": {"src": "b.*", "dest": "c.$1"}}, []),
        ({"republish": {"src": "b.*", "dest": "a.$1"}}, ["A", "B", "A"]),
    ):
        streams = network(first, {"name": "B", "subjects": ["b.*"], **more})
        start, other = streams.streams
        assert streams.circle(start) == circle
        assert streams.republish_takers(start) == [other]


@pytest.mark.server
def test_a_sealed_stream_takes_nothing() -> None:
    configs = [
        {"name": "A", "subjects": ["a.*"], "republish": MOVES},
        {"name": "S", "subjects": ["b.*"]},
        {"name": "M", "mirror": {"name": "A"}},
        {"name": "Q", "sources": [{"name": "A"}]},
    ]
    with nats_server() as server, Client(server.url) as client:
        for config in configs:
            client.api(f"STREAM.CREATE.{config['name']}", config)
        for config in configs[1:]:
            config["sealed"] = True
            client.api(f"STREAM.UPDATE.{config['name']}", config)
        assert client.request("b.x", {})["error"]["err_code"] == 10109
        assert client.request("a.x", {})["seq"] == 1
        time.sleep(0.5)
        stored = {
            config["name"]
            for config in configs
            if client.api(f"STREAM.INFO.{config['name']}")["state"]["messages"]
        }
    streams = network(*configs)
    assert {arrival.stream for arrival in streams.arrivals("a.x")} == stored == {"A"}
    assert streams.arrivals("b.x") == []


def test_circles_are_found_in_time() -> None:
    names = range(400)
    streams = network(
        *(
            {
                "name": f"S{n}",
                "subjects": [f"s{n}.>"],
                "republish": {"src": ">", "dest": f"s{(n + 1) % len(names)}.>"},
            }
            for n in names
        )
    )
    start = time.process_time()
    assert [len(streams.circle(one)) for one in streams.streams] == [len(names) + 1 for _ in names]
    assert time.process_time() - start < 5  # looking for the takers anew at each step took over 40


def chain(length: int, filters: Sequence[str]) -> list[dict[str, Any]]:
    """Streams that each source the one before, once for each filter."""
    return [{"name": "S0", "subjects": ["a.b"]}] + [
        {
            "name": f"S{n}",
            "sources": [{"name": f"S{n - 1}", "filter_subject": filter} for filter in filters],
        }
        for n in range(1, length)
    ]


def test_a_way_of_many_streams_can_be_shown() -> None:
    traced = trace("a.b", streams=map(parse_stream, chain(200, [">"])))
    assert traced.text().count("\n") == 201
    assert json.loads(traced.model_dump_json()) == traced.model_dump()


@pytest.mark.parametrize(
    ("streams", "last"),
    [(chain(201, [">"]), "S200"), (chain(100, ["a.*", "*.b"]), "S")],
    ids=["one after the other", "each twice as often"],
)
def test_a_way_of_too_many_streams_is_refused(streams: list[dict[str, Any]], last: str) -> None:
    with refused(NatsTransformError, "stream-too-far", name=re.compile(f"^{last}")):
        network(*streams).arrivals("a.b")
