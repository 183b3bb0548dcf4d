"""The private nats-server."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import stat
import tempfile
import time
from pathlib import Path

import pytest
from pydantic import SecretStr

from jobs.errors import ArchiveError, JobError
from jobs.jetstream.connection import connection
from jobs.jetstream.process import USER, nats_server
from jobs.scratch import temporary_folder
from jobs.settings.connection import NatsSettings
from tests.support.programs import in_python
from tests.support.refused import refused

pytestmark = pytest.mark.server


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_it_is_stopped_whatever_happens() -> None:
    running = nats_server()
    server = running.__enter__()
    pid = server.process.pid
    assert is_running(pid)
    assert not running.__exit__(RuntimeError, RuntimeError("on purpose"), None)
    assert not is_running(pid)
    assert not server.store.exists()


_SIGNALLED = """
import os, signal, subprocess, sys
from jobs.ending import ended_by_signals
from jobs.jetstream import process


class Popen(subprocess.Popen):
    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        print(self.pid, flush=True)
        os.kill(os.getpid(), int(sys.argv[1]))
        for _ in range(1000):  # Python looks for signals between its own instructions
            pass

process.subprocess.Popen = Popen
with ended_by_signals("test"), process.nats_server():
    print("it was not told")
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_it_starts_leaves_no_process(number: signal.Signals) -> None:
    done = in_python(_SIGNALLED, int(number))
    assert done.returncode == 128 + number, done.stderr
    server, watcher = map(int, done.stdout.split())
    assert not is_running(server)
    assert not is_running(watcher)


_KILLED = """
import os, signal
from jobs.jetstream.process import nats_server
with nats_server() as server:
    print(server.url.rpartition(":")[2], server.store, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_program_leaves_no_server_and_the_next_deletes_its_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    port, store = in_python(_KILLED).stdout.split()
    deadline = time.monotonic() + 10
    while listens(int(port)):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert Path(store).exists()
    with temporary_folder() as folder:
        assert list(tmp_path.iterdir()) == [folder.parent]


def test_a_bad_configuration_is_one_line_and_leaves_no_process() -> None:
    with (
        refused(JobError, "server-does-not-start", reason=re.compile("Parse error")),
        nats_server("nonsense: {"),
    ):
        pass


def test_a_login_lets_nobody_else_in() -> None:
    with nats_server(login=True) as server:
        assert len(server.password) >= 32
        anonymous = NatsSettings(servers=server.url)
        ours = anonymous.model_copy(update={"user": USER, "password": SecretStr(server.password)})

        async def connects(settings: NatsSettings) -> bool:
            async with connection(settings) as client:
                return client.is_connected

        assert asyncio.run(connects(ours))
        with refused(ArchiveError, "needs-credentials"):
            asyncio.run(connects(anonymous))
        with refused(ArchiveError, "credentials-refused"):
            asyncio.run(connects(ours.model_copy(update={"password": SecretStr("guess")})))
        # Other users of the host cannot read it, and do not see it in the list of processes.
        for path in (server.config, server.config.parent):
            assert not path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)
        command = Path(f"/proc/{server.process.pid}/cmdline").read_bytes()
        assert server.password.encode() not in command
        assert server.password not in server.log.read_text()
