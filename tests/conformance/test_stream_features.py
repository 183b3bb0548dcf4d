"""Counters and batches on a real nats-server whose mappings change under them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from jobs.jetstream.process import NatsServer, nats_server
from tests.conformance.test_account import reload
from tests.conformance.test_regrets import Side, found
from tests.support.awaiting import awaited

pytestmark = pytest.mark.server

CONFIG = """
accounts {
  SHOP { jetstream: enabled, users [ {user: shop, password: p} ] %s }
}
"""
MAPPINGS = """
mappings {
  "visits.*": "counts.$1"
  "jobs.*": "work.$1"
  "orders.*": [ {destination: "shop.$1", weight: 50%}, {destination: "canary.$1", weight: 50%} ]
  "bills.*": "invoices.$1"
  "loads.*": [ {destination: "ship.$1", weight: 50%}, {destination: "train.$1", weight: 50%} ]
  "notes.*": "memos.$1"
  "cards.*": "cases.$1"
}
"""
COUNTS = {"name": "COUNTS", "subjects": ["visits.*", "counts.*"], "allow_msg_counter": True}
SPLIT = {"name": "SPLIT", "subjects": ["orders.*", "shop.*"], "allow_atomic": True}
CANARY = {"name": "CANARY", "subjects": ["canary.*"]}
WHOLE = {"name": "WHOLE", "subjects": ["bills.*", "invoices.*"], "allow_atomic": True}
SHIP = {"name": "SHIP", "subjects": ["loads.*", "ship.*"], "allow_atomic": True}
TRAIN = {"name": "TRAIN", "subjects": ["train.*"], "allow_atomic": True}
NOTES = {"name": "NOTES", "subjects": ["notes.*"], "allow_atomic": True}
MEMOS = {"name": "MEMOS", "subjects": ["memos.*"]}
CARDS = {"name": "CARDS", "subjects": ["cards.*"], "allow_atomic": True}
CASES = {"name": "CASES", "subjects": ["cases.*"], "allow_atomic": True}


@pytest.fixture
def server() -> Iterator[NatsServer]:
    with nats_server(CONFIG % "") as running:
        yield running


@asynccontextmanager
async def shop(server: NatsServer, *streams: dict[str, Any]) -> AsyncIterator[Side]:
    side = await Side.of(server, "shop", "nothing")
    for one in streams:
        await side.make(one)
    try:
        yield side
    finally:
        await side.client.close()


async def publish(side: Side, subject: str, **headers: str) -> dict[str, Any]:
    """What a stream answers."""
    named = {f"Nats-{name.replace('_', '-')}": value for name, value in headers.items()}
    reply = await side.client.request(subject, b"", 5, headers=named)
    answer: dict[str, Any] = json.loads(reply.data)
    return answer


def codes(folder: Path, *streams: dict[str, Any]) -> set[str]:
    return found(folder, mappings=CONFIG % MAPPINGS, **{one["name"]: one for one in streams})


@awaited
async def test_a_counter_begins_again_under_its_new_name(
    server: NatsServer, tmp_path: Path
) -> None:
    async with shop(server, COUNTS) as side:
        assert (await publish(side, "visits.eu", Incr="+5"))["val"] == "5"
        assert (await publish(side, "visits.eu", Incr="+1"))["val"] == "6"
        reload(server, CONFIG % MAPPINGS, 1)
        assert (await publish(side, "visits.eu", Incr="+1"))["val"] == "1"
        assert await side.stored("COUNTS") == {"visits.eu": 2, "counts.eu": 1}
        # The cure: what the old counter holds is added under the new name.
        assert (await publish(side, "counts.eu", Incr="+6"))["val"] == "7"
    assert codes(tmp_path, COUNTS) == {"counter-restarts"}
    assert codes(tmp_path, COUNTS | {"allow_msg_counter": False}) == set()


@awaited
async def test_a_counter_goes_on_if_the_stream_gives_the_old_name_back(
    server: NatsServer, tmp_path: Path
) -> None:
    back = COUNTS | {"subject_transform": {"src": "counts.*", "dest": "visits.$1"}}
    async with shop(server, back) as side:
        assert (await publish(side, "visits.eu", Incr="+5"))["val"] == "5"
        reload(server, CONFIG % MAPPINGS, 1)
        assert (await publish(side, "visits.eu", Incr="+1"))["val"] == "6"
        assert await side.stored("COUNTS") == {"visits.eu": 2}
    assert codes(tmp_path, back) == set()


async def batch(side: Side, subject: str, name: str, size: int) -> list[int]:
    """The errors of a batch: of each message that is answered, and of the last."""
    refused = []
    for number in range(1, size + 1):
        headers = {"Nats-Batch-Id": name, "Nats-Batch-Sequence": str(number)}
        headers |= {"Nats-Batch-Commit": "1"} if number == size else {}
        reply = await side.client.request(subject, b"", 5, headers=headers)
        if reply.data and "error" in (answer := json.loads(reply.data)):
            refused.append(answer["error"]["err_code"])
    return refused


BATCHES = [
    # subject, streams, errors, and what is stored of the second batch
    pytest.param("orders.eu", [SPLIT, CANARY], {10174, 10176}, {}, id="weights to one with none"),
    pytest.param("loads.eu", [SHIP, TRAIN], {10176}, {}, id="weights to two"),
    pytest.param("notes.eu", [NOTES, MEMOS], {10174}, {}, id="whole to one with none"),
    pytest.param("cards.eu", [CARDS, CASES], set(), {"cases.eu": 40}, id="whole to another"),
    pytest.param("bills.eu", [WHOLE], set(), {"invoices.eu": 40}, id="whole in its stream"),
]


@pytest.mark.parametrize(("subject", "streams", "errors", "stored"), BATCHES)
@awaited
async def test_a_batch_goes_to_one_stream_that_takes_batches(
    server: NatsServer,
    tmp_path: Path,
    subject: str,
    streams: list[dict[str, Any]],
    errors: set[int],
    stored: dict[str, int],
) -> None:
    async with shop(server, *streams) as side:
        assert await batch(side, subject, "before", 20) == []
        reload(server, CONFIG % MAPPINGS, 1)
        assert set(await batch(side, subject, "after", 40)) == errors
        kept = [await side.stored(one["name"]) for one in streams]
        assert {name: n for of in kept for name, n in of.items()} == {subject: 20} | stored
    moves = len(streams) > 1  # also whole batches: only their publisher knows that they are whole
    assert ("batch-split" in codes(tmp_path, *streams)) == moves
