"""Sources and mirrors that read a consumer, which filters for them."""

from __future__ import annotations

from typing import Any

import pytest

from nats_transform.lint.check import check
from nats_transform.lint.obstacles import obstacles
from nats_transform.mappings.moves import moves
from nats_transform.migration.room.flows import sources_without
from nats_transform.streams.stream import parse_stream
from tests.support.rules import mappings

READS = {"consumer": {"name": "C", "deliver_subject": "to.c"}}
TO_SHOP = moves(mappings({}), mappings({"orders.*": "shop.$1"}))


def source(name: str, is_durable: bool, src: str, dest: str = "") -> dict[str, Any]:
    transforms = {"subject_transforms": [{"src": src, "dest": dest}]}
    return {"name": name, **transforms, **(READS if is_durable else {})}


@pytest.mark.parametrize("is_durable", [True, False])
def test_a_consumer_may_keep_sources_of_one_stream_apart(is_durable: bool) -> None:
    sources = [source("O", is_durable, "a.*", "b.$1"), source("O", False, "*.x", "c.$1")]
    found = [one.code for one in check(parse_stream({"name": "S", "sources": sources}))]
    assert found == ([] if is_durable else ["sourced-twice"])


@pytest.mark.parametrize("is_durable", [True, False])
def test_the_filter_of_the_consumer_of_a_mirror_can_change(is_durable: bool) -> None:
    mirror = parse_stream({"name": "M", "mirror": source("O", is_durable, "orders.*")})
    found = [one.code for one in obstacles(TO_SHOP, [mirror])]
    assert found == ([] if is_durable else ["mirror-filter"])


@pytest.mark.parametrize("is_durable", [True, False])
def test_a_source_stays_whose_consumer_gives_it_more(is_durable: bool) -> None:
    stream = parse_stream({"name": "S", "sources": [source("O", is_durable, "orders.*", "o.$1")]})
    assert len(sources_without(stream, stream, lambda *_: True)) == is_durable


@pytest.mark.parametrize(("dest", "is_found"), [("$KV.B.>", False), ("$KV.C.>", True)])
def test_keys_that_a_consumer_gives_to_a_bucket(dest: str, is_found: bool) -> None:
    config = {"name": "KV_B", "subjects": ["$KV.B.>"]}
    config |= {"sources": [source("KV_A", True, "$KV.A.>", dest)]}
    assert ("bucket-source" in {one.code for one in check(parse_stream(config))}) == is_found
