"""The sensor that sees to it that runs which nobody works on can run again.

Dagster's default launcher starts a run as a process of the code server, and cannot tell whether it
still goes on. When the machine or container of the server is gone, its runs would stay STARTED for
ever, and the next runs of their archives would wait for their pools.

Dagster's daemon retries a failed run when it sees the event, if the run is marked as failed by
then, which is a moment later: else it never looks at it again. The same event once more cures that.
"""

from __future__ import annotations

import json
import sys
import time
from datetime import UTC, datetime, timedelta

import dagster as dg

STARTED = time.time()
"""When this code server loaded the definitions: it can't have started a run before."""

SETTLED_SECONDS = 30
"""How long a new code server is there before it judges.

Dagster retries a failed run at once, and gives it up for good if its daemon hasn't loaded the
definitions of the new server by then.
"""

REMINDED = "nats_transform/reminded"
"""The tag of a run of whose retry Dagster was reminded, which is done once."""


@dg.sensor(
    name="orphaned_runs",
    minimum_interval_seconds=30,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Fails the runs of a replaced code server, so that Dagster retries them as "
    "`run_retries` says, and reminds Dagster of retries that it has forgotten.",
)
def orphaned_runs(context: dg.SensorEvaluationContext) -> dg.SkipReason:
    """Fails each started run of this code location that began before this code server did."""
    if time.time() - STARTED < SETTLED_SECONDS:
        return dg.SkipReason("this code server has only just started")
    origin = context.code_location_origin
    location = {
        ".dagster/repository": f"{context.repository_name}@{origin and origin.location_name}"
    }
    for run in _forgotten(context.instance, location):
        context.instance.report_run_failed(run, "Dagster has not retried this run yet.")
        context.instance.add_run_tags(run.run_id, {REMINDED: "true"})
    if "--heartbeat" in sys.argv:  # as `dagster code-server` and `dg dev` start it
        return dg.SkipReason("this code server's runs go on while another one replaces it")
    started = dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED], tags=location)
    orphans = [
        record.dagster_run
        for record in context.instance.get_run_records(started)
        if record.start_time is not None
        and record.start_time < STARTED
        and _has_port(record.dagster_run)
    ]
    for run in orphans:
        context.instance.report_run_failed(run, "This run's code server was replaced.")
    return dg.SkipReason(f"{len(orphans)} runs of a replaced code server were still open")


def _forgotten(instance: dg.DagsterInstance, location: dict[str, str]) -> list[dg.DagsterRun]:
    """The failed runs of the last day that Dagster said it would retry, and didn't."""
    now = datetime.now(UTC)
    failed = dg.RunsFilter(
        statuses=[dg.DagsterRunStatus.FAILURE],
        tags=location | {"dagster/will_retry": "true"},
        updated_after=now - timedelta(days=1),
    )
    return [
        record.dagster_run
        for record in instance.get_run_records(failed)
        if record.end_time is not None
        and record.end_time < now.timestamp() - SETTLED_SECONDS
        and not record.dagster_run.tags.keys() & {"dagster/auto_retry_run_id", REMINDED}
        and not instance.get_run_records(
            dg.RunsFilter(tags={"dagster/parent_run_id": record.dagster_run.run_id}), limit=1
        )
    ]


def _has_port(run: dg.DagsterRun) -> bool:
    """Whether a code server with a port was given the run; other launchers have none."""
    return "port" in json.loads(run.tags.get(".dagster/grpc_info", "{}"))
