"""How a run fails: with one clear line, which a function of yours can pass on to people.

Set `NATS_TRANSFORM_ON_FAILURE` to `package.module:function`; the function is called with a
`FailedRun` after every run that failed, whatever started it. `log` is the example.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import dagster as dg
from pydantic import ValidationError

from jobs.errors import JobError, text_of
from jobs.spark_errors import SPARK_ERRORS, job_error
from nats_transform import NatsTransformError
from orchestration.hooks import hook_of

VARIABLE = "NATS_TRANSFORM_ON_FAILURE"


@dataclass(frozen=True)
class FailedRun:
    """A run that failed.

    Attributes:
        run_id: the id that Dagster gave to the run.
        job: the name of its job.
        assets: the assets that it should have made.
        reasons: one line for each step that failed, with the asset in front.
    """

    run_id: str
    job: str
    assets: tuple[str, ...]
    reasons: tuple[str, ...]


def log(failed: FailedRun) -> None:
    """Logs the failure: an example of what can be called."""
    dg.get_dagster_logger().error(f"run {failed.run_id} failed: {'; '.join(failed.reasons)}")


@contextmanager
def failing_with_one_line() -> Iterator[None]:
    """Fails a step with one line; `retries` of an archive help only where a job or a server failed.

    A wrong mapping or setting would fail again, and waits for a person.
    """
    try:
        yield
    except SPARK_ERRORS as error:  # such as a JVM that was killed
        raise dg.Failure(str(job_error(error))) from error
    except (NatsTransformError, ValidationError, OSError) as error:
        may_pass = isinstance(error, JobError | OSError)
        raise dg.Failure(text_of(error), allow_retries=may_pass) from error


@dg.run_failure_sensor(
    name="failed_runs",
    default_status=dg.DefaultSensorStatus.RUNNING,
    description=f"Calls the function named by {VARIABLE} after every failed run.",
)
def failed_runs(context: dg.RunFailureSensorContext) -> None:
    """Calls the hook with a run that failed."""
    run = context.dagster_run
    reasons = [
        f"{event.node_name.replace('__', '/')}: {reason_of(event)}"
        for event in context.get_step_failure_events()
    ]
    selection = run.asset_selection or ()
    hook_of(VARIABLE, log)(
        FailedRun(
            run_id=run.run_id,
            job=run.job_name,
            assets=tuple(sorted(key.to_user_string() for key in selection)),
            reasons=tuple(reasons or [context.failure_event.message or "no reason is known"]),
        )
    )


def reason_of(event: dg.DagsterEvent) -> str:
    """Why a step failed: what the asset says, else the first line of what was raised in it."""
    failure = event.step_failure_data
    if failure.user_failure_data is not None:
        return str(failure.user_failure_data.description)
    error = failure.error
    while error is not None and error.cause is not None:
        error = error.cause
    return error.message.strip().splitlines()[0] if error is not None else "no reason is known"
