"""The options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

DEBUG = "nats_transform.debug"
"""Key in a click context's `meta`: whether errors show their stack trace."""

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


def json_option(help: str) -> Callable[[_Command], _Command]:
    """`--json`, with what it prints."""
    return click.option("--json", "as_json", is_flag=True, help=help)
