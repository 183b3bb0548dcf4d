"""Text that somebody else wrote, made safe to show to people.

Publishers choose subjects, headers and payloads; configuration, dumps and warehouses come from
anywhere. What of it reaches a terminal, a log or a page goes through `visible`: control characters
(ANSI sequences start with one), characters that turn the direction of text round or are not seen
at all, breaks of lines, and bytes that are not UTF-8 stand as escapes. Programs read JSON.
"""

from __future__ import annotations

import json
import re
from typing import Any

_MARKS = (b",", b"[", b"{")  # of values in JSON
_MOST_VALUES = 500_000
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"')


def visible(text: str, keep: str = "") -> str:
    r"""A text in which every character can be seen and none acts.

    What `str.isprintable` refuses is escaped as Python writes it: `\x1b`, `\u202e`, `\n`. A blank
    is printable, other kinds of white space are not.

    Args:
        text: any text.
        keep: characters that stay as they are, such as the line breaks of our own layout.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else repr(c)[1:-1] for c in text)


def few_values(text: bytes) -> None:
    """Refuses JSON with so many values that reading it would take many times its size.

    Raises:
        ValueError: with its text.
    """
    if sum(map(text.count, _MARKS)) > _MOST_VALUES:
        outside = _STRING.sub(b"", text)
        if sum(map(outside.count, _MARKS)) > _MOST_VALUES:
            raise ValueError(f"it has more than {_MOST_VALUES:,} values")


def in_a_log(text: str) -> str:
    r"""Visible lines in which the runner of a CI job finds no command for itself.

    It reads commands out of what a job prints: `::name::` at the start of a line and `##[name]`
    anywhere in it (GitHub Actions), `##vso[name]` (Azure Pipelines), `##teamcity[name]` (TeamCity).
    In them `#` stands as `\x23`, and `:` as `\x3a`.

    Sources: actions/runner `ActionCommand.cs`; azure-pipelines-agent `Command.cs`.
    """
    text = re.sub(r"#(?=#\w*\[)", r"\\x23", text)
    return re.sub(r"(?m)^( *):(?=:)", r"\1\\x3a", text)


def one_line(text: str) -> str:
    """A text with its lines joined by blanks, made `visible`."""
    return visible(" ".join(line.strip() for line in text.splitlines()).strip())


def markdown_text(text: str) -> str:
    """A text without any meaning for Markdown, HTML or mentions."""
    # A character reference is never markup. GitHub finds mentions and addresses later, in the text
    # as people see it: a word joiner (U+2060), which nobody sees, keeps them apart.
    shown = _ACTIVE.sub(lambda match: f"&#{ord(match[0])};", one_line(text))
    return re.sub("&#(?:64|35);", r"\g<0>&#8288;", shown)


# At the start of a line a number or a dash makes a list.
_ACTIVE = re.compile(r"^[\d+=-]|(?<=[wW]{3})\.|[^\w .,;()%+=/'-]|_")


def markdown_code(text: str) -> str:
    """A text as code in Markdown, whatever back quotes it has."""
    text = one_line(text)
    runs = re.findall("`+", text)
    fence = "`" * (max(map(len, runs), default=0) + 1)
    blank = " " if runs else ""
    return f"{fence}{blank}{text}{blank}{fence}"


def json_text(document: Any) -> str:
    r"""A document as JSON on one line, in ASCII: subjects can be read back exactly.

    Bytes that are not UTF-8 stand as `\udc80` to `\udcff`.
    """
    # JSON leaves DEL as it is, the one control character of ASCII that it does not escape. And two
    # `#` can start a command for the runner of a CI job, see `in_a_log`.
    text = json.dumps(document, default=str).replace("\x7f", "\\u007f")
    return text.replace("##", "\\u0023\\u0023")
