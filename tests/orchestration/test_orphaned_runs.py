"""Which open runs a code server takes for lost; tests/faults shows that they run again."""

# Dagster reads the annotations of op functions: no `from __future__ import annotations` here.
import sys
import time

import dagster as dg
import pytest

from orchestration import orphaned_runs

pytestmark = pytest.mark.dagster

HERE, ELSEWHERE = "shop@None", "shop@another"
PORT, SOCKET = '{"host": "code", "port": 4000}', '{"host": "localhost", "socket": "/tmp/s"}'


@pytest.mark.parametrize(
    ("started", "location", "server", "is_lost"),
    [
        pytest.param(+10, HERE, PORT, True, id="of-a-former-server"),
        pytest.param(-60, HERE, PORT, False, id="of-this-server"),
        pytest.param(+10, ELSEWHERE, PORT, False, id="of-another-location"),
        pytest.param(+10, HERE, SOCKET, False, id="of-dg-dev"),
    ],
)
def test_a_started_run(
    monkeypatch: pytest.MonkeyPatch, started: float, location: str, server: str, is_lost: bool
) -> None:
    """The sensor looks while the run goes on, `started` seconds after (or before) its server."""
    instance = dg.DagsterInstance.ephemeral()
    monkeypatch.setattr(orphaned_runs, "SETTLED_SECONDS", -60)
    monkeypatch.setattr(orphaned_runs, "STARTED", time.time() + started)

    @dg.op
    def look(context: dg.OpExecutionContext) -> None:
        run = context.run.run_id
        instance.add_run_tags(run, {".dagster/grpc_info": server, ".dagster/repository": location})
        with dg.build_sensor_context(instance, repository_name="shop") as sensor:
            orphaned_runs.orphaned_runs(sensor)
        status = instance.get_run_by_id(run).status
        assert (status is dg.DagsterRunStatus.FAILURE) is is_lost

    @dg.job
    def job() -> None:
        look()

    assert job.execute_in_process(instance=instance).success


RETRY = "dagster/auto_retry_run_id"


@pytest.mark.parametrize(
    ("tags", "seconds", "is_forgotten"),
    [
        pytest.param({"dagster/will_retry": "true"}, 60, True, id="forgotten"),
        pytest.param({"dagster/will_retry": "true"}, 0, False, id="a-moment-ago"),
        pytest.param({"dagster/will_retry": "true", RETRY: "x"}, 60, False, id="retried"),
        pytest.param({"dagster/will_retry": "false"}, 60, False, id="not-to-be-retried"),
    ],
)
@pytest.mark.parametrize("is_tried_by_hand", [False, True])
def test_a_failed_run(
    monkeypatch: pytest.MonkeyPatch,
    tags: dict[str, str],
    seconds: float,
    is_forgotten: bool,
    is_tried_by_hand: bool,
) -> None:
    """The daemon looks at a run once for each of its failures: it gets another one."""
    instance = dg.DagsterInstance.ephemeral()
    monkeypatch.setattr(orphaned_runs, "SETTLED_SECONDS", 30 - seconds)
    monkeypatch.setattr(orphaned_runs, "STARTED", time.time() - 60)

    @dg.op
    def fail() -> None:
        raise ValueError

    @dg.job
    def job() -> None:
        fail()

    run = job.execute_in_process(
        instance=instance, raise_on_error=False, tags={".dagster/repository": HERE}
    ).run_id
    instance.add_run_tags(run, tags)
    if is_tried_by_hand:
        parent = {"dagster/parent_run_id": run}
        job.execute_in_process(instance=instance, raise_on_error=False, tags=parent)
    for _ in range(2):
        with dg.build_sensor_context(instance, repository_name="shop") as sensor:
            orphaned_runs.orphaned_runs(sensor)
    failures = instance.all_logs(run, of_type=dg.DagsterEventType.RUN_FAILURE)
    assert len(failures) == (2 if is_forgotten and not is_tried_by_hand else 1)


def skipped() -> str:
    """Why the sensor looks at no run."""
    with dg.build_sensor_context(dg.DagsterInstance.ephemeral()) as context:
        return orphaned_runs.orphaned_runs(context).skip_message


def test_a_server_whose_runs_outlive_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """`dagster code-server start` reloads by a new server, and the old one ends its runs."""
    monkeypatch.setattr(orphaned_runs, "SETTLED_SECONDS", -60)
    monkeypatch.setattr(sys, "argv", ["dagster", "api", "grpc", "--socket", "/s", "--heartbeat"])
    assert "go on" in skipped()


def test_a_new_server_waits_until_the_daemon_knows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orphaned_runs, "STARTED", time.time())
    assert "only just started" in skipped()
