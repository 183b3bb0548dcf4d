"""What the lints warn of happens on a real nats-server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError, TimeoutError

from jobs.jetstream.process import nats_server

pytestmark = pytest.mark.server


def on_server(config: str, work: Callable[[Client], Awaitable[None]]) -> int | None:
    """Runs some work on a server of its own; the server's exit code, None if it still runs."""
    with nats_server(config) as server:

        async def connected() -> None:
            client = await nats.connect(server.url, allow_reconnect=False)
            await work(client)
            await client.close()

        asyncio.run(connected())
        return server.process.poll()


async def api(client: Client, subject: str, body: dict[str, Any] | None = None) -> Any:
    answer = await client.request(f"$JS.API.{subject}", json.dumps(body or {}).encode(), timeout=5)
    return json.loads(answer.data)


async def stored(client: Client, stream: str) -> int:
    return int((await api(client, f"STREAM.INFO.{stream}"))["state"]["messages"])


def test_empty_destination() -> None:
    async def work(client: Client) -> None:
        await client.publish("foo", b"")
        await asyncio.sleep(0.5)

    assert on_server('mappings { foo: "" }', work) not in (None, 0)


def test_republish_loop() -> None:
    async def work(client: Client) -> None:
        config = {
            "name": "A",
            "subjects": ["orders.new"],
            "republish": {"src": "orders.*", "dest": "orders.$1"},
        }
        assert "error" not in await api(client, "STREAM.CREATE.A", config)
        await client.publish("orders.new", b"")
        # How long the one message goes round is the server's affair; it comes again and again.
        for _ in range(100):
            if await stored(client, "A") > 20:
                break
            await asyncio.sleep(0.1)
        assert await stored(client, "A") > 20

    on_server("", work)


@pytest.mark.parametrize(
    ("source", "destination"), [(">", "x.>"), ("*.>", "x.$1.>"), ("*.*.*", "x.$1.$2.$3")]
)
def test_system_subjects(source: str, destination: str) -> None:
    async def work(client: Client) -> None:
        with pytest.raises((NoRespondersError, TimeoutError)):
            await api(client, "INFO")

    on_server(f'mappings {{ "{source}": "{destination}" }}', work)


def test_any_token() -> None:
    async def work(client: Client) -> None:
        taken = await client.subscribe("p")
        await client.flush()
        await client.publish("o.zzz", b"")
        assert (await taken.next_msg(5)).subject == "p"

    on_server('mappings { "o.*a": "p" }', work)


def test_sourced_twice() -> None:
    async def work(client: Client) -> None:
        both = [{"name": "U", "filter_subject": filter} for filter in ("a.>", "a.b")]
        await api(client, "STREAM.CREATE.U", {"name": "U", "subjects": ["a.>"]})
        assert "error" not in await api(client, "STREAM.CREATE.S", {"name": "S", "sources": both})
        await client.publish("a.b", b"")
        for _ in range(50):
            if await stored(client, "S") == 2:
                break
            await asyncio.sleep(0.1)
        assert (await stored(client, "U"), await stored(client, "S")) == (1, 2)

    on_server("", work)


def test_not_chained_and_remainder_kept() -> None:
    config = 'mappings { "a.*": [{dest: "b.$1", weight: 50}], "b.*": "c.$1" }'

    async def work(client: Client) -> None:
        taken = await client.subscribe(">")
        await client.flush()
        for _ in range(100):
            await client.publish("a.1", b"")
        subjects = {(await taken.next_msg(5)).subject for _ in range(100)}
        assert subjects == {"a.1", "b.1"}

    on_server(config, work)
