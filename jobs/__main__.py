"""The one way in for jobs: `python -m jobs JOB SETTINGS.json`, also for spark-submit.

The settings are a JSON document with the fields of the job's settings class (`-` reads it from
stdin); the result is one JSON document on stdout. A failure is one line on stderr. Exit codes are
those of `nats-transform`. People use that command; schedulers and clusters use this one.
"""

from __future__ import annotations

import contextlib
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, NoReturn

import click
from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from jobs.errors import SPARK_ERRORS, job_error
from jobs.errors import one_line as reason_of
from jobs.session import SessionOnDemand, SparkSettings
from nats_transform.errors import NatsTransformError
from nats_transform.untrusted import json_text, one_line

NOT_FINE = 1
UNUSABLE = 2
NEVER = "never"


class Job(NamedTuple):
    """Where a job is. Its module is imported when the job runs, and not before.

    Attributes:
        module: that has the settings class and the function.
        settings: the class of the settings.
        function: takes what gives a Spark session, if it needs one, and the settings.
        needs_spark: whether the function takes what gives a Spark session.
        page: the module that writes the result as an HTML page.
        fail_on: what `--fail-on` may be, the default first.
    """

    module: str
    settings: str
    function: str
    needs_spark: bool = True
    page: str | None = None
    fail_on: tuple[str, ...] = ()


JOBS = {
    "ingest": Job("jobs.ingest", "IngestSettings", "ingest"),
    "census": Job("jobs.census", "CensusSettings", "census"),
    "transform": Job("jobs.transform", "TransformSettings", "transform"),
    "audit": Job(
        "jobs.audit.run",
        "AuditSettings",
        "audit",
        page="jobs.pages.audit",
        fail_on=("outside", NEVER),
    ),
    "dry-run": Job(
        "jobs.dry_run.run",
        "DryRunSettings",
        "dry_run",
        page="jobs.pages.dry_run",
        fail_on=("error", "warning", "info", NEVER),
    ),
    "replay": Job("jobs.replay", "ReplaySettings", "replay"),
    "maintain": Job("jobs.maintain", "MaintenanceSettings", "maintain", needs_spark=False),
}


@click.command()
@click.argument("job", type=click.Choice(list(JOBS)))
@click.argument("settings", metavar="SETTINGS.json", type=click.File("rb"), default="-")
@click.option("--master", metavar="URL", help="The Spark master.  [default: of spark-submit]")
@click.option("--remote", metavar="URL", help="A Spark Connect server, instead of a master.")
@click.option(
    "--report",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Also write the result of `audit` or `dry-run` as an HTML page.",
)
@click.option(
    "--fail-on",
    metavar="LEVEL",
    help="The mildest outcome of `audit` or `dry-run` that makes the exit code 1.",
)
def command(
    job: str,
    settings: BinaryIO,
    master: str | None,
    remote: str | None,
    report: Path | None,
    fail_on: str | None,
) -> int:
    """Run JOB with the settings in a JSON document and print its result as JSON.

    Without SETTINGS.json, or with `-`, the document is read from stdin. Exit codes: 0 the job did
    its work; 1 what it checked is not fine; 2 it could not do its work, and the line on stderr says
    why.
    """
    chosen = JOBS[job]
    if report is not None and chosen.page is None:
        raise click.UsageError(f"--report: job {job} writes no page")
    if fail_on is not None and fail_on not in chosen.fail_on:
        levels = ", ".join(chosen.fail_on) or "nothing: it judges nothing"
        raise click.UsageError(f"--fail-on: job {job} takes {levels}")
    with contextlib.redirect_stdout(sys.stderr):  # what libraries print is no result
        module = import_module(chosen.module)
        given = getattr(module, chosen.settings).model_validate_json(settings.read())
        run = getattr(module, chosen.function)
        if chosen.needs_spark:
            where = SparkSettings(master=master, remote=remote)
            result = run(SessionOnDemand(where), given)
        else:
            result = run(given)
        if report is not None and chosen.page is not None:
            import_module(chosen.page).write(result, report)
    click.echo(json_text(_document(result)))
    level = fail_on or next(iter(chosen.fail_on), NEVER)
    return NOT_FINE if level != NEVER and result.fails(level) else 0


def _document(result: Any) -> Any:
    """A result as plain JSON values: as it says itself, or its fields."""
    return result.as_json() if hasattr(result, "as_json") else to_jsonable_python(result)


def main() -> NoReturn:
    """Runs the command line and exits; every failure is one line on stderr."""
    try:
        code = command.main(prog_name="python -m jobs", standalone_mode=False)
    except click.ClickException as error:
        code = _failed(error.format_message())
    except (NatsTransformError, ValidationError, OSError) as error:
        code = _failed(reason_of(error))
    except SPARK_ERRORS as error:
        code = _failed(str(job_error(error)))
    sys.exit(code)


def _failed(reason: str) -> int:
    click.echo(one_line(f"error: {reason}"), err=True)
    return UNUSABLE


if __name__ == "__main__":
    main()
