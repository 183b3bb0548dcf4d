"""Permissions: a real nats-server allows what `users_of` says, and refuses what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.jetstream.process import nats_server
from nats_transform.config import parse_server_config
from nats_transform.config.permissions import users_of
from nats_transform.errors import InvalidConfig
from tests.conformance.client import Client
from tests.support.files import written
from tests.support.refused import refused
from tests.support.server_check import checked

pytestmark = pytest.mark.server

TAKEN = [
    "{%s: []}",
    "{%s: {}}",
    "{%s: {allow: []}}",
    "{%s: {allow: [], deny: []}}",
    '{%s: {allow: [], deny: "a.*"}}',
    '{%s: {allow: "a.*", deny: []}}',
    '{%s: ["a.*"]}',
]
ONE_SIDED = ['{subscribe: "a.* q"}', "{allow_responses: true}", "{subscribe: ' a.*  q '}"]
REFUSED = ["''", "' a'", "'a '", "['a', '']", "'a q r'", "'a q..r'"]


def authorization(permissions: list[str]) -> str:
    users = "".join(
        f"{{user: u{n}, password: secret, permissions: {each}}}\n"
        for n, each in enumerate(permissions)
    )
    return f"authorization {{ users: [\n{users}] }}\n"


def takes(client: Client) -> bool:
    """Whether the server takes what was sent."""
    try:
        client.flush()
    except ConnectionError as error:
        assert "Permissions Violation" in str(error)  # noqa: PT017 - of two errors only this one
        return False
    return True


def test_the_server_allows_what_is_allowed_here(tmp_path: Path) -> None:
    permissions = [each % side for each in TAKEN for side in ("publish", "subscribe")] + ONE_SIDED
    text = authorization(permissions)
    users = users_of(parse_server_config(written(tmp_path / "server.conf", text)))
    with nats_server(text) as server:
        for number, (user, what) in enumerate(zip(users, permissions, strict=True)):
            for subject in ("a.1", "b"):
                with Client(server.url, f"u{number}") as client:
                    client.publish(subject)
                    assert takes(client) == user.publish.allows(subject), (what, subject)
                with Client(server.url, f"u{number}") as client:
                    client.subscribe(subject)
                    assert takes(client) == user.subscribe.allows(subject), (what, subject)


@pytest.mark.parametrize("side", ["publish", "subscribe"])
@pytest.mark.parametrize("subjects", REFUSED)
def test_the_server_refuses_what_is_refused_here(tmp_path: Path, side: str, subjects: str) -> None:
    path = written(tmp_path / "server.conf", authorization([f"{{{side}: {subjects}}}"]))
    with refused(InvalidConfig, "permission-not-a-subject"):
        users_of(parse_server_config(path))
    assert "is not a valid" in checked(path)[1]
