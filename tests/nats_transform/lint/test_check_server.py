"""What the lints warn of happens on a real nats-server."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError, TimeoutError

from jobs.errors import ArchiveError
from jobs.jetstream.connection import connection
from jobs.jetstream.process import nats_server
from jobs.settings.connection import NatsSettings
from nats_transform.config import load_all, shared_by
from nats_transform.lint.check import Origin, check
from nats_transform.lint.findings import Severity
from nats_transform.streams.stream import parse_stream
from tests.support.clients import settled
from tests.support.jwt_signing import credentials, new_key, operator_config, public

pytestmark = pytest.mark.server


def on_server(config: str, work: Callable[[Client], Awaitable[None]]) -> int | None:
    """Runs some work on a server of its own; the server's exit code, None if it still runs."""
    with nats_server(config) as server:

        async def connected() -> bool:
            client = await nats.connect(server.url, allow_reconnect=False, connect_timeout=600)
            await work(client)
            lost = client.is_closed
            await client.close()
            return lost

        lost = asyncio.run(connected())
        return server.process.wait() if lost else server.process.poll()


async def api(
    client: Client, subject: str, body: dict[str, Any] | None = None, seconds: float = 600
) -> Any:
    data = json.dumps(body or {}).encode()
    answer = await client.request(f"$JS.API.{subject}", data, timeout=seconds)
    return json.loads(answer.data)


async def stored(client: Client, stream: str) -> int:
    return int((await api(client, f"STREAM.INFO.{stream}"))["state"]["messages"])


def test_empty_destination() -> None:
    async def work(client: Client) -> None:
        await client.publish("foo", b"")
        while not client.is_closed:  # pytest's timeout ends it
            await asyncio.sleep(0.05)

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
        while await stored(client, "A") <= 20:
            await asyncio.sleep(0.1)  # pytest's timeout ends it

    on_server("", work)


@pytest.mark.parametrize(
    ("source", "destination"), [(">", "x.>"), ("*.>", "x.$1.>"), ("*.*.*", "x.$1.$2.$3")]
)
def test_system_subjects(source: str, destination: str) -> None:
    async def work(client: Client) -> None:
        with pytest.raises((NoRespondersError, TimeoutError)):
            await api(client, "INFO", seconds=5)

    on_server(f'mappings {{ "{source}": "{destination}" }}', work)


def test_any_token() -> None:
    async def work(client: Client) -> None:
        taken = await client.subscribe("p")
        await client.flush()
        await client.publish("o.zzz", b"")
        assert (await taken.next_msg(600)).subject == "p"

    on_server('mappings { "o.*a": "p" }', work)


def test_sourced_twice() -> None:
    async def work(client: Client) -> None:
        both = [{"name": "U", "filter_subject": filter} for filter in ("a.>", "a.b")]
        await api(client, "STREAM.CREATE.U", {"name": "U", "subjects": ["a.>"]})
        assert "error" not in await api(client, "STREAM.CREATE.S", {"name": "S", "sources": both})
        await client.publish("a.b", b"")
        while await stored(client, "S") < 2:
            await asyncio.sleep(0.1)  # pytest's timeout ends it
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


@pytest.mark.parametrize(
    ("expires", "can_enter"), [(None, True), (2_000_000_000, True), (1_700_000_001, False)]
)
def test_expired(expires: int | None, can_enter: bool, tmp_path: Path) -> None:
    """Nobody gets into an account whose JWT has expired."""
    operator, account, system, user = map(new_key, ("operator", "account", "account", "user"))
    creds = tmp_path / "user.creds"
    creds.write_text(credentials(user, account))
    config = operator_config(operator, account, system, tmp_path, expires)

    async def enter(url: str) -> bool:
        try:
            async with connection(NatsSettings(servers=url, creds=creds)):
                return True
        except ArchiveError:
            return False

    with nats_server(config) as server:
        assert asyncio.run(enter(server.url)) is can_enter
    path = tmp_path / "server.conf"
    path.write_text(config)
    located = [one for one in load_all(path) if public(account) in one.accounts]
    found = check(
        [one.config for one in located],
        origins=[Origin(str(path), "A", expires=one.expires) for one in located],
        now=time.time(),
    )
    assert [finding.code for finding in found] == ([] if can_enter else ["expired"])


def test_streams_overlap() -> None:
    streams: list[dict[str, Any]] = [
        {"name": "A", "subjects": ["a.*"]},
        {"name": "B", "subjects": ["b", "a.x"]},
        {"name": "C", "subjects": ["c.>"]},
    ]

    async def work(client: Client) -> None:
        answers = {
            one["name"]: await api(client, f"STREAM.CREATE.{one['name']}", one) for one in streams
        }
        codes = {name: answer.get("error", {}).get("err_code") for name, answer in answers.items()}
        assert codes == {"A": None, "B": 10065, "C": None}

    on_server("", work)
    found = check([parse_stream(one) for one in streams])
    assert [(one.code, one.place) for one in found] == [("streams-overlap", "stream A")]


@pytest.mark.parametrize(("destination", "arrives"), [("shop.$1", False), ("orders.v2.$1", True)])
def test_escapes_export(destination: str, arrives: bool, tmp_path: Path) -> None:
    config = f"""accounts {{
      A {{
        users: [{{user: a, password: x}}], exports: [{{stream: "orders.>"}}]
        mappings {{ "orders.*": "{destination}" }}
      }}
      B {{
        users: [{{user: b, password: x}}]
        imports: [{{stream: {{account: A, subject: "orders.>"}}}}]
      }}
    }}"""

    async def receive(url: str) -> bool:
        importer = await nats.connect(url, user="b", password="x")  # noqa: S106 - of a server in a test
        exporter = await nats.connect(url, user="a", password="x")  # noqa: S106 - of a server in a test
        subscription = await importer.subscribe(">")
        await settled(importer)
        await exporter.publish("orders.1", b"")
        await exporter.flush()
        await importer.flush()
        if arrives:  # it can take longer than the round trips
            await subscription.next_msg(timeout=60)
        arrived = arrives or subscription.pending_msgs > 0
        await importer.close()
        await exporter.close()
        return arrived

    with nats_server(config) as server:
        assert asyncio.run(receive(server.url)) is arrives
    path = tmp_path / "server.conf"
    path.write_text(config)
    everything = load_all(path)
    (exporting,) = [one for one in everything if "A" in one.accounts]
    found = check(exporting.config, origins=[Origin(shared=shared_by("A", everything))])
    codes = [one.code for one in found if one.severity is Severity.WARNING]
    assert codes == ([] if arrives else ["escapes-export"])
