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
    from nats_transform.jobs.progress import watched
except ModuleNotFoundError:
    from jobs.__main__ import main
    from jobs.progress import watched


def run_under_dagster() -> int:
    """The exit code of a job whose steps, checks and result Dagster gets as they are there.

    A job that found something not fine has done its work, so its exit code is 0 here: Dagster would
    drop what a process reported that failed. The component fails the asset instead.
    """
    from dagster_pipes import open_dagster_pipes

    output, errors = io.StringIO(), io.StringIO()
    with open_dagster_pipes() as pipes:
        job, *arguments = sys.argv[1:] or ["(none)"]
        # Not its options, of which one can have a token.
        pipes.log.info(f"job {job}: {' '.join(arguments[:1])}")
        with (
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(errors),
            watched(pipes.log.info),
        ):
            code = exit_code()
        sys.stdout.write(output.getvalue())
        sys.stderr.write(errors.getvalue())
        documents = output.getvalue().splitlines()
        if code not in (0, 1) or not documents:
            pipes.log.error((errors.getvalue().splitlines() or [f"exit code {code}"])[-1])
            return code
        result = json.loads(documents[-1])
        several = "failed" in result  # of an ingest
        failures = result["failed"] if several else {}
        parts = result["streams"] if several else [result]
        found = [
            check | ({"name": f"{part['stream']}: {check['name']}"} if several else {})
            for part in parts
            for check in part.get("checks", {}).get("results", [])
        ]
        has_run = not failures and all(part.get("checks", {}).get("ran") for part in parts)
        for topic, check in (pipes.extras or {}).get("checks", {}).items():
            about = [one for one in found if one["topic"] == topic]
            failed = [one for one in about if not one["success"]]
            pipes.report_asset_check(
                check,
                passed=has_run and not failed,
                severity="ERROR" if any(one["blocks"] for one in failed) else "WARN",
                metadata={one["name"]: one["observed"] for one in failed or about}
                | ({} if has_run else {"not looked at": told(failures or "the job ran no checks")}),
            )
        if code:
            why = result.get("refused") or f"what job {job} looked at is not fine: see its result"
            pipes.report_custom_message({"reason": why, "result": result})
        else:
            pipes.report_asset_materialization(
                metadata={name: told(value) for name, value in result.items() if value is not None}
            )
    return 0


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
