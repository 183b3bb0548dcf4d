"""What the queue is told when a run cannot be launched. Killed code servers: tests/faults."""

from __future__ import annotations

import inspect
from typing import Any

import dagster as dg
import pytest
from dagster._core.errors import DagsterLaunchFailedError, DagsterUserCodeUnreachableError
from dagster._grpc import server

from orchestration.launcher import CodeServerLauncher

SHUTTING_DOWN = "Tried to start a run on a server after telling it to shut down"
CASES = [
    pytest.param(SHUTTING_DOWN, DagsterUserCodeUnreachableError, id="shutting_down"),
    pytest.param("no process could be started", DagsterLaunchFailedError, id="other"),
]


@pytest.mark.parametrize(("said", "raised"), CASES)
def test_launches_that_fail(
    monkeypatch: pytest.MonkeyPatch, said: str, raised: type[Exception]
) -> None:
    def launch_run(*_: Any) -> None:
        raise DagsterLaunchFailedError(said)

    monkeypatch.setattr(dg.DefaultRunLauncher, "launch_run", launch_run)
    context: Any = None
    with pytest.raises(raised, match=said):
        CodeServerLauncher().launch_run(context)


def test_dagster_still_says_so() -> None:
    assert SHUTTING_DOWN in inspect.getsource(server)
