"""A mirror that filters by old subjects becomes a stream that sources both, on a real server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jobs.jetstream.process import nats_server
from tests.conformance.test_account import reload
from tests.conformance.test_regrets import Side
from tests.conformance.test_stream_features import CONFIG, publish, shop
from tests.support.awaiting import awaited

pytestmark = pytest.mark.server

MAPPINGS = """
mappings { "orders.*": "shop.$1" }
"""
ORDERS = {"name": "ORDERS", "subjects": ["orders.*", "shop.*", "other"]}
EU = {"name": "EU", "mirror": {"name": "ORDERS", "filter_subject": "orders.*"}}
BOTH = [{"src": "orders.*"}, {"src": "shop.*"}]


async def update(side: Side, stream: dict[str, Any], **fields: Any) -> int | None:
    """The code of the error that an update of a stream without its mirror gives, if any."""
    config = {"storage": "memory", **stream, "mirror": None, **fields}
    body = json.dumps(config).encode()
    reply = await side.client.request(f"$JS.API.STREAM.UPDATE.{stream['name']}", body, 10)
    code: int | None = json.loads(reply.data).get("error", {}).get("err_code")
    return code


async def last(side: Side, stream: str) -> int:
    info = await side.ask(f"STREAM.INFO.{stream}", {})
    return int(info["state"]["last_seq"])


@awaited
async def test_a_promoted_mirror_goes_on_under_both_names() -> None:
    with nats_server(CONFIG % "") as server:
        async with shop(server, ORDERS, EU) as side:
            for subject in ("other", "orders.1", "other", "orders.2"):
                await publish(side, subject)
            await side.stored("EU", "orders.2")
            durable = {"durable_name": "READER", "ack_policy": "explicit"}
            body = {"stream_name": "EU", "config": durable}
            await side.ask("CONSUMER.CREATE.EU.READER", body)
            mirror = {"name": "ORDERS", "subject_transforms": BOTH}
            assert await update(side, EU, mirror=mirror) == 10055

            assert await update(side, EU) is None
            # Between the two steps nobody takes anything, and nothing is lost.
            reload(server, CONFIG % MAPPINGS, 1)
            await publish(side, "orders.3")
            assert await last(side, "EU") == 4
            source = mirror | {"opt_start_seq": await last(side, "EU") + 1}
            assert await update(side, EU, sources=[source]) is None
            await publish(side, "orders.4")
            whole = {"orders.1": 1, "orders.2": 1, "shop.3": 1, "shop.4": 1}
            assert await side.stored("EU", "shop.4") == whole
            reader = await side.ask("CONSUMER.INFO.EU.READER", {})
            assert reader["num_pending"] == 4
            # There is no way back.
            assert await update(side, EU, mirror=EU["mirror"]) == 10055
