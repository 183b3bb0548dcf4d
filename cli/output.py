"""What commands print: text for people, JSON for programs.

Every command prints through this module alone, so no text of a publisher acts on a terminal.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import click

from cli import options
from nats_transform.subject import encode
from nats_transform.untrusted import json_text, visible

_STDOUT, _STDERR = 1, 2


def print_line(line: str = "", *, err: bool = False) -> None:
    """Print one line; a line break or control character within it is shown as an escape."""
    click.echo(visible(line).encode(), err=err)


def print_lines(text: str, *, err: bool = False) -> None:
    """Print a text that we laid out in lines."""
    click.echo(visible(text, keep="\n").encode(), err=err)


def print_subject(subject: str) -> None:
    """Print a subject: its bytes into a pipe or file, its visible form on a terminal."""
    is_seen = sys.stdout is not None and sys.stdout.isatty()
    click.echo(visible(subject).encode() if is_seen else encode(subject))


def print_json(document: Mapping[str, Any]) -> None:
    """Print one JSON object on one line."""
    click.echo(json_text(document))


def print_counts(counts: Mapping[str, int]) -> None:
    """Print each count on a line of its own, aligned."""
    numbers = {name: f"{count:,}" for name, count in counts.items()}
    left = max(map(len, numbers))
    right = max(map(len, numbers.values()))
    for name, number in numbers.items():
        print_line(f"  {name:<{left}}  {number:>{right}}")


def progress(line: str) -> None:
    """Print a line of progress if stderr is a terminal."""
    if sys.stderr.isatty():
        print_line(line, err=True)


@contextlib.contextmanager
def quiet_work() -> Iterator[None]:
    """While it lasts, stdout is kept for the result, and the processes it starts are silent.

    What libraries print on stdout goes to stderr. A JVM has nothing to say there that is not also
    in our errors, but says it at length; `--debug` lets it.
    """
    with contextlib.ExitStack() as undo:
        if not options.is_debug():
            # py4j logs a stack trace on Ctrl-C; where nobody handles it, logging prints it.
            silent = logging.NullHandler()
            logging.getLogger().addHandler(silent)
            undo.callback(logging.getLogger().removeHandler, silent)
        # A caller may have closed a stream, or put something else in its place.
        is_ours = sys.stdout is sys.__stdout__
        if is_ours and sys.stdout is not None and sys.stderr is not None:
            sys.stdout.flush()
            sys.stderr.flush()
            undo.enter_context(_streams_apart())
        undo.enter_context(contextlib.redirect_stdout(sys.stderr))
        yield


@contextlib.contextmanager
def _streams_apart() -> Iterator[None]:
    """While it lasts, only `sys.stderr` reaches our stderr; processes inherit something else."""
    with contextlib.ExitStack() as undo:
        ours = undo.enter_context(open(os.dup(_STDERR), "w", buffering=1, errors="replace"))
        nobody = undo.enter_context(open(os.devnull, "w"))
        theirs = ours if options.is_debug() else nobody
        for stream in (_STDOUT, _STDERR):
            undo.callback(os.close, saved := os.dup(stream))
            undo.callback(os.dup2, saved, stream)
            os.dup2(theirs.fileno(), stream)
        undo.enter_context(contextlib.redirect_stderr(ours))
        yield
