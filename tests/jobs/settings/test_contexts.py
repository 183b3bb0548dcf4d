"""Contexts of the `nats` command, and what the command line makes of them."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Annotated, Any

import click
import pytest
from click.testing import CliRunner
from pydantic import SecretStr

from cli.command import command
from jobs.errors import ArchiveError
from jobs.jetstream.connection import connection
from jobs.jetstream.process import nats_server
from jobs.settings.base import Option, Settings, setting
from jobs.settings.connection import NatsSettings
from tests.cases import rows
from tests.support.jwt_signing import credentials, new_key, operator_config, seed
from tests.support.refused import refused


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of contexts; nothing in the environment but what a test puts there."""
    for name in ("URL", "CONTEXT", "CREDS", "NKEY", "USER", "PASSWORD", "TOKEN", "CA"):
        monkeypatch.delenv(f"NATS_{name}", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", "/at")
    (tmp_path / "nats" / "context").mkdir(parents=True)
    return tmp_path / "nats"


def save(folder: Path, name: str, fields: dict[str, Any] | None = None) -> None:
    (folder / "context" / f"{name}.json").write_text(json.dumps(fields or {}))


def with_context(name: str, given: dict[str, object]) -> NatsSettings:
    return NatsSettings.model_validate({"context": name, **given})


def plain(settings: NatsSettings) -> dict[str, str]:
    """The settings that are not the default, as text."""
    found = settings.model_dump(exclude_none=True, exclude_defaults=True)
    return {
        name: value.get_secret_value() if isinstance(value, SecretStr) else str(value)
        for name, value in found.items()
    }


def encoded(text: str) -> str:
    return "data:;base64," + base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(("context", "expected"), rows("contexts.yaml", "fields"))
def test_fields(
    folder: Path, monkeypatch: pytest.MonkeyPatch, context: dict[str, Any], expected: dict[str, str]
) -> None:
    monkeypatch.setenv("WHO", "me")
    save(folder, "x", context)
    assert plain(with_context("x", {})) == expected
    assert plain(with_context(str(folder / "context" / "x.json"), {})) == expected


def test_options_replace_parts(folder: Path) -> None:
    save(folder, "x", {"url": "nats://a", "user": "u", "password": "p", "ca": "/ca"})
    assert plain(with_context("x", {"servers": "nats://b", "creds": None})) == {
        "servers": "nats://b", "user": "u", "password": "p", "tls_ca": "/ca",
    }  # fmt: skip
    # Other credentials leave nothing of the context's.
    assert plain(with_context("x", {"token": "t"})) == {
        "servers": "nats://a", "token": "t", "tls_ca": "/ca",
    }  # fmt: skip


DEEP = pytest.param("[" * 100_000, "context-unreadable", id="deep")


@pytest.mark.parametrize(("content", "code"), [*rows("contexts.yaml", "refused"), DEEP])
def test_what_cannot_be_used_is_refused(folder: Path, content: str | None, code: str) -> None:
    save(folder, "other")
    if content is not None:
        (folder / "context" / "x.json").write_text(content)
    with refused(ArchiveError, code) as caught:
        with_context("x", {})
    assert caught.value.fields.get("field", "") in (content or "")


@pytest.mark.parametrize("name", ["../x", "a/b", "a\\b", ""])
def test_a_name_is_no_path(name: str) -> None:
    with refused(ArchiveError, "not-a-context-name"):
        with_context(name, {})


class Source(Settings):
    """A dump, or a server."""

    dump: str | None = setting(None, "A dump.")
    server: Annotated[NatsSettings | None, Option(unless=("dump",))] = None


@pytest.mark.parametrize(("arguments", "environment", "server"), rows("contexts.yaml", "server"))
def test_which_server(
    folder: Path, arguments: list[str], environment: dict[str, str], server: str | None
) -> None:
    @command("try", Source)
    def tried(source: Source) -> None:
        server = source.server
        click.echo(server.servers if server else "none")
        click.echo(server.token.get_secret_value() if server and server.token else "no token")

    save(folder, "x", {"url": "nats://x", "token": "secret"})
    save(folder, "chosen", {"url": "nats://selected"})
    (folder / "context.txt").write_text("chosen\n")
    run = CliRunner().invoke(tried, arguments, env=environment)
    assert run.output.splitlines()[0] == (server or "none"), run.output
    # A server that is named without a context gets no context's credentials.
    with_token = "x" in arguments or environment.get("NATS_CONTEXT") == "x"
    assert run.output.splitlines()[1] == ("secret" if with_token else "no token")


def greet(settings: NatsSettings) -> bytes:
    """What comes back to a subject of our own."""

    async def work() -> bytes:
        async with connection(settings) as client:
            inbox = client.new_inbox()
            subscription = await client.subscribe(inbox)
            await client.publish(inbox, b"hello")
            return (await subscription.next_msg(5)).data + b" " + inbox.encode()

    return asyncio.run(work())


USERS = """
authorization { users [
  { user: "u", password: "p", permissions { publish: "_MINE.>", subscribe: "_MINE.>" } }
] }
"""


@pytest.mark.server
def test_user_of_a_real_server(folder: Path) -> None:
    with nats_server(USERS) as server:
        login = {"user": "u", "password": "p", "inbox_prefix": "_MINE.x"}
        save(folder, "x", {"url": server.url, **login})
        assert greet(with_context("x", {})).startswith(b"hello _MINE.x.")
        with refused(ArchiveError, "credentials-refused"):
            greet(with_context("x", {"user": "u", "password": "q"}))


@pytest.mark.server
def test_jwt_of_a_real_server(folder: Path, tmp_path: Path) -> None:
    operator, account, system = (new_key(kind) for kind in ("operator", "account", "account"))
    user = new_key("user")
    config = operator_config(operator, account, system, tmp_path)
    text = credentials(user, account)
    jwt = text.splitlines()[1]
    with nats_server(config) as server:
        save(folder, "jwt", {"url": server.url, "user_jwt": jwt, "user_seed": seed(user).decode()})
        save(folder, "text", {"url": server.url, "creds": encoded(text)})
        for name in ("jwt", "text"):
            assert greet(with_context(name, {})).startswith(b"hello _INBOX.")
        save(folder, "bad", {"url": server.url, "creds": encoded("no JWT here")})
        with refused(ArchiveError, "credentials-without", where="the text of the credentials"):
            greet(with_context("bad", {}))
