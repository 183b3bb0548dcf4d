"""A stream of three replicas, of which one was down and has yet to catch up."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nats.errors
import nats.js.errors
import pytest
from nats import connect

from jobs.errors import ArchiveError
from jobs.jetstream.connection import connection
from jobs.jetstream.process import NatsServer, nats_server
from jobs.jetstream.stream import count_from, last_message, message_at
from jobs.settings.connection import NatsSettings
from jobs.settings.warehouse import Warehouse
from tests.support.impostor import INFO_OF_STREAM, Impostor, serving
from tests.support.jobs import archived
from tests.support.network import network
from tests.support.spark_cluster import free_port

pytestmark = pytest.mark.server

STREAM = "S"
MESSAGES, SIZE = 10_000, 10_000
BYTES_PER_SECOND = 3_000_000


def slowly(_: int, data: bytes) -> tuple[bytes, float, bool]:
    return data, len(data) / BYTES_PER_SECOND, False


@dataclass
class Cluster:
    """Servers n0 and n1, which have the whole stream, and n2, which lags behind."""

    nats: NatsSettings

    def ask(self, subject: str) -> dict[str, Any]:
        async def answer() -> Any:
            async with connection(self.nats) as client:
                return json.loads((await client.request(f"$JS.API.{subject}", b"")).data)

        found: dict[str, Any] = asyncio.run(answer())
        return found

    def lagging(self) -> set[str]:
        replicas = self.ask(f"STREAM.INFO.{STREAM}")["cluster"]["replicas"]
        return {replica["name"] for replica in replicas if not replica["current"]}


async def until(works: Callable[[], Awaitable[object]]) -> None:
    """Calls until it works: a cluster has no leader at first, and when a server has left."""
    deadline = time.monotonic() + 300
    while True:
        try:
            await works()
            return
        except (nats.errors.Error, nats.js.errors.Error):
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(0.2)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    ports = [free_port() for _ in range(3)]
    direct = [f"nats://127.0.0.1:{port}" for port in ports[:2]]

    def start(number: int, ways: list[str], stack: ExitStack) -> NatsServer:
        listen = f"listen: 127.0.0.1:{ports[number]}, no_advertise: true"
        config = (
            f"server_name: n{number}\ncluster {{ name: C, {listen}, routes: [{', '.join(ways)}] }}"
        )
        return stack.enter_context(nats_server(config, tmp_path / f"n{number}"))

    async def fill(url: str, third: ExitStack) -> None:
        client = await connect(url)
        js = client.jetstream(timeout=1)
        await until(lambda: js.add_stream(name=STREAM, subjects=["s.>"], num_replicas=3))
        third.close()
        await until(lambda: js.publish("s.first", b""))
        js = client.jetstream(timeout=300)
        for _ in range(MESSAGES // 500):
            # Random, because servers compress what they send each other.
            payloads = (random.randbytes(SIZE) for _ in range(500))
            await asyncio.gather(*(js.publish("s.next", payload) for payload in payloads))
        await client.close()

    with ExitStack() as stack, ExitStack() as third:
        first, _ = (start(number, direct, stack) for number in range(2))
        start(2, direct, third)
        asyncio.run(fill(first.url, third))
        start(2, [stack.enter_context(network(way, slowly)) for way in direct], stack)
        yield Cluster(NatsSettings(servers=first.url, patience=300))


@pytest.mark.slow
def test_a_replica_that_lags_behind_is_not_read(cluster: Cluster, warehouse: Warehouse) -> None:
    """The server puts one of three consumers there, where most messages don't exist yet."""

    async def look() -> tuple[list[int], list[tuple[int, int] | None]]:
        async with connection(cluster.nats) as client:
            of = client, STREAM
            counts = [await count_from(*of, 1) for _ in range(4)]
            return counts, [await message_at(*of, last), await last_message(*of, None)]

    last = cluster.ask(f"STREAM.INFO.{STREAM}")["state"]["last_seq"]
    counts, ends = asyncio.run(look())
    assert counts == [last] * 4
    assert [end and end[0] for end in ends] == [last, last]
    assert cluster.lagging() == {"n2"}, "it has caught up too early: nothing was tested"
    assert archived(warehouse, STREAM, server=cluster.nats).messages == last


@pytest.mark.parametrize(
    ("leader", "told"),
    [
        pytest.param("n1", "no consumer came to its leader 'n1'", id="elsewhere"),
        pytest.param("", "its cluster has no leader", id="in-an-election"),
        pytest.param("n\x1b[2J", r"to its leader 'n\x1b[2J'", id="escape"),
    ],
)
def test_a_stream_whose_leader_cannot_be_read(leader: str, told: str) -> None:
    answers = {
        "STREAM.INFO": INFO_OF_STREAM | {"cluster": {"leader": leader}},
        "CONSUMER.CREATE": {"config": {}, "num_pending": 0, "cluster": {"leader": "n2"}},
    }

    async def look(url: str) -> None:
        settings = NatsSettings(servers=url, patience=0.5)
        async with connection(settings) as client:
            await count_from(client, STREAM, 1)

    with serving(Impostor(answers=answers)) as server:
        with pytest.raises(ArchiveError) as caught:
            asyncio.run(look(server.url))
        made = [subject for subject in server.asked if "CONSUMER.CREATE" in subject]
        gone = [subject for subject in server.asked if "CONSUMER.DELETE" in subject]
    assert told in str(caught.value)
    assert len(made) == len(gone)
    assert bool(made) is bool(leader)
