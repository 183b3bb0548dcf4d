"""The private nats-server."""

from __future__ import annotations

import os
import signal

import pytest

from jobs.errors import JobError
from jobs.jetstream.process import nats_server

pytestmark = pytest.mark.server


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_it_is_stopped_whatever_happens() -> None:
    running = nats_server()
    server = running.__enter__()
    pid = server.process.pid
    assert is_running(pid)
    assert not running.__exit__(RuntimeError, RuntimeError("on purpose"), None)
    assert not is_running(pid)
    assert not server.store.exists()


def test_a_restart_keeps_port_and_store() -> None:
    with nats_server() as server:
        url, pid = server.url, server.process.pid
        server.restart(signal.SIGKILL)
        assert server.url == url
        assert server.process.pid != pid
        assert not is_running(pid)


def test_a_bad_configuration_is_one_line_and_leaves_no_process() -> None:
    with (
        pytest.raises(JobError, match=r"does not start: .*Parse error") as caught,
        nats_server("nonsense: {"),
    ):
        pass
    assert "\n" not in str(caught.value)
