"""A command as people run it: on a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import termios
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, suppress

import pytest

from cli.main import main
from tests.support.programs import SCRIPT


def on_a_terminal(
    *args: str,
    input: bytes = b"",
    typed: bytes = b"",
    columns: int = 80,
    command: str = SCRIPT,
    **environment: str,
) -> tuple[int, str]:
    """The exit code, and what a terminal is sent: stdout and stderr.

    Args:
        args: of the command.
        input: what the command reads; it is not typed.
        typed: what somebody types, in the place of an input.
        columns: the width of the terminal.
        command: the program.
        environment: what the environment has besides a terminal with colors.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    inherited = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS")}
    with subprocess.Popen(
        [command, *args],
        env=inherited | {"TERM": "xterm-256color"} | environment,
        stdin=theirs if typed else subprocess.PIPE,
        stdout=theirs,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        if process.stdin is None:
            os.write(ours, typed)
        else:
            process.stdin.write(input)
            process.stdin.close()
        shown = _all_of(ours)
    return process.returncode, shown


def drawn_by(*args: str, columns: int = 100) -> tuple[int, str]:
    """The exit code, and what a terminal is sent that is the stderr of a call in this process."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with ThreadPoolExecutor(1) as pool, pytest.MonkeyPatch.context() as patch:
        reading = pool.submit(_all_of, ours)
        patch.setenv("TERM", "xterm-256color")
        with (
            os.fdopen(theirs, "w") as terminal,
            redirect_stderr(terminal),
            pytest.raises(SystemExit) as ended,
        ):
            main(args)
        return int(ended.value.code or 0), reading.result()


def _all_of(terminal: int) -> str:
    shown = b""
    with suppress(OSError):  # nobody writes any more
        while part := os.read(terminal, 65536):
            shown += part
    os.close(terminal)
    return shown.decode("utf-8", "surrogateescape").replace("\r\n", "\n")
