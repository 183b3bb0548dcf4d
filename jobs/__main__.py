"""The one way in for jobs: `python -m jobs JOB SETTINGS.json`, also for spark-submit.

The settings are a JSON document with the fields of the job's settings class (`-` reads it from
stdin); the result is one JSON document on stdout. A failure is one line on stderr. Exit codes are
those of `nats-transform`. People use that command; schedulers and clusters use this one.
"""

from __future__ import annotations

import contextlib
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, NoReturn

import click
from pydantic_core import to_jsonable_python

from jobs.cold import without_pandas
from jobs.ending import NOT_FINE, UNUSABLE, ended_by_signals, reason_of
from jobs.files.output import refuse_unwritable
from jobs.session import SessionOnDemand
from jobs.settings.spark import SparkSettings
from nats_transform.untrusted import in_a_log, json_text, one_line, visible

NEVER = "never"


class Job(NamedTuple):
    """The place of a job in the code. Its module is imported only when the job runs.

    Attributes:
        module: the module of this package that has the settings class and the function.
        settings: the name of the settings class.
        function: the name of the function. It takes the settings, and before them a function that
            gives a Spark session, if `needs_spark` is true.
        needs_spark: whether the function takes a function that gives a Spark session.
        page: the module of this package that writes the result as an HTML page.
        fail_on: the values of `--fail-on`, the default first.
    """

    module: str
    settings: str
    function: str
    needs_spark: bool = True
    page: str | None = None
    fail_on: tuple[str, ...] = ()


JOBS = {
    "ingest": Job("ingest", "IngestSettings", "ingest"),
    "census": Job("census", "CensusSettings", "census"),
    "transform": Job("transform", "TransformSettings", "transform", fail_on=("empty", NEVER)),
    "audit": Job(
        "audit.run",
        "AuditSettings",
        "audit",
        page="pages.audit",
        fail_on=("outside", "undecided", "nothing", NEVER),
    ),
    "plan-canary": Job("audit.plan", "CanarySettings", "plan_canary", page="pages.plan"),
    "dry-run": Job(
        "dry_run.run",
        "DryRunSettings",
        "dry_run",
        page="pages.dry_run",
        fail_on=("error", "warning", "info", NEVER),
    ),
    "plan": Job("plan", "PlanSettings", "plan", fail_on=("refused", NEVER)),
    "verify": Job(
        "verify.run", "VerifySettings", "verify", needs_spark=False, fail_on=("missing", NEVER)
    ),
    "census-export": Job("census_export", "CensusExportSettings", "export_census"),
    "replay": Job(
        "replay", "ReplaySettings", "replay", needs_spark=False, fail_on=("refused", NEVER)
    ),
    "export": Job(
        "export", "ExportSettings", "export", needs_spark=False, fail_on=("finding", NEVER)
    ),
    "maintain": Job("maintain", "MaintenanceSettings", "maintain", needs_spark=False),
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
    help="The mildest outcome that makes the exit code 1: of transform `empty`, of audit "
    "`outside`, of dry-run `error` (the defaults), `warning` or `info`; or `never`.",
)
@click.option("--debug", is_flag=True, help="Show the stack trace of an error.")
def command(
    job: str,
    settings: BinaryIO,
    master: str | None,
    remote: str | None,
    report: Path | None,
    fail_on: str | None,
    debug: bool,
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
    try:
        if report is not None:
            refuse_unwritable("the report", report)
        with contextlib.redirect_stdout(sys.stderr):  # what libraries print is no result
            result = _run(chosen, settings.read(), SparkSettings(master=master, remote=remote))
            if report is not None and chosen.page is not None:
                import_module(f"{__package__}.{chosen.page}").write(result, report)
    except Exception as error:
        if debug:
            shown = visible(traceback.format_exc().rstrip(), keep="\n")
            click.echo(in_a_log(shown), err=True)
        raise click.ClickException(reason_of(error)) from error
    click.echo(json_text(_document(result)))
    level = fail_on or next(iter(chosen.fail_on), NEVER)
    return NOT_FINE if level != NEVER and result.fails(level) else 0


def _run(job: Job, settings: bytes, spark: SparkSettings) -> Any:
    """The result of a job."""
    without_pandas()
    module = import_module(f"{__package__}.{job.module}")
    given = getattr(module, job.settings).model_validate_json(settings)
    function = getattr(module, job.function)
    return function(SessionOnDemand(spark), given) if job.needs_spark else function(given)


def _document(result: Any) -> Any:
    """A result as plain JSON values: those of its own method, or else its fields."""
    return result.as_json() if hasattr(result, "as_json") else to_jsonable_python(result)


def main() -> NoReturn:
    """Runs the command line and exits; every failure is one line on stderr."""
    try:
        with ended_by_signals("jobs"):
            code = command.main(prog_name="python -m jobs", standalone_mode=False)
    except click.ClickException as error:
        click.echo(in_a_log(one_line(f"error: {error.format_message()}")), err=True)
        code = UNUSABLE
    sys.exit(code)


if __name__ == "__main__":
    main()
