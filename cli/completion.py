"""`nats-transform completion`: the script with which a shell completes commands."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

from cli import project
from cli.output import print_lines

SCRIPTS = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}


@project.command(
    "completion",
    short_help="Print a script that completes commands in a shell.",
    epilog="Exit codes: 0 the script was printed; 2 the line on stderr says why it was not.",
)
@click.argument("shell", type=click.Choice(list(SCRIPTS)))
def command(shell: str) -> None:
    """Print the script for a shell: commands, options, and streams and days of the warehouse.

    \b
    Examples:
      nats-transform completion bash >> ~/.bashrc
      nats-transform completion zsh >> ~/.zshrc
      nats-transform completion fish > ~/.config/fish/completions/nats-transform.fish
    """
    script = SCRIPTS[shell]
    root = click.get_current_context().find_root().command
    print_lines(script(root, {}, "nats-transform", "_NATS_TRANSFORM_COMPLETE").source().rstrip())
