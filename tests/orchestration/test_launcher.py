"""What the queue is told when a run cannot be launched. Killed code servers: tests/faults."""

from __future__ import annotations

import inspect
from typing import Any

import dagster as dg
import pytest
from dagster._core.errors import DagsterLaunchFailedError, DagsterUserCodeUnreachableError
from dagster._core.launcher.base import WorkerStatus
from dagster._grpc import server
from dagster._grpc.types import GetCurrentRunsResult

from orchestration.launcher import SETTLED_SECONDS, CodeServerLauncher

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


KNOWN, UNKNOWN, AWAY = ["r"], ["another"], None


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param([(0, UNKNOWN), (SETTLED_SECONDS, UNKNOWN)], id="replaced"),
        pytest.param(
            [(0, AWAY), (999, UNKNOWN), (999 + SETTLED_SECONDS, UNKNOWN)], id="away-first"
        ),
        pytest.param(
            [(0, UNKNOWN), (20, AWAY), (40, UNKNOWN), (60, UNKNOWN), (70, UNKNOWN)],
            id="replaced-twice",
        ),
        pytest.param(
            [(0, UNKNOWN), (20, KNOWN), (40, UNKNOWN), (70, UNKNOWN)], id="not-started-yet"
        ),
    ],
)
def test_a_run_is_over_once_the_new_code_server_is_there_for_a_while(
    monkeypatch: pytest.MonkeyPatch, answers: list[tuple[int, list[str] | None]]
) -> None:
    """Only the last check says so: Dagster's retry comes at once, and needs to know the server."""
    step = iter(answers)
    now, runs = next(step)

    class Client:
        host, port, socket = "here", 1, None

        def get_current_runs(self) -> str:
            if runs is AWAY:
                raise DagsterUserCodeUnreachableError("gone")
            return dg.serialize_value(
                GetCurrentRunsResult(current_runs=runs, serializable_error_info=None)
            )

    launcher = CodeServerLauncher()
    monkeypatch.setattr("orchestration.launcher.monotonic", lambda: now)
    monkeypatch.setattr(launcher, "_get_grpc_client_for_termination", lambda _: Client())
    run = dg.DagsterRun(job_name="j", run_id="r")
    found = [launcher.check_run_worker_health(run).status]
    while len(found) < len(answers):
        now, runs = next(step)
        found.append(launcher.check_run_worker_health(run).status)
    assert found == [WorkerStatus.RUNNING] * (len(answers) - 1) + [WorkerStatus.NOT_FOUND]
