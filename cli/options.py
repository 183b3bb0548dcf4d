"""The options that several commands share, and what they make of them for the command."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from cli import complete

if TYPE_CHECKING:
    from datetime import date

    from pydantic import BaseModel

    from jobs.jetstream.connection import NatsSettings
    from jobs.session import Spark
    from jobs.warehouse.where import Warehouse

    Settings = TypeVar("Settings", bound=BaseModel)

FORMATS = ("table", "json", "markdown", "github", "sarif")
"""How findings can be printed, see `cli.formats`."""

DEBUG = "nats_transform.debug"
"""Key in a click context's `meta`: whether errors show their stack trace."""

WAREHOUSE_VARIABLE = "NATS_TRANSFORM_WAREHOUSE"

NEVER = "never"
"""The level of `--fail-on` that nothing reaches."""

FILE = click.Path(path_type=Path)

_Command = TypeVar("_Command", bound=Callable[..., Any])


def settings(model: type[Settings], given: Mapping[str, object]) -> Settings:
    """The settings of a job; what no option gives has the default of the job."""
    return model.model_validate({name: value for name, value in given.items() if value is not None})


def _remember_debug(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    # Given before the command or after it, once is enough.
    ctx.meta[DEBUG] = value or ctx.meta.get(DEBUG, False)


def debug(command: _Command) -> _Command:
    """`--debug`, for the group and for every command."""
    return click.option(
        "--debug",
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_remember_debug,
        help="Show the stack trace of an error.",
    )(command)


def is_debug() -> bool:
    """Whether `--debug` was given."""
    return bool(click.get_current_context().meta.get(DEBUG))


def json(help: str) -> Callable[[_Command], _Command]:
    """`--json`, with what it prints."""
    return click.option("--json", "as_json", is_flag=True, help=help)


def output_format(document: str) -> Callable[[_Command], _Command]:
    """`--format` and `--json`; the command gets `form`, one of `FORMATS`."""

    def make(form: str | None, as_json: bool) -> dict[str, str]:
        if as_json and form not in (None, "json"):
            raise click.UsageError("give --json or --format, not both")
        return {"form": form or ("json" if as_json else "table")}

    def wrap(command: _Command) -> _Command:
        made = _given(command, ["form", "as_json"], make)
        made = json(document)(made)
        return click.option(
            "--format",
            "form",
            type=click.Choice(FORMATS),
            help="How to print: for people, as one JSON document, as a comment for a review in "
            "Markdown, as annotations of GitHub Actions, or as SARIF 2.1.0.  [default: table]",
        )(made)

    return wrap


def stream(help: str) -> Callable[[_Command], _Command]:
    """`--stream`, the stream whose messages are meant."""
    return click.option(
        "--stream", required=True, metavar="NAME", help=help, shell_complete=complete.streams
    )


def subjects(command: _Command) -> _Command:
    """`--stream` or `--census`, the subjects that are tried."""
    stream = click.option(
        "--stream",
        metavar="NAME",
        help="The stream whose subjects are tried.  [default: the stream of the census]",
    )
    census = click.option(
        "--census",
        metavar="FILE",
        type=FILE,
        help="A file of `nats-transform census export` with the subjects, instead of a warehouse. "
        "Neither a warehouse nor Spark is needed then.",
    )
    return stream(census(command))


def mapping(command: _Command) -> _Command:
    """`--mapping`, a file with mappings."""
    return click.option(
        "--mapping",
        required=True,
        metavar="FILE",
        type=FILE,
        help="The mappings: a server configuration, an account JWT, JSON or YAML.",
    )(command)


def account(command: _Command) -> _Command:
    """`--account`, which account of a server configuration or JWT is meant."""
    return click.option(
        "--account",
        default="$G",
        show_default=True,
        metavar="NAME",
        help="The account whose mappings are used, if the file has several accounts.",
    )(command)


def question(command: _Command) -> _Command:
    """The mappings to try and those in force, and the files of what stands around them."""
    for option in reversed(
        (
            click.option(
                "--candidate",
                required=True,
                metavar="FILE",
                type=FILE,
                help="The mappings to try: a server configuration, an account JWT, JSON or YAML.",
            ),
            click.option(
                "--current",
                metavar="FILE",
                type=FILE,
                help="The mappings that are in force today.  [default: there are none]",
            ),
            account,
            click.option(
                "--streams",
                metavar="DIR",
                type=FILE,
                help="A folder with one file per stream: the output of `nats stream info NAME "
                "--json`.",
            ),
            click.option(
                "--consumers",
                metavar="DIR",
                type=FILE,
                help="A folder with one file per consumer: the output of `nats consumer info "
                "STREAM NAME --json`.",
            ),
            click.option(
                "--permissions",
                metavar="FILE",
                type=FILE,
                help="A server configuration: it is looked at what its users may no longer publish "
                "or subscribe to.",
            ),
            click.option(
                "--permissions-account",
                metavar="NAME",
                help="The account of these users.  [default: the account that --account names]",
            ),
        )
    ):
        command = option(command)
    return command


def seed(help: str) -> Callable[[_Command], _Command]:
    """`--seed`, which decides every draw."""
    return click.option("--seed", type=int, default=0, show_default=True, metavar="N", help=help)


def run_id(command: _Command) -> _Command:
    """`--run-id`, a name for the run."""
    return click.option(
        "--run-id",
        metavar="ID",
        help="A name for this run; the result keeps it.  [default: a random name]",
    )(command)


def fail_on(levels: Sequence[str], help: str) -> Callable[[_Command], _Command]:
    """`--fail-on`, one of these levels or `NEVER`; the first one is the default."""
    choice = click.Choice([*map(str, levels), NEVER])
    return click.option(
        "--fail-on", type=choice, default=str(levels[0]), show_default=True, help=help
    )


def report(help: str) -> Callable[[_Command], _Command]:
    """`--report`, an HTML page to write."""
    return click.option("--report", metavar="FILE", type=FILE, help=help)


def day(command: _Command) -> _Command:
    """`--day`, some days of the archive; the command gets `first_day` and `last_day`."""
    option = click.option(
        "--day",
        metavar="A[..B]",
        shell_complete=complete.days,
        help="A day such as 2026-11-30, or the first and the last of several days: "
        "2026-11-01..2026-11-30.  [default: every day of the archive]",
    )
    return option(_given(command, ["day"], _days))


def _days(day: str | None) -> dict[str, date | None]:
    from jobs.days import day_range

    try:
        first, last = day_range(day)
    except ValueError as error:
        raise click.BadParameter(
            f"{day!r} is not a day such as 2026-11-30, nor a range such as 2026-11-01..2026-11-30",
            param_hint="--day",
        ) from error
    return {"first_day": first, "last_day": last}


def warehouse(command: _Command) -> _Command:
    """`--warehouse` and `--catalog`; the command gets `warehouse`."""
    folder = click.option(
        "--warehouse",
        "folder",
        metavar="DIR",
        type=FILE,
        envvar=WAREHOUSE_VARIABLE,
        show_envvar=True,
        help="The folder of the tables.  [default: ./warehouse]",
    )
    catalog = click.option(
        "--catalog",
        metavar="NAME",
        help="A catalog of the PyIceberg configuration, instead of a folder.",
    )
    return folder(catalog(_given(command, ["folder", "catalog"], _warehouse)))


def _warehouse(folder: Path | None, catalog: str | None) -> dict[str, Warehouse]:
    from jobs.warehouse.where import Warehouse

    if folder is not None and catalog is not None:
        raise click.UsageError("give --warehouse or --catalog, not both")
    return {"warehouse": Warehouse(dir=folder, catalog=catalog)}


def spark(command: _Command) -> _Command:
    """`--master` and `--remote`; the command gets `spark`, which gives a job its session."""
    master = click.option(
        "--master",
        metavar="URL",
        help="The master of a Spark cluster.  [default: no Spark for small work; for other work "
        "local[*], all cores of this machine]",
    )
    remote = click.option(
        "--remote",
        metavar="URL",
        help="A Spark Connect server, such as sc://host:15002, instead of a master.",
    )
    return master(remote(_given(command, ["master", "remote"], _spark)))


def _spark(master: str | None, remote: str | None) -> dict[str, Spark]:
    if master is not None and remote is not None:
        raise click.UsageError("give --master or --remote, not both")

    from jobs.session import SessionOnDemand, SparkSettings

    where = SparkSettings(master=master, remote=remote)
    return {"spark": SessionOnDemand(where)}


def server(instead_of: tuple[str, ...] = ()) -> Callable[[_Command], _Command]:
    """`--server`, `--context` and what a connection takes, as the `nats` command has them.

    The command gets `server`; None if no server is given, or if it is only implied (by the
    environment, or by the context that is selected) and one of the options `instead_of` is given.
    """

    def wrap(command: _Command) -> _Command:
        return _with_server(command, instead_of)

    return wrap


def _with_server(command: _Command, instead_of: tuple[str, ...]) -> _Command:
    @functools.wraps(command)
    def connecting(**values: Any) -> Any:
        connection = {name: values.pop(name) for name in ("context", *_CONNECTION)}
        if _is_on_command_line("context") and not _is_on_command_line("servers"):
            connection["servers"] = None  # the context's own, whatever the environment names
        asked = any(_is_on_command_line(name) for name in ("context", "servers"))
        if not asked and any(values.get(name) is not None for name in instead_of):
            return command(**values, server=None)
        return command(**values, server=_server(**connection))

    wrapped = cast(_Command, connecting)
    wrapped = click.option(
        "--context",
        metavar="NAME",
        envvar="NATS_CONTEXT",
        show_envvar=True,
        help="A context of the `nats` command; options of a connection replace parts of it.  "
        "[default: the one that `nats context select` chose, if no --server is given]",
    )(wrapped)
    for name, (flag, metavar, variable, help) in reversed(_CONNECTION.items()):
        wrapped = click.option(
            flag, name, metavar=metavar, envvar=variable, show_envvar=bool(variable), help=help
        )(wrapped)
    return wrapped


# Field of NatsSettings: its option, named as the `nats` command names it.
_CONNECTION: dict[str, tuple[str, str, str | None, str]] = {
    "servers": (
        "--server",
        "URL",
        "NATS_URL",
        "The URL of a nats-server; put commas between several.",
    ),
    "creds": ("--creds", "FILE", "NATS_CREDS", "A credentials file with a user JWT and its seed."),
    "nkey": ("--nkey", "FILE", "NATS_NKEY", "A file with an NKey seed."),
    "user": ("--user", "NAME", "NATS_USER", "The name of a user."),
    "password": (
        "--password",
        "TEXT",
        "NATS_PASSWORD",
        "The password of the user; the environment is a safer place for it.",
    ),
    "token": ("--token", "TEXT", "NATS_TOKEN", "A token; the environment is a safer place for it."),
    "tls_ca": (
        "--tlsca",
        "FILE",
        "NATS_CA",
        "A file with the certificate authority to trust (PEM).",
    ),
    "tls_cert": (
        "--tlscert",
        "FILE",
        "NATS_CERT",
        "A file with the certificate of the client (PEM).",
    ),
    "tls_key": ("--tlskey", "FILE", "NATS_KEY", "A file with the key of that certificate (PEM)."),
    "domain": ("--js-domain", "NAME", None, "The JetStream domain."),
}


def _is_on_command_line(name: str) -> bool:
    source = click.get_current_context().get_parameter_source(name)
    return source is click.core.ParameterSource.COMMANDLINE


def _server(context: str | None, **connection: str | None) -> NatsSettings | None:
    from jobs.jetstream.connection import NatsSettings
    from jobs.jetstream.contexts import selected_context, with_context

    if connection["user"] is not None and connection["password"] is None:
        # As natscli has it: a user without a password is a token.
        connection |= {"token": connection["user"], "user": None}
    if context is not None:
        return with_context(context, connection)
    if connection["servers"] is not None:
        # Not with the selected context: its credentials are for its own servers.
        return settings(NatsSettings, connection)
    selected = selected_context()
    return None if selected is None else with_context(selected, connection)


def _given(
    command: _Command, names: list[str], make: Callable[..., Mapping[str, object]]
) -> _Command:
    """A command that is given what some options make, instead of the options."""

    @functools.wraps(command)
    def making(**values: Any) -> Any:
        from jobs.cold import without_pandas

        without_pandas()  # what is made of options imports pyarrow
        options = {name: values.pop(name) for name in names}
        return command(**values, **make(**options))

    return cast(_Command, making)
