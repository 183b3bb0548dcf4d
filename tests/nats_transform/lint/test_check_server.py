"""What the lints warn of happens on a real nats-server.

More of it is in tests/nats_transform/migration/mistakes.py and tests/conformance/test_regrets.py.
"""

from __future__ import annotations

import time
from pathlib import Path

import nats
import pytest
from nats.errors import NoRespondersError, TimeoutError

from jobs.errors import ArchiveError
from jobs.jetstream.connection import connection
from jobs.jetstream.process import nats_server
from jobs.settings.connection import NatsSettings
from nats_transform.config import load_all
from nats_transform.lint.check import Origin, check
from tests.conformance.client import Client
from tests.support.awaiting import awaited
from tests.support.files import written
from tests.support.jwt_signing import credentials, new_key, operator_config, public

pytestmark = pytest.mark.server


def test_empty_destination() -> None:
    with nats_server('mappings { foo: "" }') as server, Client(server.url) as client:
        client.publish("foo")
        with pytest.raises(ConnectionError):
            client.flush()
        assert server.process.wait() != 0


def test_republish_loop() -> None:
    republish = {"src": "orders.*", "dest": "orders.$1"}
    config = {"name": "A", "subjects": ["orders.new"], "republish": republish}
    with nats_server() as server, Client(server.url) as client:
        client.api("STREAM.CREATE.A", config)
        client.publish("orders.new")
        # How long the one message goes round is the server's affair; it comes again and again.
        while client.api("STREAM.INFO.A")["state"]["messages"] <= 20:
            time.sleep(0.1)  # pytest's timeout ends it


@pytest.mark.parametrize(
    ("source", "destination"), [(">", "x.>"), ("*.>", "x.$1.>"), ("*.*.*", "x.$1.$2.$3")]
)
@awaited
async def test_system_subjects(source: str, destination: str) -> None:
    with nats_server(f'mappings {{ "{source}": "{destination}" }}') as server:
        client = await nats.connect(server.url)
        with pytest.raises((NoRespondersError, TimeoutError)):
            await client.request("$JS.API.INFO", b"{}", timeout=5)
        await client.close()


@pytest.mark.parametrize(
    ("expires", "can_enter"), [(None, True), (2_000_000_000, True), (1_700_000_001, False)]
)
@awaited
async def test_expired(expires: int | None, can_enter: bool, tmp_path: Path) -> None:
    """Nobody gets into an account whose JWT has expired."""
    operator, account, system, user = map(new_key, ("operator", "account", "account", "user"))
    creds = written(tmp_path / "user.creds", credentials(user, account))
    config = operator_config(operator, account, system, tmp_path, expires)
    with nats_server(config) as server:
        try:
            async with connection(NatsSettings(servers=server.url, creds=creds)):
                entered = True
        except ArchiveError:
            entered = False
        assert entered is can_enter
    path = written(tmp_path / "server.conf", config)
    located = [one for one in load_all(path) if public(account) in one.accounts]
    found = check(
        [one.config for one in located],
        origins=[Origin(str(path), "A", expires=one.expires) for one in located],
        now=time.time(),
    )
    assert [finding.code for finding in found] == ([] if can_enter else ["expired"])
