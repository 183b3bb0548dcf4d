"""What people have reported, on a real nats-server: what `check` says of it is what it does."""

from __future__ import annotations

import asyncio
import gc
import json
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nats
import nats.errors
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from jobs.jetstream.process import NatsServer, nats_server
from tests.support.awaiting import awaited
from tests.support.clients import settled
from tests.support.command import findings
from tests.support.files import write_files
from tests.support.jwt_signing import (
    ACCOUNT_LIMITS,
    claims,
    credentials,
    new_key,
    operator_config,
    token,
)

pytestmark = pytest.mark.server

CONFIG = """
mappings { top: mapped.top }
accounts {
  HUB { users [ {user: hub, password: p} ], exports [ {stream: "in.>"} ] }
  SHOP {
    jetstream: enabled
    users [ {user: shop, password: p} ]
    imports [ {stream: {account: HUB, subject: "in.>"}} ]
    mappings { "in.>": "mapped.>" }
  }
}
"""


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServer]:
    with nats_server(CONFIG) as running:
        yield running


def found(folder: Path, **files: object) -> set[str]:
    """The codes of `check` for some files."""
    write_files(folder, files)
    paths = [folder / name for name in files]
    return {one["code"] for one in findings("check", *paths, "--fail-on", "never")}


class Side:
    """A user, and how often each subject came."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.seen: Counter[str] = Counter()
        self._came = asyncio.Event()

    @classmethod
    async def of(cls, server: NatsServer, user: str, subject: str = ">") -> Side:
        client = await nats.connect(server.url, user=user, password="p")  # noqa: S106
        side = cls(client)
        await client.subscribe(subject, cb=side._hear)
        await settled(client)
        return side

    async def _hear(self, message: Msg) -> None:
        self.seen[message.subject] += 1
        self._came.set()

    async def hears(self, subject: str, count: int = 1) -> None:
        """Waits for messages; what was published before the last of them has come by then."""
        while self.seen[subject] < count:  # pytest's timeout ends it
            self._came.clear()
            await self._came.wait()

    async def publish(self, subject: str) -> None:
        await self.client.publish(subject, b"")
        await self.client.flush()

    async def ask(self, subject: str, body: Any) -> Any:
        answer = await self.client.request(f"$JS.API.{subject}", json.dumps(body).encode(), 10)
        told = json.loads(answer.data)
        assert "error" not in told, told
        return told

    async def make(self, config: dict[str, Any]) -> None:
        await self.ask(f"STREAM.CREATE.{config['name']}", {"storage": "memory", **config})

    async def stored(self, stream: str, *last: str) -> Counter[str]:
        """The messages of a stream by subject, once it has some under each of these."""
        while True:  # pytest's timeout ends it
            state = await self.ask(f"STREAM.INFO.{stream}", {"subjects_filter": ">"})
            found = Counter[str](state["state"].get("subjects", {}))
            if all(found[subject] for subject in last):
                return found
            await asyncio.sleep(0.05)


@awaited
async def test_mappings_of_imports_and_of_nobody(server: NatsServer, tmp_path: Path) -> None:
    hub, shop = await Side.of(server, "hub"), await Side.of(server, "shop")
    for subject in ("in.x", "in.last"):
        await hub.publish(subject)
    for subject in ("in.y", "top", "last"):
        await shop.publish(subject)
    await shop.hears("in.last")
    await shop.hears("last")
    # What came through the import and what $G maps stay; the account's own message is mapped.
    assert shop.seen == dict.fromkeys(("in.x", "in.last", "mapped.y", "top", "last"), 1)
    await hub.client.close()
    await shop.client.close()
    codes = found(tmp_path, server=CONFIG)
    assert {"import-not-mapped", "nobody-publishes"} <= codes
    fine = CONFIG.replace("mappings { top", "no_auth_user: a\n#").replace(
        'subject: "in.>"}}', 'subject: "in.>"}, to: "hub.in.>"}'
    )
    assert not {"import-not-mapped", "nobody-publishes"} & found(tmp_path, server=fine)


@awaited
async def test_the_system_account_leaves_everybody_else_in_the_global_one(tmp_path: Path) -> None:
    text = """
    system_account: SYS
    mappings { top: mapped.top }
    accounts { SYS { users [ {user: sys, password: p} ] } }
    """
    assert "nobody-publishes" not in found(tmp_path, server=text)
    with nats_server(text) as other:
        client = await nats.connect(other.url)
        side = Side(client)
        await client.subscribe("mapped.*", cb=side._hear)
        await side.publish("top")
        await side.hears("mapped.top")
        await client.close()
        assert side.seen == {"mapped.top": 1}


@awaited
async def test_equal_ids_from_two_sources(server: NatsServer, tmp_path: Path) -> None:
    sources = {"sources": [{"name": "A"}, {"name": "B"}]}
    wrong = {"name": "WINDOW", **sources, "duplicate_window": 10**11}
    right = {"name": "NONE", **sources}
    shop = await Side.of(server, "shop", "nothing")
    for name in ("A", "B"):
        await shop.make({"name": name, "subjects": [f"{name.lower()}.*"]})
    await shop.make(wrong)
    await shop.make(right)
    for subject, message in (("a.x", "1"), ("b.x", "1"), ("a.last", "2"), ("b.last", "3")):
        await shop.client.request(subject, b"", 5, headers={"Nats-Msg-Id": message})
    last = ("a.last", "b.last")
    assert (await shop.stored("NONE", *last)).total() == 4
    assert (await shop.stored("WINDOW", *last)).total() == 3
    await shop.client.close()
    assert found(tmp_path, stream=wrong) == {"same-ids"}
    assert found(tmp_path, stream=right) == set()


@awaited
async def test_what_an_interest_stream_republishes(server: NatsServer, tmp_path: Path) -> None:
    config = {
        "name": "INTEREST",
        "subjects": ["i.*"],
        "retention": "interest",
        "republish": {"src": ">", "dest": "live.>"},
    }
    shop = await Side.of(server, "shop", "live.>")
    await shop.make(config)
    consumer = {"durable_name": "c", "ack_policy": "explicit", "filter_subject": "i.wanted"}
    body = {"stream_name": "INTEREST", "config": consumer}
    await shop.ask("CONSUMER.CREATE.INTEREST.c", body)
    for subject in ("i.other", "i.wanted"):
        await shop.client.request(subject, b"", 5)
    await shop.hears("live.i.wanted")
    assert shop.seen == {"live.i.wanted": 1}
    await shop.client.close()
    assert found(tmp_path, stream=config) == {"republish-interest"}


@awaited
async def test_a_bucket_that_sources_another(server: NatsServer, tmp_path: Path) -> None:
    def bucket(name: str, *sources: dict[str, Any]) -> dict[str, Any]:
        config = {"name": f"KV_{name}", "subjects": [f"$KV.{name}.>"], "allow_direct": True}
        return config | {"max_msgs_per_subject": 1, "sources": list(sources)}

    transform = {"src": "$KV.X.>", "dest": "$KV.RIGHT.>"}
    wrong = bucket("WRONG", {"name": "KV_X"})
    right = bucket("RIGHT", {"name": "KV_X", "subject_transforms": [transform]})
    shop = await Side.of(server, "shop", "nothing")
    for config in (bucket("X"), wrong, right):
        await shop.make(config)
    await shop.client.request("$KV.X.key", b"value", 5)
    told = {}
    for name in ("WRONG", "RIGHT"):
        key = "$KV.X.key" if name == "WRONG" else "$KV.RIGHT.key"
        assert await shop.stored(f"KV_{name}", key) == {key: 1}
        get = f"$JS.API.DIRECT.GET.KV_{name}.$KV.{name}.key"
        answer = await shop.client.request(get, b"", 5)
        told[name] = answer.data or (answer.headers or {}).get("Status")
    assert told == {"WRONG": "404", "RIGHT": b"value"}
    await shop.client.close()
    assert found(tmp_path, stream=wrong) == {"bucket-source"}
    assert found(tmp_path, stream=right) == set()


ZERO = {"foo": [{"subject": "bar", "weight": 0}], "a": [{"subject": "b", "weight": 100}]}
MORE = {"foo": [{"subject": "bar", "weight": 0}, {"subject": "baz", "weight": 50}]}


@pytest.mark.parametrize("mappings", [ZERO, MORE], ids=["alone", "beside another"])
def test_a_weight_of_zero_in_a_jwt(mappings: Any, tmp_path: Path) -> None:
    """A server of an operator sends all to it; if that makes more than 100, it lets nobody in."""
    operator, account, user = new_key("operator"), new_key("account"), new_key("user")
    said = claims(account, operator, "account", limits=ACCOUNT_LIMITS, mappings=mappings)
    config = operator_config(operator, account, new_key("account"), tmp_path, mappings=mappings)
    (tmp_path / "user.creds").write_text(credentials(user, account))

    async def run(url: str) -> dict[str, int] | None:
        given: dict[str, Any] = {"allow_reconnect": False, "connect_timeout": 10}
        try:
            client = await nats.connect(
                url, user_credentials=str(tmp_path / "user.creds"), error_cb=_quiet, **given
            )
        except nats.errors.Error:
            return None
        side = Side(client)
        await client.subscribe("*", cb=side._hear)
        for _ in range(50):
            await client.publish("foo", b"")
        await side.hears("bar", 50)
        await client.close()
        return dict(side.seen)

    with nats_server(config) as running, warnings.catch_warnings():
        # Of a connection that is refused, nats-py leaves the writer open.
        warnings.simplefilter("ignore", ResourceWarning)
        seen = asyncio.run(run(running.url))
        gc.collect()
        log = running.log.read_text()
    jwt = found(tmp_path, account=token(said, operator))
    cli = found(tmp_path, mappings=mappings)
    if mappings is ZERO:
        assert seen == {"bar": 50}
        assert jwt == cli == {"zero-is-all"}
    else:
        assert seen is None
        assert "exceeds 100%" in log
        assert jwt == cli == {"refused"}
    # In a server configuration it is what it says.
    text = "mappings { foo: [ {destination: bar, weight: 0} ] }"
    assert found(tmp_path, server=text) == {"zero-weight", "remainder-kept"}


async def _quiet(error: Exception) -> None:
    """What the test is about."""
