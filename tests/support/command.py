"""The command line, called in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner

from cli.main import main


def nats_transform(*args: str | Path, input: str | bytes | None = None) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `nats-transform` with these arguments."""
    result = CliRunner().invoke(main, [*map(str, args)], input=input)
    return result.exit_code, result.stdout, result.stderr


def printed(*args: str | Path, code: int = 0) -> str:
    """What a command prints on stdout that ends with this code and says nothing else."""
    found, out, err = nats_transform(*args)
    assert (found, err) == (code, ""), err or out
    return out


def findings(*args: str | Path) -> list[dict[str, Any]]:
    """What a command finds that ends with 0, as its JSON document has it."""
    code, out, err = nats_transform(*args, "--json")
    assert code == 0, err
    found: list[dict[str, Any]] = json.loads(out)["findings"]
    return found


def document(*args: str | Path, code: int = 0) -> Any:
    """The one line of JSON that a command prints which ends with this code."""
    out = printed(*args, "--json", code=code)
    assert out.count("\n") == 1
    return json.loads(out)


def refused(*args: str | Path) -> str:
    """The one line on stderr of a command that ends with 2 and says nothing else."""
    code, out, err = nats_transform(*args)
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert err.startswith("nats-transform")
    return err


def commands(command: click.Command = main, *path: str) -> dict[tuple[str, ...], click.Command]:
    """Every command by its words: the program itself, groups, and what is in them."""
    found = {path: command}
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            found |= commands(inner, *path, name)
    return found
