"""What commands print: text for people, JSON for programs, one line for an error."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import click

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
def stdout_kept_clean() -> Iterator[None]:
    """While it lasts, what libraries and their processes print on stdout goes to stderr."""
    sys.stdout.flush()
    try:
        saved = os.dup(_STDOUT)
    except OSError:  # closed by the caller
        yield
        return
    os.dup2(_STDERR, _STDOUT)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(saved, _STDOUT)
        os.close(saved)
