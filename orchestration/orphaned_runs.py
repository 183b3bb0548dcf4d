"""The sensor that fails runs whose code server was replaced, so that they can run again.

Dagster's default launcher starts a run as a process of the code server, and cannot tell whether it
still goes on. When the machine or container of the server is gone, its runs would stay STARTED for
ever, and the next runs of their archives would wait for their pools.
"""

from __future__ import annotations

import json
import sys
import time

import dagster as dg

STARTED = time.time()
"""When this code server loaded the definitions: it can't have started a run before."""

SETTLED_SECONDS = 30
"""How long a new code server is there before it judges.

Dagster retries a failed run at once, and gives it up for good if its daemon hasn't loaded the
definitions of the new server by then.
"""


@dg.sensor(
    name="orphaned_runs",
    minimum_interval_seconds=30,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Fails the runs of a replaced code server, so that Dagster retries them as "
    "`run_retries` says.",
)
def orphaned_runs(context: dg.SensorEvaluationContext) -> dg.SkipReason:
    """Fails each started run of this code location that began before this code server did."""
    if time.time() - STARTED < SETTLED_SECONDS:
        return dg.SkipReason("this code server has only just started")
    if "--heartbeat" in sys.argv:  # as `dagster code-server` and `dg dev` start it
        return dg.SkipReason("this code server's runs go on while another one replaces it")
    origin = context.code_location_origin
    location = {
        ".dagster/repository": f"{context.repository_name}@{origin and origin.location_name}"
    }
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


def _has_port(run: dg.DagsterRun) -> bool:
    """Whether a code server with a port was given the run; other launchers have none."""
    return "port" in json.loads(run.tags.get(".dagster/grpc_info", "{}"))
