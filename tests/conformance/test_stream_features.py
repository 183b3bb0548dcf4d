"""Counters, schedules and batches on a real nats-server whose mappings change under them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from jobs.jetstream.process import NatsServer, nats_server
from tests.conformance.test_account import reload
from tests.conformance.test_regrets import Side, found

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
  "stock.*": "store.$1"
}
"""
COUNTS = {"name": "COUNTS", "subjects": ["visits.*", "counts.*"], "allow_msg_counter": True}
PLANS = {
    "name": "PLANS",
    "subjects": ["plans.*", "jobs.*", "work.*"],
    "allow_msg_schedules": True,
}
SPLIT = {"name": "SPLIT", "subjects": ["orders.*", "shop.*"], "allow_atomic": True}
CANARY = {"name": "CANARY", "subjects": ["canary.*"]}
WHOLE = {"name": "WHOLE", "subjects": ["bills.*", "invoices.*"], "allow_atomic": True}
STOCK = {"name": "STOCK", "subjects": ["stock.*", "store.*"]}


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


def test_a_counter_begins_again_under_its_new_name(server: NatsServer, tmp_path: Path) -> None:
    async def run() -> None:
        async with shop(server, COUNTS) as side:
            assert (await publish(side, "visits.eu", Incr="+5"))["val"] == "5"
            assert (await publish(side, "visits.eu", Incr="+1"))["val"] == "6"
            reload(server, CONFIG % MAPPINGS, 1)
            assert (await publish(side, "visits.eu", Incr="+1"))["val"] == "1"
            assert await side.stored("COUNTS") == {"visits.eu": 1 + 1, "counts.eu": 1}

    asyncio.run(run())
    assert codes(tmp_path, COUNTS) == {"counter-restarts"}
    assert codes(tmp_path, COUNTS | {"allow_msg_counter": False}) == set()


def test_a_schedule_publishes_to_its_old_target(server: NatsServer, tmp_path: Path) -> None:
    async def run() -> None:
        async with shop(server, PLANS) as side:
            soon = (datetime.now(UTC) + timedelta(seconds=2)).strftime("@at %Y-%m-%dT%H:%M:%SZ")
            asked = {"Schedule": soon, "Schedule_Target": "jobs.eu"}
            assert "error" not in await publish(side, "plans.1", **asked)
            reload(server, CONFIG % MAPPINGS, 1)
            assert "error" not in await publish(side, "jobs.us")
            assert await side.stored("PLANS", "jobs.eu") == {"jobs.eu": 1, "work.us": 1}

    asyncio.run(run())
    assert codes(tmp_path, PLANS) == {"schedule-not-mapped"}
    assert codes(tmp_path, PLANS | {"allow_msg_schedules": False}) == set()


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


def test_a_batch_that_weights_send_to_two_streams(server: NatsServer, tmp_path: Path) -> None:
    async def run() -> None:
        async with shop(server, SPLIT, CANARY, WHOLE) as side:
            assert await batch(side, "orders.eu", "before", 20) == []
            reload(server, CONFIG % MAPPINGS, 1)
            refused = await batch(side, "orders.eu", "after", 40)
            assert set(refused) == {10174, 10176}
            assert await side.stored("SPLIT") == {"orders.eu": 20}
            assert await side.stored("CANARY") == {}
            # One stream for all of a batch is as good as none moved.
            assert await batch(side, "bills.eu", "whole", 20) == []
            assert await side.stored("WHOLE") == {"invoices.eu": 20}

    asyncio.run(run())
    assert "batch-split" in codes(tmp_path, SPLIT, CANARY)
    assert codes(tmp_path, WHOLE) == set()


def test_a_condition_is_checked_under_the_new_name(server: NatsServer) -> None:
    """Only messages show who publishes so: no configuration does."""

    async def run() -> None:
        async with shop(server, STOCK) as side:
            assert (await publish(side, "stock.eu"))["seq"] == 1
            reload(server, CONFIG % MAPPINGS, 1)
            answer = await publish(side, "stock.eu", Expected_Last_Subject_Sequence="1")
            assert answer["error"]["err_code"] == 10071
            assert "error" not in await publish(
                side, "stock.eu", Expected_Last_Subject_Sequence="0"
            )

    asyncio.run(run())
