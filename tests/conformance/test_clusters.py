"""What three real clusters tell about where a message was published; docs/archives.md says it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from nats.aio.client import Client
from nats.js.api import Placement, RePublish, StreamConfig, StreamSource, SubjectTransform

from jobs.jetstream.connection import connection
from jobs.jetstream.process import NatsServer
from jobs.jetstream.reader import RangeReader
from jobs.jetstream.stream import JetStreamSettings
from jobs.settings.connection import NatsSettings
from orchestration.demo.clusters import _make_stream, clusters
from tests.support.stream_backups import state_of_stream

pytestmark = [pytest.mark.server, pytest.mark.slow]

NAMES = ("east", "central", "west")
MAPPINGS = """mappings {
  "shop.*": [
    { destination: "v1.$1", weight: 100% }
    { destination: "west.v1.$1", weight: 100%, cluster: west }
  ]
}
"""


async def stored(client: Client, stream: str, count: int) -> list[tuple[str, dict[str, str]]]:
    """Subject and headers of the messages of a stream."""
    jetstream = client.jetstream()
    for _ in range(600):
        if (await jetstream.stream_info(stream)).state.messages >= count:
            break
        await asyncio.sleep(0.1)
    messages = [await jetstream.get_msg(stream, seq) for seq in range(1, count + 1)]
    return [(str(m.subject), dict(m.headers or {})) for m in messages]


async def tried(servers: dict[str, NatsServer]) -> dict[str, Any]:
    async with connection(NatsSettings(servers=servers["east"].url)) as east:
        await _make_stream(east, ["v1.*", "west.>"])
        jetstream = east.jetstream()
        await jetstream.add_stream(
            StreamConfig(
                name="PLACED",
                subjects=["elsewhere.*"],
                placement=Placement(cluster="west"),
                republish=RePublish(src="elsewhere.*", dest="again.$1"),
            )
        )
        await jetstream.add_stream(StreamConfig(name="AGAIN", subjects=["again.*"]))
        source = StreamSource(
            name="PLACED", subject_transforms=[SubjectTransform(src=">", dest="from.west.>")]
        )
        await jetstream.add_stream(StreamConfig(name="SOURCED", sources=[source]))
        told = {}
        for name, server in servers.items():
            async with connection(NatsSettings(servers=server.url)) as client:
                told[name] = client._server_info["cluster"]
                await client.jetstream().publish(f"shop.{name}", b"")
                await client.jetstream().publish(f"elsewhere.{name}", b"")
        streams = ("MAPPED", "PLACED", "AGAIN", "SOURCED")
        return {"info": told} | {name: await stored(east, name, 3) for name in streams}


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    with clusters(NAMES, MAPPINGS) as servers:
        found = asyncio.run(tried(servers))
        url = servers["west"].url
        placed = JetStreamSettings(stream="PLACED")
        reader = RangeReader(NatsSettings(servers=url), placed, state_of_stream(url, "PLACED"))
        return found | {"read": [rows["cluster"].to_pylist() for rows in reader((1, 3))]}


def test_a_server_maps_by_its_own_cluster_and_tells_publishers_its_name(found: Any) -> None:
    assert {subject for subject, _ in found["MAPPED"]} == {"v1.east", "v1.central", "west.v1.west"}
    assert found["info"] == {name: name for name in NAMES}


def test_a_stored_message_does_not_name_its_cluster(found: Any) -> None:
    assert [headers for _, headers in found["MAPPED"]] == [{}] * 3


def test_a_placed_stream_stores_what_is_published_anywhere(found: Any) -> None:
    assert {subject for subject, _ in found["PLACED"]} == {f"elsewhere.{name}" for name in NAMES}
    assert found["read"] == [[None] * 3]


def test_republish_does_not_name_it(found: Any) -> None:
    for _, headers in found["AGAIN"]:
        assert set(headers) == {
            *("Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Last-Sequence"),
            "Nats-Time-Stamp",
        }
        assert not set(headers.values()) & set(NAMES)


def test_sources_name_the_stream_and_can_add_a_prefix(found: Any) -> None:
    for subject, headers in found["SOURCED"]:
        assert subject.startswith("from.west.elsewhere.")
        assert headers["Nats-Stream-Source"].split(" ")[0].startswith("PLACED")
