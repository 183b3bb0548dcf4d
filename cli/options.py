"""The options that several commands share, and what they make."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

if TYPE_CHECKING:
    from datetime import date

    from jobs.jetstream.connection import NatsSettings
    from jobs.session import Spark
    from jobs.warehouse.tables import Warehouse

DEBUG = "nats_transform.debug"
"""Key in a click context's `meta`: whether errors show their stack trace."""

WAREHOUSE_VARIABLE = "NATS_TRANSFORM_WAREHOUSE"

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _remember_debug(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    # Given before the command or after it, once is enough.
    ctx.meta[DEBUG] = value or ctx.meta.get(DEBUG, False)


def debug_option(command: _Command) -> _Command:
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


def json_option(help: str) -> Callable[[_Command], _Command]:
    """`--json`, with what it prints."""
    return click.option("--json", "as_json", is_flag=True, help=help)


def account_option(command: _Command) -> _Command:
    """`--account`, which account of a server configuration or JWT is meant."""
    return click.option(
        "--account",
        default="$G",
        show_default=True,
        metavar="NAME",
        help="Whose mappings, in a server configuration with accounts.",
    )(command)


def day_option(command: _Command) -> _Command:
    """`--day`, some days of the archive, for `days`."""
    return click.option(
        "--day",
        metavar="A[..B]",
        help="A day (2026-11-30), or the first and last of several.  [default: every day there is]",
    )(command)


def days(day: str | None) -> dict[str, date | None]:
    """The fields `first_day` and `last_day` of a job's settings."""
    from jobs.days import day_range

    try:
        first, last = day_range(day)
    except ValueError as error:
        raise click.BadParameter(
            f"{day!r} is not a day or two, such as 2026-11-01..2026-11-30", param_hint="--day"
        ) from error
    return {"first_day": first, "last_day": last}


def warehouse_options(command: _Command) -> _Command:
    """`--warehouse` and `--catalog`, for `warehouse`."""
    command = click.option(
        "--catalog", metavar="NAME", help="A catalog of PyIceberg's configuration, not a folder."
    )(command)
    return click.option(
        "--warehouse",
        "warehouse_dir",
        metavar="DIR",
        type=click.Path(path_type=Path),
        help=f"Folder of the tables.  [default: ./warehouse, or {WAREHOUSE_VARIABLE}]",
    )(command)


def warehouse(dir: Path | None, catalog: str | None) -> Warehouse:
    """Where the tables are; an option goes before the environment."""
    from jobs.warehouse.tables import Warehouse

    if dir is not None and catalog is not None:
        raise click.UsageError("give --warehouse or --catalog, not both")
    named = os.environ.get(WAREHOUSE_VARIABLE)
    if dir is None and catalog is None and named:
        dir = Path(named)
    return Warehouse(dir=dir, catalog=catalog)


def spark_options(command: _Command) -> _Command:
    """`--master` and `--remote`, for `spark`."""
    command = click.option(
        "--remote", metavar="URL", help="Spark Connect, such as sc://host:15002."
    )(command)
    return click.option(
        "--master", metavar="URL", help="Spark master.  [default: local[*], all cores here]"
    )(command)


def spark(master: str | None, remote: str | None) -> Spark:
    """What gives a job its session, once the job has looked at all else."""
    from jobs.session import SessionOnDemand, SparkSettings

    if master is not None and remote is not None:
        raise click.UsageError("give --master or --remote, not both")
    where = SparkSettings(master=master, remote=remote)
    return SessionOnDemand(where)


def server_options(command: _Command) -> _Command:
    """`--server` and what a connection takes; the command gets them as `connect`, for `server`."""

    @functools.wraps(command)
    def collecting(**values: Any) -> Any:
        connect = {name: values.pop(name) for name in _CONNECTION}
        return command(connect=connect, **values)

    wrapped: Callable[..., Any] = collecting
    for name, (flag, metavar, variable, help) in reversed(_CONNECTION.items()):
        wrapped = click.option(
            flag, name, metavar=metavar, envvar=variable, show_envvar=bool(variable), help=help
        )(wrapped)
    return cast(_Command, wrapped)


# Field of NatsSettings: its option, named as the `nats` command names it.
_CONNECTION: dict[str, tuple[str, str, str | None, str]] = {
    "servers": ("--server", "URL", None, "A nats-server, or several with commas between."),
    "creds": ("--creds", "FILE", "NATS_CREDS", "Credentials: a user JWT and its seed."),
    "nkey": ("--nkey", "FILE", "NATS_NKEY", "File with an NKey seed."),
    "user": ("--user", "NAME", "NATS_USER", "User name."),
    "password": ("--password", "TEXT", "NATS_PASSWORD", "Better given in the environment."),
    "token": ("--token", "TEXT", "NATS_TOKEN", "Better given in the environment."),
    "tls_ca": ("--tlsca", "FILE", "NATS_CA", "Certificate authority (PEM)."),
    "tls_cert": ("--tlscert", "FILE", "NATS_CERT", "Certificate of the client (PEM)."),
    "tls_key": ("--tlskey", "FILE", "NATS_KEY", "Key of the client's certificate (PEM)."),
    "domain": ("--js-domain", "NAME", None, "JetStream domain."),
}


def server(connect: dict[str, str | None]) -> NatsSettings | None:
    """How to reach the server, or None without `--server`."""
    from jobs.jetstream.connection import NatsSettings

    if connect["servers"] is None:
        return None
    return NatsSettings.model_validate({k: v for k, v in connect.items() if v is not None})
