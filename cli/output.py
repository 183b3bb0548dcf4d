"""What commands print: text for people, JSON for programs, one line for an error."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

from nats_transform.subject import encode


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
