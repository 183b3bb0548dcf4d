"""What a command is: options made from settings, a function that does the work, and what it prints.

The settings are those that `python -m jobs` and the assets of Dagster take, see `jobs.settings`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
from click.core import ParameterSource

from cli import complete, project
from cli.output import debug, print_json, print_line, print_table, quiet_work
from jobs.ending import NOT_FINE
from jobs.registry import JOBS, Job, document, is_fine
from jobs.settings.base import Settings, setting
from jobs.settings.output import NEVER, output_settings
from jobs.settings.parameters import (
    SettingOption,
    parameters_of,
    read,
    unused_because,
    weigh,
)
from jobs.settings.spark import SparkSettings

if TYPE_CHECKING:
    from cli.formats import Review

FORMATS = ("table", "json", "markdown", "github", "sarif")
"""How findings can be printed, see `cli.formats`."""
_COMPLETIONS = {
    "streams": complete.streams,
    "days": complete.days,
    "contexts": complete.contexts,
    "codes": complete.codes,
}


class Command(click.Command):
    """A command whose options are settings, which the project file gives where nothing else does.

    Attributes:
        models: of its settings; its function takes an object of each.
        key: the name of its table in a project file.
    """

    def __init__(self, *args: Any, models: Iterable[type[Settings]], key: str, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.models, self.key = tuple(models), key
        for model in self.models:
            self.params += parameters_of(model, _COMPLETIONS)
        about = "Show each option's value and where it comes from, and do nothing else."
        self.params += [debug(), click.Option(["--show-config"], is_flag=True, help=about)]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        file = None
        try:
            file = project.find(Path.cwd())
            if file is not None:
                ctx.default_map = file.options(_commands(ctx), self.key)
        except (project.InvalidProject, OSError) as error:
            if not ctx.resilient_parsing:  # a shell that completes wants no error
                raise click.UsageError(str(error), ctx) from error
        try:
            rest = self._parsed(ctx, args)
            weigh(ctx)
            if ctx.params.pop("show_config", False) and "--show-config" in args:
                print_line(f"project file: {file.path if file else 'none'}")
                print_table(list(_shown(self, ctx, file)))
                ctx.exit()
            if not ctx.resilient_parsing:
                ctx.obj = [read(model, ctx) for model in self.models]
        except click.BadParameter as error:
            if error.param is None or file is None:
                raise
            source = ctx.get_parameter_source(error.param.name or "")
            if source is not ParameterSource.DEFAULT_MAP:
                raise
            where = file.place_for(self.key, error.param.opts[0].removeprefix("--"))
            raise click.BadParameter(f"{error.message} ({where})", ctx, error.param) from error
        return rest

    def _parsed(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, list(args))
        except click.MissingParameter:
            if "--show-config" not in args:
                raise
            ctx.resilient_parsing = True  # what is missing is shown as missing
            return super().parse_args(ctx, list(args))
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # click leaves it out of some
            raise

    def invoke(self, ctx: click.Context) -> Any:
        assert self.callback is not None  # noqa: S101
        return ctx.invoke(self.callback, *ctx.obj)


def command(
    name: str,
    *models: type[Settings],
    help: str | None = None,
    exit_codes: str = "",
    cls: type[Command] = Command,
    **attributes: Any,
) -> Callable[[Callable[..., Any]], Command]:
    """A command that takes settings of these models; its docstring is the help."""

    def wrap(function: Callable[..., Any]) -> Command:
        return cls(
            name.rpartition(" ")[2],
            key=name.replace(" ", "-"),
            models=models,
            callback=function,
            help=help or function.__doc__,
            epilog=f"Exit codes: {exit_codes}" if exit_codes else None,
            **attributes,
        )

    return wrap


def output(
    *, json: str, job: Job | None = None, levels: tuple[str, ...] = (), review: bool = False
) -> type[Settings]:
    """The settings of what becomes of a result.

    Args:
        json: what the JSON document has.
        job: the job that makes the result, if one does.
        levels: what can make the exit code 1, if there is more than one such outcome.
        review: whether the result can be printed for reviews.
    """
    fields: dict[str, Any] = {}
    if review:
        about = (
            "How to print: for people, as one JSON document, as a review comment in Markdown, as "
            "GitHub Actions annotations, or as SARIF 2.1.0."
        )
        form = Literal[*FORMATS] | None  # type: ignore[valid-type]
        fields["format"] = (form, setting(None, about, otherwise=FORMATS[0]))
    fields["json_"] = (bool, setting(False, f"Print one JSON document: {json}", key="json"))
    if job is not None:
        levels = job.levels if len(job.levels) > 1 else ()
    has_page = job is not None and job.page is not None
    model = output_settings(has_page=has_page, levels=levels, **fields)
    model.alternatives = (("json_", "format"),) if review else ()
    return model


def form_of(asked: Any) -> str:
    """How the result is to be printed, one of `FORMATS`."""
    form: str | None = getattr(asked, "format", None)
    return form or ("json" if asked.json_ else FORMATS[0])


def job_command(
    name: str,
    *,
    json: str,
    exit_codes: str,
    review: Callable[[Any, Any], Review] | None = None,
    warning: Callable[[Any, Any], str | None] | None = None,
    **attributes: Any,
) -> Callable[[Callable[[Any, Any], None]], Command]:
    """The command of a job. The function prints the result for people; its docstring is the help.

    Args:
        name: of the command; the job has the same, with dashes.
        json: what the JSON document has.
        review: what a result says in a review, if it has findings.
        warning: a line for stderr, however the result is printed, unless the work was refused:
            then the reason is that line.
    """
    job = JOBS[name.replace(" ", "-")]
    asked_for = output(json=json, job=job, review=review is not None)
    models: list[type[Settings]] = [job.model, asked_for]
    if job.needs_spark:
        models.insert(1, SparkSettings)

    def wrap(show: Callable[[Any, Any], None]) -> Command:
        def run(settings: Settings, *more: Any) -> None:
            spark, asked = more if job.needs_spark else (SparkSettings(), *more)
            page = getattr(asked, "report", None)
            with quiet_work():
                if page is not None:
                    from jobs.files.output import refuse_unwritable

                    refuse_unwritable("the report", page)
                result = job.run(settings, spark)
                if page is not None:
                    job.write_page(result, page)

            def printed() -> None:
                show(result, settings)
                if page is not None:
                    print_line(f"report {page}")

            print_result(
                asked, result, printed, partial(review, result, settings) if review else None
            )
            line = getattr(result, "refused", None) or (warning and warning(result, settings))
            if line:
                print_line(line, err=True)
            level = getattr(asked, "fail_on", next(iter(job.levels), NEVER))
            end(is_fine=is_fine(result, level))

        return command(name, *models, help=show.__doc__, exit_codes=exit_codes, **attributes)(run)

    return wrap


def print_result(
    asked: Settings,
    result: Any,
    show: Callable[[], None],
    review: Callable[[], Review] | None = None,
) -> None:
    """Print a result in the form that is asked for; `show` prints it for people."""
    form = form_of(asked)
    if form == "json":
        print_json(document(result))
    elif form == FORMATS[0] or review is None:
        show()
    else:
        from cli.formats import print_findings

        print_findings(form, review())


def end(*, is_fine: bool) -> None:
    """End the command with 1 if what it checked is not fine."""
    if not is_fine:
        raise click.exceptions.Exit(NOT_FINE)


def _commands(ctx: click.Context) -> dict[str, Command]:
    """All commands by their keys; the one of the context alone if it is called by itself."""
    root = ctx.find_root()
    return {inner.key: inner for inner in _below(root.command, root) if isinstance(inner, Command)}


def _below(command: click.Command, ctx: click.Context) -> Iterator[click.Command]:
    if not isinstance(command, click.Group):
        yield command
        return
    for name in command.list_commands(ctx):
        inner = command.get_command(ctx, name)
        if inner is not None:
            yield from _below(inner, ctx)


def _shown(
    command: Command, ctx: click.Context, file: project.Project | None
) -> Iterator[tuple[str, str, str]]:
    """A row for each option: its name, its value, and where the value comes from."""
    for option in command.params:
        if not isinstance(option, SettingOption):
            continue
        name, value = option.setting.name, ctx.params[option.name or ""]
        source, where = ctx.get_parameter_source(option.name or ""), "default"
        if source is ParameterSource.COMMANDLINE:
            where = "command line"
        elif source is ParameterSource.ENVIRONMENT:
            where = f"environment, {option.envvar}"
        elif source is ParameterSource.DEFAULT_MAP and file is not None:
            where = file.place_for(command.key, name)
        else:
            value = option.setting.default
        if where != "default" and (other := unused_because(ctx, option)):
            where += f"; not used, because of {other}"
        is_hidden = option.setting.is_secret and value is not None
        yield name, "(hidden)" if is_hidden else _without_secrets(name, project.toml(value)), where


def _without_secrets(name: str, text: str) -> str:
    """A value without the user and the password in a URL, and without a token of Spark Connect."""
    if name == "server" or "://" in text:
        text = re.sub('[^,"]*@', "(hidden)@", text)
    return re.sub('(sc://[^;"]*;)[^"]*', r"\1(hidden)", text)
