"""Planted secrets are in none of the artefacts: output, errors, tables, reports, logs, plans."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nats
import pytest
from click.testing import CliRunner
from pydantic import ValidationError

from cli.main import main
from jobs.jetstream.process import nats_server
from jobs.registry import JOBS
from jobs.settings.connection import NatsSettings
from jobs.settings.ingest import IngestSettings
from jobs.settings.warehouse import Warehouse
from jobs.warehouse import versions
from nats_transform.config import load_mappings
from tests.support.jwt_signing import credentials, new_key, seed
from tests.support.programs import ended

pytestmark = pytest.mark.server

SECRETS = {
    "password": "planted-password-7f3a",
    "token": "planted-token-91bc",
    "url": "planted-url-55d0",
    "other": "planted-other-user-c2e4",
}
CONFIG = """
accounts {{ A {{
  jetstream: enabled
  users [ {{ user: u, password: "{password}" }}, {{ user: v, password: "{other}" }} ]
  mappings {{ "orders.*": [
    {{ destination: "orders.v1.$1", weight: 50% }}, {{ destination: "orders.v2.$1", weight: 50% }}
  ] }}
}} }}
"""


@pytest.fixture
def planted(tmp_path: Path) -> tuple[list[bytes], Path, Path]:
    """The needles, the folder with the files that hold them, and the one for artefacts."""
    held, made = tmp_path / "held", tmp_path / "made"
    held.mkdir()
    made.mkdir()
    user, account = new_key("user"), new_key("account")
    (held / "user.creds").write_text(credentials(user, account))
    (held / "user.nk").write_bytes(seed(user))
    (held / "server.conf").write_text(CONFIG.format(**SECRETS))
    jwt = credentials(user, account).splitlines()[1]
    needles = [secret.encode() for secret in SECRETS.values()]
    return [*needles, seed(user), jwt.encode()], held, made


@pytest.mark.slow
def test_planted_secrets_are_nowhere(
    planted: tuple[list[bytes], Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    needles, held, made = planted
    monkeypatch.chdir(made)
    caplog.set_level(logging.INFO)  # below, py4j repeats every call of the JVM
    said: list[str] = []

    def run(*arguments: str) -> int:
        result = CliRunner().invoke(main, arguments)
        said.extend([result.stdout, result.stderr, str(result.exception)])
        if result.exc_info:
            said.extend(traceback.format_exception(*result.exc_info))
        return result.exit_code

    mapping = str(held / "server.conf")
    with nats_server(CONFIG.format(**SECRETS)) as server:
        asyncio.run(fill(server.url))
        user = ["--user", "u", "--password"]
        stream = ["ingest", "--stream", "ORDERS", "--server"]
        assert run(*stream, server.url, *user, SECRETS["password"], "--json") == 0
        in_url = server.url.replace("nats://", f"nats://u:{SECRETS['url']}@")
        for command in (
            [*stream, in_url],
            [*stream, server.url, *user, SECRETS["other"]],
            [*stream, server.url, "--token", SECRETS["token"]],
            [*stream, server.url, "--creds", str(held / "user.creds")],
            [*stream, server.url, "--nkey", str(held / "user.nk")],
            [*stream, in_url.replace("nats://", "://")],
        ):
            assert run(*command, "--debug") == 2, command
    account = ["--account", "A"]
    assert run("transform", "--stream", "ORDERS", "--mapping", mapping, *account) == 0
    report = ["--report", "report.html"]
    assert run("audit", "--stream", "ORDERS", "--mapping", mapping, *account, *report) in (0, 1)
    candidate = ["dry-run", "--stream", "ORDERS", "--candidate", mapping, *account]
    assert run(*candidate, "--report", "dry-run.html") in (0, 1)
    assert run("check", mapping, *account) in (0, 1)
    broken = held / "broken.conf"
    broken.write_text(CONFIG.format(**SECRETS).replace("mappings", "mappings {{{{ ["))
    assert run("check", str(broken), "--debug") == 1
    versions.record(Warehouse(), load_mappings(held / "server.conf", "A"), account="A", seed=0)
    said.append(caplog.text)

    artefacts = {str(path): path.read_bytes() for path in made.rglob("*") if path.is_file()}
    assert {"report.html", "dry-run.html"} <= {Path(name).name for name in artefacts}
    assert len(versions.read(Warehouse())) == 1
    artefacts["output"] = "\n".join(said).encode()
    assert b"refuses these credentials" in artefacts["output"]
    found = [
        (name, needle) for name, text in artefacts.items() for needle in needles if needle in text
    ]
    assert found == []


async def fill(url: str) -> None:
    client = await nats.connect(url, user="u", password=SECRETS["password"], connect_timeout=600)
    jetstream = client.jetstream(timeout=600)
    await jetstream.add_stream(name="ORDERS", subjects=["orders.>"])
    for n in range(20):
        await jetstream.publish(f"orders.{n}", b"x")
    await client.close()


def test_settings_hide_their_secrets() -> None:
    given = {"servers": "nats://h", "user": "u", "password": "planted", "token": "planted"}
    settings = NatsSettings.model_validate(given)
    ingest = IngestSettings(stream="S", server=settings)
    for shown in (repr(settings), str(ingest), ingest.model_dump_json(), repr(ingest.model_dump())):
        assert "planted" not in shown


@pytest.mark.parametrize("job", JOBS)
def test_errors_of_settings_hide_their_input(job: str) -> None:
    """Also what `--debug` shows of them, below the one line."""
    settings = JOBS[job].model
    given = {"server": {"servers": "://u:planted@h", "password": ["planted"]}, "remote": "planted"}
    with pytest.raises(ValidationError) as caught:
        settings.model_validate(given | {"warehouse": {"dir": ["planted"]}})
    assert "planted" not in str(caught.value)


@pytest.mark.slow
def test_event_logs_and_ps_have_no_secrets(tmp_path: Path) -> None:
    """Of a job that is run for itself: what a history server shows, and `ps` at any moment."""
    secret = SECRETS["password"]
    config = f'authorization {{ user: u, password: "{secret}" }}'
    with nats_server(config) as server:
        asyncio.run(fill(server.url))
        settings = {
            "stream": "ORDERS",
            "server": {"servers": server.url, "user": "u", "password": secret},
            "warehouse": {"dir": str(tmp_path / "warehouse")},
        }
        logs = tmp_path / "events"
        logs.mkdir()
        options = os.environ["SPARK_SUBMIT_OPTS"]
        options += f" -Dspark.eventLog.enabled=true -Dspark.eventLog.dir=file://{logs}"
        options += " -Dspark.eventLog.compress=false"
        with ThreadPoolExecutor() as pool:
            running = pool.submit(
                ended,
                *(sys.executable, "-m", "jobs", "ingest", "--master", "local[1]"),
                input=json.dumps(settings),
                env=os.environ | {"SPARK_SUBMIT_OPTS": options},
            )
            seen: set[bytes] = set()
            while not running.done():
                seen |= command_lines()
                time.sleep(0.02)
        done = running.result()
    assert done.returncode == 0, done.stderr
    assert any(b"java" in line and b"local[1]" in line for line in seen)
    assert [line for line in seen if secret.encode() in line] == []
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.is_relative_to(logs) for path in files)
    assert [path for path in files if secret.encode() in path.read_bytes()] == []
    assert secret not in done.stdout + done.stderr


def command_lines() -> set[bytes]:
    """What `ps` shows of every process now."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has just ended
            found.add(path.read_bytes())
    return found
