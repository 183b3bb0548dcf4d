"""The main file for spark-submit, which takes no `-m`: as `python -m jobs`, and for Dagster Pipes.

spark-submit --py-files nats_transform.zip deploy/spark_job.py ingest settings.json

Started by Dagster Pipes, it tells Dagster how it went: see the component `SubmittedJob`.

A file of its own, because a folder `jobs` in front of Python's path would hide other packages.
"""

import contextlib
import io
import json
import os
import sys

try:
    from nats_transform.jobs.__main__ import main  # as a wheel has it
except ModuleNotFoundError:
    from jobs.__main__ import main


def run_under_dagster() -> int:
    """The exit code of a job whose result becomes metadata, and what it says the run's log."""
    from dagster_pipes import open_dagster_pipes

    output, errors = io.StringIO(), io.StringIO()
    with open_dagster_pipes() as pipes:
        job, *arguments = sys.argv[1:] or ["(none)"]
        pipes.log.info(f"job {job}: {' '.join(arguments)}")
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            code = exit_code()
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


def exit_code() -> int:
    """How the job that the arguments name has ended."""
    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)


def told(value: object) -> object:
    """A value as Pipes take it for metadata: what is in another must say its type."""
    return {"raw_value": value, "type": "json"} if isinstance(value, dict | list) else value


if __name__ == "__main__":
    sys.exit(run_under_dagster() if "DAGSTER_PIPES_CONTEXT" in os.environ else exit_code())
