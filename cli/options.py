"""The options that several commands share, and what they make of them for the command."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cli import complete

if TYPE_CHECKING:
    from pydantic import BaseModel

    from jobs.session import Spark
    from jobs.settings.connection import NatsSettings
    from jobs.settings.warehouse import Warehouse

    Settings = TypeVar("Settings", bound=BaseModel)

FORMATS = ("table", "json", "markdown", "github", "sarif")
"""How findings can be printed, see `cli.formats`."""

DEBUG = "nats_transform.debug"
"""Key in a click context's `meta`: whether errors show their stack trace."""

WAREHOUSE_VARIABLE = "NATS_TRANSFORM_WAREHOUSE"

NEVER = "never"
"""The level of `--fail-on` that nothing reaches."""

FILE = click.Path(path_type=Path)

_Wrap = Callable[[Any], Any]


def settings(model: type[Settings], given: Mapping[str, object]) -> Settings:
    """The settings of a job; what no option gives has the default of the job."""
    return model.model_validate({name: value for name, value in given.items() if value is not None})


def _together(*options: _Wrap) -> _Wrap:
    """Several options, which `--help` lists in this order."""

    def wrap(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return wrap


def _given(names: Sequence[str], make: Callable[..., Mapping[str, object]]) -> _Wrap:
    """Gives the command what some options make, instead of the options."""

    def wrap(command: Any) -> Any:
        @functools.wraps(command)
        def making(**values: Any) -> Any:
            from jobs.cold import without_pandas

            without_pandas()  # what is made of options imports pyarrow
            options = {name: values.pop(name) for name in names}
            return command(**values, **make(**options))

        return making

    return wrap


# ---- Kinds of options


def file(name: str, help: str, *, metavar: str = "FILE", required: bool = False) -> _Wrap:
    """An option that names a file or a folder."""
    return click.option(name, metavar=metavar, type=FILE, required=required, help=help)


def several(name: str, to: str, metavar: str, help: str, **more: Any) -> _Wrap:
    """An option that may be given several times; the command gets all its values as `to`."""
    start, default, rest = help.partition("  [default")
    help = f"{start} May be given several times.{default}{rest}"
    return click.option(name, to, metavar=metavar, multiple=True, help=help, **more)


class _Number(click.types.FloatParamType):
    """A number, with a cure for one that is written with a percent sign."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return float(value)
        except ValueError:
            cure = "; leave the % out" if value.endswith("%") else ""
            self.fail(f"{value!r} is not a number such as 2.5{cure}", param, ctx)


NUMBER = _Number()


def number(name: str, default: float, help: str) -> _Wrap:
    """An option that is a number, and has a default."""
    return click.option(name, type=NUMBER, default=default, show_default=True, help=help)


def positions(name: str, help: str, *, like: str, metavar: str) -> _Wrap:
    """An option with whole numbers and commas between them; `like` is an example."""

    def numbers(_: object, parameter: object, value: str | None) -> list[int] | None:
        try:
            return [int(part) for part in value.split(",")] if value else None
        except ValueError:
            raise click.BadParameter(
                f"{value!r} is not a list of whole numbers such as {like}"
            ) from None

    return click.option(name, metavar=metavar, callback=numbers, help=help)


# ---- What a command prints, and how it ends


def _remember_debug(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    # Given before the command or after it, once is enough.
    ctx.meta[DEBUG] = value or ctx.meta.get(DEBUG, False)


debug = click.option(
    "--debug",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_remember_debug,
    help="Show the stack trace of an error.",
)
"""`--debug`, for groups; every command of `cli.project` has it."""


def is_debug() -> bool:
    """Whether `--debug` was given."""
    return bool(click.get_current_context().meta.get(DEBUG))


def json(help: str) -> _Wrap:
    """`--json`, with what it prints."""
    return click.option("--json", "as_json", is_flag=True, help=help)


def _form(form: str | None, as_json: bool) -> dict[str, str]:
    if as_json and form not in (None, "json"):
        raise click.UsageError("give --json or --format, not both")
    return {"form": form or ("json" if as_json else "table")}


def output_format(document: str) -> _Wrap:
    """`--format` and `--json`; the command gets `form`, one of `FORMATS`."""
    form = click.option(
        "--format",
        "form",
        type=click.Choice(FORMATS),
        help="How to print: for people, as one JSON document, as a comment for a review in "
        "Markdown, as annotations of GitHub Actions, or as SARIF 2.1.0.  [default: table]",
    )
    return _together(form, json(document), _given(["form", "as_json"], _form))


def report(help: str) -> _Wrap:
    """`--report`, an HTML page to write; one that cannot be written is refused before the work."""

    def writable(_: object, parameter: object, path: Path | None) -> Path | None:
        from jobs.files.output import refuse_unwritable

        if path is not None:
            refuse_unwritable("the report", path)
        return path

    return click.option("--report", metavar="FILE", type=FILE, callback=writable, help=help)


def fail_on(levels: Sequence[str], help: str) -> _Wrap:
    """`--fail-on`, one of these levels or `NEVER`; the first one is the default."""
    choice = click.Choice([*map(str, levels), NEVER])
    return click.option(
        "--fail-on", type=choice, default=str(levels[0]), show_default=True, help=help
    )


# ---- Which messages


def stream(help: str) -> _Wrap:
    """`--stream`, the stream whose messages are meant."""
    return click.option(
        "--stream", required=True, metavar="NAME", help=help, shell_complete=complete.streams
    )


subjects = _together(
    click.option(
        "--stream",
        metavar="NAME",
        help="The stream whose subjects are tried.  [default: the stream of the census]",
        shell_complete=complete.streams,
    ),
    file(
        "--census",
        "A file of `nats-transform census export` with the subjects, instead of a warehouse. "
        "Neither a warehouse nor Spark is needed then.",
    ),
)
"""`--stream` or `--census`, the subjects that are tried."""


def _days(day: str | None) -> dict[str, str | None]:
    return {"first_day": day}


day = _together(
    click.option(
        "--day",
        metavar="A[..B]",
        shell_complete=complete.days,
        help="A day such as 2026-11-30, or the first and the last of several days: "
        "2026-11-01..2026-11-30.  [default: every day of the archive]",
    ),
    _given(["day"], _days),
)
"""`--day`, some days of the archive; the command gets `first_day` and `last_day`."""


def _warehouse(folder: Path | None, catalog: str | None) -> dict[str, Warehouse]:
    from jobs.settings.warehouse import Warehouse

    if folder is not None and catalog is not None:
        raise click.UsageError("give --warehouse or --catalog, not both")
    return {"warehouse": Warehouse(dir=folder, catalog=catalog)}


warehouse = _together(
    click.option(
        "--warehouse",
        "folder",
        metavar="DIR",
        type=FILE,
        envvar=WAREHOUSE_VARIABLE,
        show_envvar=True,
        help="The folder of the tables.  [default: ./warehouse]",
    ),
    click.option(
        "--catalog",
        metavar="NAME",
        help="A catalog of the PyIceberg configuration, instead of a folder.",
    ),
    _given(["folder", "catalog"], _warehouse),
)
"""`--warehouse` and `--catalog`; the command gets `warehouse`."""


def _spark(master: str | None, remote: str | None) -> dict[str, Spark]:
    if master is not None and remote is not None:
        raise click.UsageError("give --master or --remote, not both")

    from jobs.session import SessionOnDemand
    from jobs.settings.spark import SparkSettings

    return {"spark": SessionOnDemand(SparkSettings(master=master, remote=remote))}


spark = _together(
    click.option(
        "--master",
        metavar="URL",
        help="The master of a Spark cluster.  [default: no Spark for small work; for other work "
        "local[*], all cores of this machine]",
    ),
    click.option(
        "--remote",
        metavar="URL",
        help="A Spark Connect server, such as sc://host:15002, instead of a master.",
    ),
    _given(["master", "remote"], _spark),
)
"""`--master` and `--remote`; the command gets `spark`, which gives a job its session."""


# ---- Which mappings

account = click.option(
    "--account",
    default="$G",
    show_default=True,
    metavar="NAME",
    help="The account whose mappings are used, if the file has several accounts.",
)
"""`--account`, which account of a server configuration or JWT is meant."""

mapping = _together(
    file(
        "--mapping",
        "The mappings: a server configuration, an account JWT, JSON or YAML.",
        required=True,
    ),
    account,
)
"""`--mapping`, a file with mappings, and `--account`."""

streams = file(
    "--streams",
    "A folder with one file per stream: the output of `nats stream info NAME --json`.",
    metavar="DIR",
)
"""`--streams`, the configurations of streams."""

question = _together(
    file(
        "--candidate",
        "The mappings to try: a server configuration, an account JWT, JSON or YAML.",
        required=True,
    ),
    file("--current", "The mappings that are in force today.  [default: there are none]"),
    account,
    streams,
    file(
        "--consumers",
        "A folder with one file per consumer: the output of `nats consumer info STREAM NAME "
        "--json`.",
        metavar="DIR",
    ),
    file(
        "--permissions",
        "A server configuration with users: what they may no longer publish or subscribe to is a "
        "finding.",
    ),
    click.option(
        "--permissions-account",
        metavar="NAME",
        help="The account of these users.  [default: the account that --account names]",
    ),
    several(
        "--cluster",
        "clusters",
        "NAME",
        "A cluster that you run.  [default: the clusters that the archive names]",
    ),
)
"""The mappings to try and those in force, and the files of what stands around them."""


# ---- How


def seed(help: str) -> _Wrap:
    """`--seed`, which decides every draw."""
    return click.option("--seed", type=int, default=0, show_default=True, metavar="N", help=help)


def tolerance(help: str) -> _Wrap:
    """`--tolerance`, in percentage points."""
    return number("--tolerance", 1.0, f"How many percentage points {help}.")


def confidence(help: str) -> _Wrap:
    """`--confidence`, a probability."""
    return number("--confidence", 0.99, f"The probability, from 0 to 1, that {help}.")


run_id = click.option(
    "--run-id",
    metavar="ID",
    help="A name for this run; the result keeps it.  [default: a random name]",
)
"""`--run-id`, a name for the run."""


# ---- Which server

_SAFER = "; the environment is a safer place for it."
# Field of NatsSettings: its option, named as the `nats` command names it.
_CONNECTION: dict[str, tuple[str, str, str | None, str]] = {
    "servers": ("--server", "URL", "NATS_URL", "The URL of a server; put commas between several."),
    "creds": ("--creds", "FILE", "NATS_CREDS", "A credentials file with a user JWT and its seed."),
    "nkey": ("--nkey", "FILE", "NATS_NKEY", "A file with an NKey seed."),
    "user": ("--user", "NAME", "NATS_USER", "The name of a user."),
    "password": ("--password", "TEXT", "NATS_PASSWORD", f"The password of the user{_SAFER}"),
    "token": ("--token", "TEXT", "NATS_TOKEN", f"A token{_SAFER}"),
    "tls_ca": ("--tlsca", "FILE", "NATS_CA", "The certificate authority to trust (PEM)."),
    "tls_cert": ("--tlscert", "FILE", "NATS_CERT", "The certificate of the client (PEM)."),
    "tls_key": ("--tlskey", "FILE", "NATS_KEY", "The key of that certificate (PEM)."),
    "domain": ("--js-domain", "NAME", None, "The JetStream domain."),
}


class Connection(click.Option):
    """An option of a connection.

    Attributes:
        instead_of: the options that go before a server which is only implied.
    """

    def __init__(self, *args: Any, instead_of: tuple[str, ...] = (), **attributes: Any) -> None:
        self.instead_of = instead_of
        super().__init__(*args, **attributes)

    def unused_with(self, ctx: click.Context) -> str | None:
        """The option that makes this one go unused; None if it applies."""
        if any(_is_on_command_line(name, ctx) for name in ("context", "servers")):
            return None
        given = (name for name in self.instead_of if ctx.params.get(name) not in (None, ()))
        return next(given, None)


def server(instead_of: tuple[str, ...] = ()) -> _Wrap:
    """`--server`, `--context` and what a connection takes, as the `nats` command has them.

    The command gets `server`; None if no server is named. A server that only the environment or
    the selected context names is not meant if one of the options `instead_of` is given, and one on
    the command line goes before such options of a project file.
    """

    def wrap(command: Any) -> Any:
        @functools.wraps(command)
        def connecting(**values: Any) -> Any:
            connection = {name: values.pop(name) for name in ("context", *_CONNECTION)}
            if _is_on_command_line("context") and not _is_on_command_line("servers"):
                connection["servers"] = None  # the context's own, whatever the environment names
            if any(_is_on_command_line(name) for name in ("context", "servers")):
                from_file = (name for name in instead_of if not _is_on_command_line(name))
                values |= {name: () if values[name] == () else None for name in from_file}
            elif any(values[name] not in (None, ()) for name in instead_of):
                return command(**values, server=None)
            return command(**values, server=_server(**connection))

        return connecting

    context = click.option(
        "--context",
        metavar="NAME",
        cls=Connection,
        instead_of=instead_of,
        envvar="NATS_CONTEXT",
        show_envvar=True,
        help="A context of the `nats` command; options of a connection replace parts of it.  "
        "[default: the one that `nats context select` chose, if no --server is given]",
    )
    options = [
        click.option(
            *([flag, "-s"] if flag == "--server" else [flag]),
            name,
            metavar=metavar,
            cls=Connection,
            instead_of=instead_of,
            envvar=variable,
            show_envvar=bool(variable),
            help=help,
        )
        for name, (flag, metavar, variable, help) in _CONNECTION.items()
    ]
    return _together(*options, context, wrap)


def _is_on_command_line(name: str, ctx: click.Context | None = None) -> bool:
    source = (ctx or click.get_current_context()).get_parameter_source(name)
    return source is click.core.ParameterSource.COMMANDLINE


def _server(context: str | None, **connection: str | None) -> NatsSettings | None:
    from jobs.settings.connection import NatsSettings
    from jobs.settings.contexts import selected_context

    if connection["user"] is not None and connection["password"] is None:
        # As natscli has it: a user without a password is a token.
        connection |= {"token": connection["user"], "user": None}
    if context is not None:
        return settings(NatsSettings, {**connection, "context": context})
    if connection["servers"] is not None:
        # Not with the selected context: its credentials are for its own servers.
        return settings(NatsSettings, connection)
    selected = selected_context()
    return None if selected is None else settings(NatsSettings, {**connection, "context": selected})
