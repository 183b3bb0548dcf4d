"""What commands print: text for people, JSON for programs, one line for an error."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import click

from cli.options import is_debug
from nats_transform.subject import encode

_STDOUT, _STDERR = 1, 2


def one_line(text: str) -> str:
    """A text on one line that no control byte can break or color."""
    joined = " ".join(text.split())
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in joined)


def print_line(text: str) -> None:
    """Print a subject or another text that may hold bytes that are not UTF-8, as those bytes."""
    click.echo(encode(text))


def print_json(document: Mapping[str, Any]) -> None:
    """Print one JSON object on one line; bytes that are not UTF-8 stand as \\udc80 to \\udcff."""
    click.echo(json.dumps(document, default=str))


def print_counts(counts: Mapping[str, int]) -> None:
    """Print a number to a line, aligned."""
    numbers = {name: f"{count:,}" for name, count in counts.items()}
    left = max(map(len, numbers))
    right = max(map(len, numbers.values()))
    for name, number in numbers.items():
        click.echo(f"  {name:<{left}}  {number:>{right}}")


def progress(line: str) -> None:
    """Print a line of progress for whoever watches; nothing if nobody does."""
    if sys.stderr.isatty():
        click.echo(line, err=True)


@contextlib.contextmanager
def quiet_work() -> Iterator[None]:
    """While it lasts, stdout is kept for the result, and the processes it starts are silent.

    What libraries print on stdout goes to stderr. A JVM has nothing to say there that is not also
    in our errors, but says it at length; `--debug` lets it.
    """
    with contextlib.ExitStack() as undo:
        if not is_debug():
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
        theirs = ours if is_debug() else nobody
        for stream in (_STDOUT, _STDERR):
            undo.callback(os.close, saved := os.dup(stream))
            undo.callback(os.dup2, saved, stream)
            os.dup2(theirs.fileno(), stream)
        undo.enter_context(contextlib.redirect_stderr(ours))
        yield
