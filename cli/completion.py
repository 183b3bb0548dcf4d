"""`nats-transform completion`: the script with which a shell completes commands."""

from __future__ import annotations

from typing import Literal

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

from cli.command import command as cli_command
from cli.output import print_lines
from jobs.settings.base import Settings, setting

SCRIPTS = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}


class CompletionSettings(Settings):
    """The shell that completes commands."""

    shell: Literal["bash", "zsh", "fish"] = setting(..., "The shell.", is_argument=True)


@cli_command(
    "completion",
    CompletionSettings,
    exit_codes="0 the script is printed; 2 it isn't, and the line on stderr says why.",
)
def command(settings: CompletionSettings) -> None:
    """Print the script for a shell: commands, options, and streams and days of the warehouse.

    \b
    Examples:
      nats-transform completion bash >> ~/.bashrc
      nats-transform completion zsh >> ~/.zshrc
      nats-transform completion fish > ~/.config/fish/completions/nats-transform.fish
    """
    script = SCRIPTS[settings.shell]
    root = click.get_current_context().find_root().command
    print_lines(script(root, {}, "nats-transform", "_NATS_TRANSFORM_COMPLETE").source().rstrip())
