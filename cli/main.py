"""`nats-transform`: the command line.

Every command is a small module here that imports what it needs when it runs, so that `map` and
`--help` answer at once. Exit codes: 0 fine, 1 the thing checked is not fine, 2 usage or input that
cannot be read; 130 after Ctrl-C, 141 when the reader of a pipe is gone, 143 after SIGTERM.
"""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

import click

from cli.output import debug, is_debug, print_line, print_lines
from jobs.ending import INTERRUPTED, PIPE_CLOSED, UNUSABLE, ended_by_signals, leave, reason_of
from nats_transform.collector import leave_out_modules
from nats_transform.errors import did_you_mean, printable, sentence

# Panel -> command -> what it is for, in the order of a newcomer's needs. Its module has its name.
PANELS = {
    "Look at a mapping": {
        "map": "Try one transform on subjects, as `nats server mapping` does.",
        "check": "Check mappings and stream configurations for mistakes.",
        "trace": "Show where a message goes: mappings, streams, republish.",
        "dry-run": "Try a new mapping on the subjects of a server or an archive.",
        "explain": "Explain a finding, with an example and its cure.",
        "init": "Write the project file and a workflow for CI.",
    },
    "Change it": {
        "certify": "Compare a private nats-server with the prediction.",
        "plan": "Plan a switch of mappings, step by step.",
        "verify": "Say whether a step of a plan is in force.",
    },
    "Watch it": {
        "plan-canary": "Say how long a canary must run.",
        "audit": "Compare the split of weighted mappings with their weights.",
    },
    "Keep an archive": {
        "ingest": "Archive the messages of a stream or a dump.",
        "transform": "Rewrite archived messages under a mapping.",
        "compare": "Compare branches, snapshots or mapping versions of them.",
        "promote": "Publish a branch of the transformed messages.",
        "verify-table": "Check the published rows of a stream.",
        "census": "Export the subjects of an archive into a file.",
        "replay": "Send transformed messages into a stream.",
        "export": "Write messages as a stream backup.",
        "erase": "Erase messages from all tables, for good.",
        "maintain": "Remove old snapshots of the tables, and unneeded files.",
    },
    "Get to know it": {
        "demo": "See the main job work, on messages from a real nats-server.",
        "completion": "Print a script that completes commands in a shell.",
    },
}
COMMANDS = {name: about for panel in PANELS.values() for name, about in panel.items()}


# What other programs call it -> what it is here.
_ELSEWHERE = {"help": "--help", "version": "--version", "server": "map", "mapping": "map"}
# The file with the mappings that are in force, and the one with those to try.
_MAPPINGS = ("--mapping", "--candidate")


class CommandLine(click.Group):
    """A group whose commands are imported on use and whose errors are one line each."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(
            f"{__package__}.{cmd_name.replace('-', '_')}"
        ).command
        leave_out_modules()
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, COMMANDS))
        for panel, commands in PANELS.items():
            with formatter.section(panel):  # without importing them
                formatter.write_dl([(name.ljust(width), about) for name, about in commands.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            other = f"; did you mean {_ELSEWHERE[name]}?" if name in _ELSEWHERE else ""
            other = other or did_you_mean(name, COMMANDS)
            raise click.UsageError(
                sentence("no-such-command", name=printable(name), hint=other), ctx
            )
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            if sys.stdout is not None:  # closed by the caller
                sys.stdout.flush()
            return result
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except BrokenPipeError:
            raise click.exceptions.Exit(PIPE_CLOSED) from None
        except KeyboardInterrupt:  # of a handler that Spark has put in the place of ours
            raise click.exceptions.Exit(INTERRUPTED) from None
        except Exception as error:
            if is_debug():
                print_lines(traceback.format_exc().rstrip(), err=True)
            raise click.ClickException(reason_of(error)) from error

    def main(  # type: ignore[override]
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        **extra: Any,
    ) -> NoReturn:
        """Run and exit; always standalone, so that a caller cannot get another error handling."""
        extra["standalone_mode"] = False
        try:
            with ended_by_signals("nats-transform"):
                code = super().main(args, prog_name or "nats-transform", **extra)
        except click.ClickException as error:
            _show(error)
            code = UNUSABLE
        except OSError as error:  # of --help and the like
            _show(click.ClickException(reason_of(error)))
            code = UNUSABLE
        leave(code if isinstance(code, int) else 0)


def _show(error: click.ClickException) -> None:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return
    where = "nats-transform"
    hint = ""
    if isinstance(error, click.UsageError):
        if error.ctx is not None:
            where = error.ctx.command_path
        hint = f" (see {where} --help)"
    text = _mappings_of(error) or error.format_message()
    text = text.removesuffix(".") if hint else text
    with contextlib.suppress(OSError):  # the exit code says it too
        print_line(" ".join(f"{where}: {text}{hint}".split()), err=True)


def _mappings_of(error: click.ClickException) -> str | None:
    """What to say where another command has the option for the file with the mappings."""
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return None
    if error.option_name not in (*_MAPPINGS, "--config"):
        return None
    known = {name for option in error.ctx.command.params for name in option.opts}
    own = [f"{name} FILE" for name in _MAPPINGS if name in known]
    cure = f"give {' or '.join(own)}" if own else "give the file without an option"
    return f"{error.message.removesuffix('.')}; {cure}"


@click.group(
    "nats-transform",
    cls=CommandLine,
    params=[debug()],
    context_settings={"max_content_width": 100, "help_option_names": ["-h", "--help"]},
)
@click.version_option(
    None, "-V", "--version", package_name="nats-transform", message="nats-transform %(version)s"
)
def main() -> None:
    """Replay message archives through the subject transforms of nats-server.

    \b
    Try a transform:         nats-transform map 'orders.*' 'orders.v2.$1' orders.42
    Check a configuration:   nats-transform check server.conf
    Try it on a server:      nats-transform dry-run --context prod --candidate server.conf

    Exit codes: 0 all is well; 1 what was checked is not well; 2 wrong usage, or input that cannot
    be read; 130 after Ctrl-C.
    """
