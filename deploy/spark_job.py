"""The main file for spark-submit: runs one of our jobs, named first.

spark-submit --py-files nats_transform.zip deploy/spark_job.py ingest settings.json

Started by Dagster Pipes, it tells Dagster how it went: see the component `SubmittedJob`.

A file of its own, because a folder `jobs` in front of Python's path would hide other packages.
"""

import contextlib
import io
import json
import os
import runpy
import sys

JOBS = ("ingest", "transform", "dry_run")


def run(job: str) -> int:
    """The exit code of a job."""
    try:
        runpy.run_module(f"jobs.{job}", run_name="__main__", alter_sys=True)
    except SystemExit as end:  # click ends so, whatever the code
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def run_under_dagster(job: str) -> int:
    """The exit code of a job whose result becomes metadata, and what it says the run's log."""
    from dagster_pipes import open_dagster_pipes

    output, errors = io.StringIO(), io.StringIO()
    with open_dagster_pipes() as pipes:
        pipes.log.info(f"job {job}: {' '.join(sys.argv[1:])}")
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            code = run(job)
        sys.stdout.write(output.getvalue())
        sys.stderr.write(errors.getvalue())
        if code:
            pipes.log.error((errors.getvalue().splitlines() or [f"exit code {code}"])[-1])
        else:
            result = json.loads(output.getvalue().splitlines()[-1])
            pipes.report_asset_materialization(
                metadata={name: told(value) for name, value in result.items() if value is not None}
            )
    return code


def told(value: object) -> object:
    """A value as Pipes take it for metadata: what is in another must say its type."""
    return {"raw_value": value, "type": "json"} if isinstance(value, dict | list) else value


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in JOBS:
        sys.exit(f"usage: spark_job.py {'|'.join(JOBS)} ARGUMENT ...")
    under_dagster = "DAGSTER_PIPES_CONTEXT" in os.environ
    sys.exit((run_under_dagster if under_dagster else run)(sys.argv.pop(1)))
