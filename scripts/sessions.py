"""What the pages of the documentation show to type, to write into files, and to see.

A fenced block of the language `console` is a session: a line after `$ ` is a command, the lines
that follow it are what it prints (stdout and stderr), where `...` stands for anything, and blanks
for any blanks. A command that no lines follow may print what it likes. A command that fails on
purpose ends with `; echo "exit code $?"`. A block with a title (```` ```yaml title="new.yaml" ````)
is a file that the reader writes. Blocks of the language `sh` hold commands that a test of a page
cannot run.
"""

from __future__ import annotations

import contextlib
import doctest
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Command:
    """A command of a session, and what it prints; None if the page does not say."""

    text: str
    output: str | None


@dataclass(frozen=True)
class File:
    """A file that the reader writes."""

    name: str
    text: str


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its title, and its lines."""

    language: str
    title: str | None
    text: str


_BLOCK = re.compile(r"^```(\w*)(?: +title=\"([^\"]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\$ ((?:[^\n]*\\\n)*[^\n]*)\n((?:(?!\$ )[^\n]*\n)*)", re.MULTILINE)


def blocks(markdown: str) -> list[Block]:
    """All fenced blocks of a page."""
    return [Block(found[1], found[2], found[3]) for found in _BLOCK.finditer(markdown)]


def sessions(markdown: str) -> list[list[Command]]:
    """The `console` blocks of a page."""
    return [_session(block.text) for block in blocks(markdown) if block.language == "console"]


def steps(markdown: str) -> Iterator[Command | File]:
    """What a reader does who follows a page from its top."""
    for block in blocks(markdown):
        if block.title is not None:
            yield File(block.title, block.text)
        elif block.language == "console":
            yield from _session(block.text)


def _session(text: str) -> list[Command]:
    return [
        Command(command.replace("\\\n", ""), output or None)
        for command, output in _COMMAND.findall(text)
    ]


def run(command: Command, folder: Path, environment: Mapping[str, str]) -> None:
    """Runs a command in a folder.

    Raises:
        AssertionError: it fails, or prints something else than the page says.
    """
    done = subprocess.run(  # noqa: S603 - commands of our own pages
        ["sh", "-c", command.text],  # noqa: S607 - the reader's shell
        cwd=folder,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    judge(command, done.returncode, done.stdout)


def run_here(command: Command, folder: Path, environment: Mapping[str, str]) -> None:
    """As `run`, but a plain `nats-transform` runs in this process: its imports take seconds.

    Raises:
        AssertionError: as of `run`.
    """
    from click.testing import CliRunner

    from cli.main import main

    plain = re.fullmatch(r"nats-transform ([^;|&<>$`]*)(; echo \"exit code \$\?\")?", command.text)
    if plain is None or plain[1].startswith("demo"):
        run(command, folder, environment)
        return
    with contextlib.chdir(folder):
        done = CliRunner(env=dict(environment)).invoke(main, shlex.split(plain[1]))
    told = done.output + (f"exit code {done.exit_code}\n" if plain[2] else "")
    judge(command, 0 if plain[2] else done.exit_code, told)


def judge(command: Command, code: int, printed: str) -> None:
    """Compares what a command did with what the page says.

    Raises:
        AssertionError: it failed, or printed something else.
    """
    matches = command.output is None or doctest.OutputChecker().check_output(
        command.output, printed, doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    )
    if code or not matches:
        raise AssertionError(f"{command.text}\nexit code {code}\n{printed}")
