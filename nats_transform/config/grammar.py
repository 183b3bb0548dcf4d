"""Parses a text with a grammar, within limits and with errors of one line."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.util import cache_from_source
from typing import Any, TypeAlias

from lark import Lark, __version__
from lark.exceptions import UnexpectedInput, UnexpectedToken

from nats_transform.config.tree import MAX_DEPTH, quoted, too_deep
from nats_transform.errors import Place

Complaint: TypeAlias = Callable[[str, int, "list[str]"], tuple[int, str] | None]
"""A better position and text for an error, from the text, the position and what was expected."""


@cache
def grammar(name: str) -> Lark:
    """The grammar in a file of this package.

    Its tables are kept beside the bytecode of this module: to make them takes ten times as long as
    to load them.
    """
    text = files("nats_transform.config").joinpath(name).read_text("utf-8")
    digest = sha256(f"{__version__} {text}".encode()).hexdigest()[:16]
    kept = f"{cache_from_source(__file__)}.{digest}"
    try:
        with open(kept, "rb") as file:
            return Lark.load(file)
    except Exception:  # noqa: BLE001 - there is none, or it is damaged in any way
        lark = Lark(text, parser="lalr", lexer="contextual")
    if not sys.dont_write_bytecode:
        new = f"{kept}.{os.getpid()}"  # several processes may write it at once
        with suppress(OSError):  # the folder may not be ours to write into
            with open(new, "wb") as file:
                lark.save(file)
            os.replace(new, kept)
    return lark


def parse(lark: Lark, text: str, path: str, words: Mapping[str, str], complaint: Complaint) -> Any:
    """The result of a grammar for a text.

    The terminals of the grammar that open a level must be named LBRACE and LSQB; the names of those
    that close a level must start with _R.

    Args:
        lark: the grammar.
        text: what to parse.
        path: the file, for errors.
        words: the names of terminals in errors. Other terminals are not mentioned.
        complaint: a function that gives a better error for some mistakes.

    Raises:
        InvalidConfig: the text is not of the language, or nested too deep.
    """
    parser = lark.parse_interactive(text)
    state = parser.parser_state
    depth = 0
    try:
        for token in parser.lexer_thread.lex(state):  # type: ignore[no-untyped-call]
            # Counted while reading: a file of brackets must not fill the memory first.
            if token.type in ("LBRACE", "LSQB"):
                depth += 1
                if depth > MAX_DEPTH:
                    raise too_deep(Place(path, token.line, token.column))
            elif token.type in ("_RBRACE", "_RSQB", "_NESTED_CLOSE"):
                # At the top of a server configuration a brace may close nothing.
                depth = max(0, depth - 1)
            state.feed_token(token)
        return parser.feed_eof()  # type: ignore[no-untyped-call]
    except UnexpectedInput as error:
        # Which terminals the state offers is less exact than which the parser can go on with.
        accepted = parser.accepts()  # type: ignore[no-untyped-call]
        expected = [word for name, word in words.items() if name in accepted]
        position, message = _complaint(error, text, list(dict.fromkeys(expected)), complaint)
        raise _place(text, position, path).error("refused", reason=message) from None


def _complaint(
    error: UnexpectedInput, text: str, expected: list[str], complaint: Complaint
) -> tuple[int, str]:
    """The place and the fault. It quotes one character at most; the rest may be a secret."""
    position = error.pos_in_stream
    at_end = isinstance(error, UnexpectedToken) and error.token.type == "$END"
    if position is None or at_end:
        position = len(text)
    while text[position : position + 1] in (" ", "\t"):
        position += 1  # to what the blanks lead to
    if better := complaint(text, position, expected):
        return better
    character = text[position : position + 1]
    shown = quoted(character) if character else "the end of the file"
    if not expected:
        return position, f"{shown} cannot stand here"
    choice = " or ".join([", ".join(expected[:-1]), expected[-1]] if expected[1:] else expected)
    return position, f"expected {choice}, found {shown}"


def _place(text: str, position: int, path: str) -> Place:
    line = text.count("\n", 0, position) + 1
    return Place(path, line, position - text.rfind("\n", 0, position))
