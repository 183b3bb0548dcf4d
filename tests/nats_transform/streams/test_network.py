"""What can be said of some streams together, whatever is published."""

from __future__ import annotations

from typing import Any

import pytest

from nats_transform.streams.network import Network
from nats_transform.streams.stream import parse_stream

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
