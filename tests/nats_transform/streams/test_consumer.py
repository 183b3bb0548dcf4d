"""Consumers as `nats consumer info --json` shows them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_transform.errors import InvalidStream
from nats_transform.streams.consumer import Consumer, Consumers, parse_consumer


@pytest.mark.parametrize(
    ("more", "config", "name", "filters"),
    [
        ({"name": "c"}, {}, "c", ()),
        ({"name": "c"}, {"durable_name": "d", "filter_subject": "a.*"}, "c", ("a.*",)),
        ({"name": "c"}, {"filter_subjects": ["a", "b"], "filter_subject": ""}, "c", ("a", "b")),
        ({}, {"durable_name": "d", "name": "n", "filter_subjects": None}, "d", ()),
        ({}, {"name": "n"}, "n", ()),
    ],
)
def test_a_consumer(
    more: dict[str, Any], config: dict[str, Any], name: str, filters: tuple[str, ...]
) -> None:
    data = {"stream_name": "S", "config": config, **more}
    assert parse_consumer(data) == Consumer("S", name, filters)


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {"config": {}},
        {"stream_name": "S", "config": {}},
        {"stream_name": "S", "name": "c"},
        {"stream_name": "", "name": "c", "config": {}},
        {"stream_name": "S", "name": 7, "config": {}},
        {"stream_name": "S", "name": "c", "config": {"filter_subject": 7}},
        {"stream_name": "S", "name": "c", "config": {"filter_subjects": [7]}},
    ],
    ids=str,
)
def test_bad_consumers(data: object) -> None:
    with pytest.raises(InvalidStream) as error:
        parse_consumer(data)
    assert "\n" not in str(error.value)


def test_which_messages_it_gets() -> None:
    assert Consumer("S", "c").wants("a.b")
    some = Consumer("S", "c", ("x", "a.*"))
    assert [subject for subject in ("x", "a.b", "a", "b.a") if some.wants(subject)] == ["x", "a.b"]


token = st.sampled_from(["a", "b", "*", ">", ""])
subjects = st.lists(token, min_size=1, max_size=3).map(".".join)
consumers = st.builds(
    Consumer, st.sampled_from("ST"), st.just("c"), st.lists(subjects, max_size=3).map(tuple)
)


@given(st.lists(consumers, max_size=6), st.sampled_from("STU"), subjects)
def test_all_that_get_it(known: list[Consumer], stream: str, stored: str) -> None:
    """All at once as each alone."""
    expected = {n for n, c in enumerate(known) if c.stream == stream and c.wants(stored)}
    assert Consumers(known).of(stream, stored) == expected
