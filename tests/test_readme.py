"""Every command that README.md and docs/audit.md show works and prints what they say it prints.

A fenced block of the language `console` is a session: a line after `$ ` is a command, the lines
that follow it are what it prints (stdout and stderr), where `...` stands for anything. A command
that no lines follow may print what it likes. Each block starts in a fresh folder that looks like
the checkout; a command that fails on purpose ends with `; echo "exit code $?"`. Blocks
that begin with `make demo` are slow tests.
"""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.test_repository import tracked_files

ROOT = Path(__file__).parents[1]

# Commands that are not run here -> what runs them.
RUN_ELSEWHERE = {
    "pip install nats-transform": "tests/test_wheel.py installs the wheel",
    "make demo": "tests/cli/test_demo.py runs the command behind it",
    "make test": "this is it",
    "make test-slow": "runs the tests marked slow",
    "make ui": "tests/orchestration drives the same webserver",
    "make bench": "runs for minutes and measures a quiet machine",
}

# What a session runs instead, if it goes on with what the command made.
SMALLER = {"make demo": "nats-transform demo --messages 2000"}


@dataclass(frozen=True)
class Command:
    """A command of a session, and what it prints; None if the document does not say."""

    text: str
    output: str | None


def sessions(markdown: str) -> list[list[Command]]:
    """The `console` blocks of a document."""
    blocks = re.findall(r"^```console\n(.*?)^```$", markdown, re.MULTILINE | re.DOTALL)
    return [
        [
            Command(text.replace("\\\n", ""), output or None)
            for text, output in re.findall(
                r"^\$ ((?:[^\n]*\\\n)*[^\n]*)\n((?:(?!\$ )[^\n]*\n)*)", block, re.MULTILINE
            )
        ]
        for block in blocks
    ]


README = (ROOT / "README.md").read_text(encoding="utf-8")
SESSIONS = sessions(README)
# It goes on with what a demo of its own makes.
SLOW_SESSIONS = sessions((ROOT / "docs/audit.md").read_text(encoding="utf-8"))
EXAMPLE = """Text with `code`.
```console
$ one 'a' \\
    b
first
$ two
$ three
...
```
```sh
$ ignored
```
```console
$ four
```
"""


def test_finds_sessions() -> None:
    assert sessions(EXAMPLE) == [
        [Command("one 'a'     b", "first\n"), Command("two", None), Command("three", "...\n")],
        [Command("four", None)],
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with links to what the checkout holds: commands find it and write beside it."""
    for name in {file.relative_to(ROOT).parts[0] for file in tracked_files("*")}:
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    return tmp_path


@pytest.mark.parametrize(
    "session",
    [
        pytest.param(
            session,
            id=session[0].text,
            marks=[pytest.mark.slow] if any(c.text in SMALLER for c in session) else [],
        )
        for session in SESSIONS
        if any(command.text not in RUN_ELSEWHERE for command in session)
    ]
    + [
        pytest.param(session, id="docs/audit.md", marks=pytest.mark.slow)
        for session in SLOW_SESSIONS
    ],
)
def test_commands(session: list[Command], folder: Path) -> None:
    scripts = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{scripts}:{os.environ['PATH']}", "COLUMNS": "100"}
    for command in session:
        text, output = command.text, command.output
        if text in RUN_ELSEWHERE:
            if text not in SMALLER or command is session[-1]:
                continue
            text, output = SMALLER[text], None
        done = subprocess.run(
            ["sh", "-c", text],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}"
        if output is not None:
            matches = doctest.OutputChecker().check_output(output, done.stdout, doctest.ELLIPSIS)
            assert matches, f"{text}\n{done.stdout}"


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z-]+)", README)) <= targets


def test_first_steps_are_shown() -> None:
    shown = {command.text for session in SESSIONS for command in session}
    assert {"make demo", "make test"} <= shown


def test_no_commands_in_other_blocks() -> None:
    """A command in a block of another kind would not be run."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    unrun = [
        line
        for language, block in blocks
        if language != "console"
        for line in block.splitlines()
        if re.match(r"(\$ |make |git |cd |nats-transform |dg |\.venv/)", line)
    ]
    assert unrun == []
