"""`nats-transform`: the command line.

Every command is a small module here that imports what it needs when it runs, so that `map` and
`--help` answer at once. Exit codes: 0 fine, 1 the thing checked is not fine, 2 usage or input that
cannot be read; 130 after Ctrl-C, 141 when the reader of a pipe is gone, 143 after SIGTERM.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import FrameType
from typing import Any, NoReturn

import click

from cli.options import DEBUG, debug_option
from cli.output import print_line, print_lines
from nats_transform.errors import NatsTransformError

NOT_FINE = 1
UNUSABLE = 2
INTERRUPTED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM
PIPE_CLOSED = 128 + signal.SIGPIPE

# Command -> its module in this package, in the order of a newcomer's needs.
COMMANDS = {
    "map": "map",
    "check": "check",
    "trace": "trace",
    "ingest": "ingest",
    "transform": "transform",
    "audit": "audit",
    "dry-run": "dry_run",
    "replay": "replay",
    "maintain": "maintain",
    "demo": "demo",
}


class CommandLine(click.Group):
    """A group whose commands are imported on use and whose errors are one line each."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"cli.{COMMANDS[cmd_name]}").command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            if sys.stdout is not None:  # closed by the caller
                sys.stdout.flush()
            return result
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except BrokenPipeError:
            # Python flushes once more at exit: let it flush into nothing.
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115
            raise click.exceptions.Exit(PIPE_CLOSED) from None
        except Exception as error:
            if ctx.meta.get(DEBUG):
                print_lines(traceback.format_exc().rstrip(), err=True)
            raise click.ClickException(_told(error)) from error

    def main(  # type: ignore[override]
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        **extra: Any,
    ) -> NoReturn:
        """Run and exit; always standalone, so that a caller cannot get another error handling."""
        extra["standalone_mode"] = False
        with _sigterm_unwinds():
            try:
                code = super().main(args, prog_name or "nats-transform", **extra)
            except click.exceptions.Abort:
                code = INTERRUPTED
            except click.ClickException as error:
                _show(error)
                code = UNUSABLE
        sys.exit(code if isinstance(code, int) else 0)


def _told(error: Exception) -> str:
    if isinstance(error, NatsTransformError):
        return str(error)
    if (mistake := _wrong_setting(error)) is not None:
        return mistake
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    # Spark's go on for pages: plans and Java stack traces.
    text = next((line for line in str(error).splitlines() if line.strip()), "no message")
    return f"unexpected {type(error).__name__}: {text} (--debug shows the stack trace)"


def _wrong_setting(error: Exception) -> str | None:
    """What is wrong with the settings, if it is Pydantic that says so."""
    # Not imported for this: only a command that has settings imports it.
    pydantic = sys.modules.get("pydantic")
    if pydantic is None or not isinstance(error, pydantic.ValidationError):
        return None
    first = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    reason = str(first["msg"]).removeprefix("Value error, ")
    return f"{place}: {reason}" if place else reason


def _show(error: click.ClickException) -> None:
    where = "nats-transform"
    hint = ""
    if isinstance(error, click.UsageError):
        if error.ctx is not None:
            where = error.ctx.command_path
        hint = f" (see {where} --help)"
    print_line(" ".join(f"{where}: {error.format_message()}{hint}".split()), err=True)


@contextmanager
def _sigterm_unwinds() -> Iterator[None]:
    """SIGTERM ends the process through its `finally` blocks: servers and scratch folders go too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def unwind(number: int, frame: FrameType | None) -> NoReturn:
        import logging

        # It would show the stack of a task that this exit ends.
        logging.getLogger("asyncio").disabled = True
        sys.exit(TERMINATED)

    before = signal.signal(signal.SIGTERM, unwind)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@click.group("nats-transform", cls=CommandLine, context_settings={"max_content_width": 100})
@click.version_option(package_name="nats-transform", message="nats-transform %(version)s")
@debug_option
def main() -> None:
    """Replay message archives through the subject transforms of nats-server.

    \b
    Try a transform:    nats-transform map "orders.*" "orders.v2.$1" orders.42
    Lint a config:      nats-transform check server.conf
    See it all work:    nats-transform demo

    Exit codes: 0 fine; 1 what was checked is not fine; 2 usage, or input that cannot be read.
    """
