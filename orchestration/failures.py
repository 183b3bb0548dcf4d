"""What happens when a run fails: the place to put a message to people.

Set `NATS_TRANSFORM_ON_FAILURE` to `package.module:function`; the function is called with a
`FailedRun` after every run that failed, whatever started it. `log` is the example.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass

import dagster as dg

VARIABLE = "NATS_TRANSFORM_ON_FAILURE"


@dataclass(frozen=True)
class FailedRun:
    """A run that failed.

    Attributes:
        run_id: of Dagster.
        job: its name.
        assets: that were to be made.
        reasons: one line for each step that failed, with the asset in front.
    """

    run_id: str
    job: str
    assets: tuple[str, ...]
    reasons: tuple[str, ...]


def log(failed: FailedRun) -> None:
    """Logs the failure: an example of what can be called."""
    dg.get_dagster_logger().error(f"run {failed.run_id} failed: {'; '.join(failed.reasons)}")


def hook() -> Callable[[FailedRun], None]:
    """The function that the environment names; `log` by default.

    Raises:
        ImportError: there is no such function.
    """
    name = os.environ.get(VARIABLE)
    if not name:
        return log
    module, _, function = name.partition(":")
    try:
        found: Callable[[FailedRun], None] = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ImportError(
            f"{VARIABLE}={name}: {error}; write it as package.module:function"
        ) from error
    return found


@dg.run_failure_sensor(
    name="failed_runs",
    default_status=dg.DefaultSensorStatus.RUNNING,
    description=f"Calls what {VARIABLE} names for every run that failed.",
)
def failed_runs(context: dg.RunFailureSensorContext) -> None:
    """Tells of a run that failed."""
    run = context.dagster_run
    reasons = [
        f"{event.node_name.replace('__', '/')}: {_reason(event)}"
        for event in context.get_step_failure_events()
    ]
    selection = run.asset_selection or ()
    hook()(
        FailedRun(
            run_id=run.run_id,
            job=run.job_name,
            assets=tuple(sorted(key.to_user_string() for key in selection)),
            reasons=tuple(reasons or [context.failure_event.message or "no reason is known"]),
        )
    )


def _reason(event: dg.DagsterEvent) -> str:
    """What the asset says, else the first line of what was raised in it."""
    failure = event.step_failure_data
    if failure.user_failure_data is not None:
        return str(failure.user_failure_data.description)
    error = failure.error
    while error is not None and error.cause is not None:
        error = error.cause
    return error.message.strip().splitlines()[0] if error is not None else "no reason is known"
