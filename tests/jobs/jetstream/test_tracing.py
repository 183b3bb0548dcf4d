"""Messages that servers only trace: what the mappings give them, and that nobody gets them."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from jobs.errors import ArchiveError
from jobs.jetstream.connection import connection
from jobs.jetstream.process import nats_server
from jobs.jetstream.tracing import belongs_to_server, mapped_subjects
from jobs.settings.connection import NatsSettings
from tests.conformance.client import Client
from tests.support.refused import refused

MAPPINGS = """mappings {
  "a": [{ destination: b, weight: 60% }, { destination: c, weight: 30% }]
  "d": [{ destination: d, weight: 40% }]
}
"""


async def asked(url: str, subject: str, count: int) -> Counter[str]:
    settings = NatsSettings(servers=url)
    async with connection(settings) as client:
        return await mapped_subjects(client, subject, count)


@pytest.mark.server
def test_the_draws_of_a_server_without_a_delivery() -> None:
    with nats_server(MAPPINGS) as server, Client(server.url) as watcher:
        number = watcher.subscribe(">")
        create = watcher.request("$JS.API.STREAM.CREATE.S", {"name": "S", "subjects": ["b", "c"]})
        assert "error" not in create
        drawn = asyncio.run(asked(server.url, "a", 900))
        assert drawn.keys() == {"a", "b", "c"}
        assert drawn["b"] > drawn["c"] > drawn["a"] > 0
        assert drawn.total() == 900
        lost = asyncio.run(asked(server.url, "d", 300))
        assert lost.keys() == {"d", ""}
        assert asyncio.run(asked(server.url, "e", 3)) == {"e": 3}
        watcher.flush()
        subjects = {message.subject for message in watcher.received(number)}
        assert {name for name in subjects if not name.startswith(("_INBOX.", "$"))} == set()
        assert watcher.request("$JS.API.STREAM.INFO.S")["state"]["messages"] == 0


@pytest.mark.server
def test_a_user_who_may_not_is_told() -> None:
    users = "authorization { users: [{ user: u, password: p, permissions: { publish: a } }] }"
    with nats_server(users) as server:
        url = server.url.replace("//", "//u:p@")
        with refused(ArchiveError, "trace-refused"):
            asyncio.run(asked(url, "a", 3))


OF_SERVER = ["$JS.API.X", "$JS.ACK.S.c.1", "$SYS.REQ.X", "$1", "_R_.x", "_GR_.x", "$KVX"]
OTHERS = ["$KV.bucket.key", "$O.bucket.C.x", "orders.$JS", "_INBOX.x"]


@pytest.mark.parametrize("subject", [*OF_SERVER, *OTHERS])
def test_subjects_of_the_server_itself(subject: str) -> None:
    assert belongs_to_server(subject) is (subject in OF_SERVER)
