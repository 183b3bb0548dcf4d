"""The one way in for jobs: `python -m jobs JOB SETTINGS.json`, also for spark-submit.

The settings are a JSON document with the fields of the job's settings class (`-` reads it from
stdin); the result is one JSON document on stdout. A failure is one line on stderr. Exit codes are
those of `nats-transform`. People use that command; schedulers and clusters use this one.
"""

from __future__ import annotations

import contextlib
import sys
import traceback
from typing import BinaryIO, NoReturn

import click
from click.core import ParameterSource

from jobs.ending import NOT_FINE, PIPE_CLOSED, UNUSABLE, ended_by_signals, leave, reason_of
from jobs.files.output import refuse_unwritable
from jobs.registry import JOBS, document, is_fine
from jobs.settings.output import NEVER, output_settings
from jobs.settings.parameters import parameters_of, read
from jobs.settings.spark import SparkSettings
from nats_transform.errors import sentence
from nats_transform.untrusted import in_a_log, json_text, one_line, visible

_LEVELS = dict.fromkeys(level for job in JOBS.values() for level in job.levels)
_OUTPUT = output_settings(has_page=True, levels=tuple(_LEVELS))


@click.command()
@click.argument("job", type=click.Choice(list(JOBS)))
@click.argument("settings", metavar="SETTINGS.json", type=click.File("rb"), default="-")
@click.option("--debug", is_flag=True, help="Show the stack trace of an error.")
def command(job: str, settings: BinaryIO, debug: bool, **given: object) -> int:
    """Run JOB with the settings in a JSON document and print its result as JSON.

    Without SETTINGS.json, or with `-`, the document is read from stdin. Exit codes: 0 the job did
    its work; 1 what it checked is not fine; 2 it could not do its work, and the line on stderr says
    why.
    """
    chosen = JOBS[job]
    context = click.get_current_context()
    spark, output = read(SparkSettings, context), read(_OUTPUT, context).model_dump()
    report, level = output["report"], output["fail_on"]
    if report is not None and chosen.page is None:
        raise click.UsageError(sentence("job-without-page", job=job))
    if context.get_parameter_source("fail_on") is ParameterSource.DEFAULT:
        level = next(iter(chosen.levels), NEVER)
    elif level not in (*chosen.levels, *([NEVER] if chosen.levels else [])):
        levels = (
            ", ".join((*chosen.levels, NEVER)) if chosen.levels else "nothing: it judges nothing"
        )
        raise click.UsageError(sentence("job-fail-on", job=job, levels=levels))
    try:
        if report is not None:
            refuse_unwritable("the report", report)
        with contextlib.redirect_stdout(sys.stderr):  # what libraries print is no result
            result = chosen.run(chosen.model.model_validate_json(settings.read()), spark)
            if report is not None:
                chosen.write_page(result, report)
    except Exception as error:
        if debug:
            shown = visible(traceback.format_exc().rstrip(), keep="\n")
            click.echo(in_a_log(shown), err=True)
        raise click.ClickException(reason_of(error)) from error
    try:
        click.echo(json_text(document(result)))
    except BrokenPipeError:
        return PIPE_CLOSED
    return 0 if is_fine(result, level) else NOT_FINE


for _model in (SparkSettings, _OUTPUT):
    command.params += parameters_of(_model, {})


def main() -> NoReturn:
    """Runs the command line and exits; every failure is one line on stderr."""
    try:
        with ended_by_signals("jobs"):
            code = command.main(prog_name="python -m jobs", standalone_mode=False)
    except click.ClickException as error:
        _show(error.format_message())
        code = UNUSABLE
    except OSError as error:  # of the output
        _show(reason_of(error))
        code = UNUSABLE
    leave(code)


def _show(reason: str) -> None:
    with contextlib.suppress(OSError):  # the exit code says it too
        click.echo(in_a_log(one_line(f"error: {reason}")), err=True)


if __name__ == "__main__":
    main()
