"""Audits of real streams whose messages were lost, doubled or not mapped on the way."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from jobs.jetstream.process import NatsServer, nats_server
from tests.conformance.client import Client
from tests.conformance.test_streams import stored
from tests.support.command import nats_transform

pytestmark = [pytest.mark.server, pytest.mark.slow]

CONFIG = """
accounts {
  SHOP {
    jetstream: enabled, users: [{user: shop, password: secret}]
    %s
  }
  STORE { jetstream: enabled, users: [{user: store, password: secret}] }
}
"""
MAPPING = """mappings { "orders.*": [
  { destination: "orders.v1.$1", weight: %d%% }, { destination: "orders.v2.$1", weight: %d%% }
] }
"""
Copies = Callable[[str], int]


def publish(client: Client, messages: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """What streams answer to messages: subjects and ids."""
    return client.request_all((subject, None, [("Nats-Msg-Id", id)]) for subject, id in messages)


def read(client: Client, stream: str) -> list[tuple[str, str]]:
    """The messages of a stream."""
    return [(m.subject, m.headers["Nats-Msg-Id"]) for m in stored(client, [stream])[stream]]


def through_workers(server: NatsServer, count: int, copies: Copies) -> None:
    """Publishes to RAW; workers bring the messages into the mapped account and out of it.

    The second worker is not reliable: `copies` says how often it stores a message, by its subject.
    """
    with Client(server.url, "store") as store, Client(server.url, "shop") as shop:
        store.add_stream("RAW", "orders.*")
        # Nothing is a duplicate for longer than this.
        store.add_stream("DONE", "orders.*.*", duplicate_window=10**8)
        shop.add_stream("OUT", "orders.*.*")
        publish(store, [(f"orders.{n % 9}", f"id-{n}") for n in range(count)])
        publish(shop, read(store, "RAW"))
        messages = read(shop, "OUT")
        publish(store, [one for one in messages if copies(one[0])])
        for one in messages:
            for _ in range(copies(one[0]) - 1):
                while publish(store, [one])[0].get("duplicate"):
                    pass


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def audit(server: NatsServer, user: str, stream: str, *args: str) -> tuple[int, Any]:
    """Exit code and result of an observed audit of streams that are ingested first."""
    streams = [stream, *(args[1:] if args[:1] == ("--source-stream",) else ())]
    for name in streams:
        login = ("--server", server.url, "--user", user, "--password", "secret")
        code, _, err = nats_transform("ingest", "--stream", name, *login)
        assert code == 0, err
    code, out, err = nats_transform(
        "audit", "--observed", "--json", "--stream", stream, "--mapping", "mapping.conf", *args
    )
    assert out, err
    return code, json.loads(out)


def test_a_worker_that_acknowledges_and_drops(folder: Path) -> None:
    (folder / "mapping.conf").write_text(MAPPING % (50, 50))
    with nats_server(CONFIG % (MAPPING % (50, 50))) as server:

        def copies(subject: str) -> int:  # one key of nine is left of v2
            return int(subject.startswith("orders.v1.") or subject.endswith(".0"))

        through_workers(server, 4_500, copies)
        code, result = audit(server, "store", "DONE", "--source-stream", "RAW")
        (published,) = result["accounts"]
        counted, other = audit(server, "store", "DONE", "--published", "orders.*", "4500")
    missing = published["missing"]
    assert 1_700 < missing < 2_300  # 8 of 9 messages of v2
    assert published["published"] == published["attributed"] + missing == 4_500
    assert (published["doubled"], published["unpublished"]) == (0, 0)
    assert (code, result["verdict"], counted, other["verdict"]) == (1, "outside", 1, "outside")
    assert other["accounts"][0]["missing"] == missing
    assert f"{missing:,} of 4,500 published messages are missing" in result["rules"][0]["reason"]


def test_a_worker_that_stores_again_what_nobody_acknowledged(folder: Path) -> None:
    (folder / "mapping.conf").write_text(MAPPING % (98, 2))
    with nats_server(CONFIG % (MAPPING % (98, 2))) as server:

        def copies(subject: str) -> int:
            return 5 if subject.startswith("orders.v2.") else 1

        through_workers(server, 12_000, copies)
        code, result = audit(server, "store", "DONE", "--source-stream", "RAW")
    (published,), (rule,) = result["accounts"], result["rules"]
    canary = next(end for end in rule["destinations"] if end["weight"] == 2)
    assert published["doubled"] == 4 * canary["count"] > 400
    assert published["attributed"] == published["published"] == 12_000
    assert (code, result["verdict"]) == (0, "within")
    assert any("stored again with the Nats-Msg-Id" in note for note in result["notes"])


def reload(server: NatsServer, config: str, times: int) -> None:
    """Lets the server load other mappings, as its log says."""
    text = server.config.read_text()
    server.config.write_text(text[: text.index("accounts {")] + config)
    os.kill(server.process.pid, signal.SIGHUP)
    while server.log.read_text().count("Reloaded server configuration") < times:
        assert server.process.poll() is None


@pytest.mark.parametrize("parts", [(True, False), (False, False), (True, True)], ids=str)
def test_a_server_that_has_not_loaded_the_mapping(folder: Path, parts: tuple[bool, ...]) -> None:
    (folder / "mapping.conf").write_text(MAPPING % (50, 50))
    count = 6_000
    with nats_server(CONFIG % "") as server:
        for n, has_mapping in enumerate(parts):
            reload(server, CONFIG % (MAPPING % (50, 50) if has_mapping else ""), n + 1)
            with Client(server.url, "shop") as shop:
                if n == 0:
                    shop.add_stream("OUT", "orders.>")
                ids = range(n * count, (n + 1) * count)
                publish(shop, [(f"orders.{i % 9}", f"id-{i}") for i in ids])
        code, result = audit(server, "shop", "OUT", "--tolerance", "5")
    (published,), (rule,) = result["accounts"], result["rules"]
    unmapped = count * parts.count(False)
    assert published["unmapped"] == unmapped
    assert published["attributed"] == 2 * count - unmapped
    assert (code, result["verdict"]) == ((1, "outside") if unmapped else (0, "within"))
    if unmapped:
        (kept,) = [end for end in rule["destinations"] if end["end"] == "unmapped"]
        assert (kept["weight"], kept["verdict"]) == (0, "outside")
        assert "the mapping wasn't in force for them" in rule["reason"]
