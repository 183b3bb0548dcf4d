"""What a command prints of an error, whatever the words."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import pytest

from nats_transform.errors import sentences
from tests.cases import load


class _Anything:
    __repr__ = __format__ = lambda *_: "\0"


def saying(code: str, /, **fields: object) -> str:
    """A pattern of the sentence with this code. Fields that are left out may be anything."""
    text = sentences()[code].format_map(defaultdict(_Anything, fields))
    return re.escape(text).replace("\0", ".*")


def says(printed: str, code: str, /, **fields: object) -> bool:
    """Whether the sentence with this code, and these fields, was printed."""
    return re.search(saying(code, **fields), printed) is not None


def pattern_of(line: str, **fields: object) -> str:
    """A pattern of a line in a table of cases: <code> is a sentence, and ... may be anything."""
    return "".join(
        saying(part, **fields) if n % 2 else re.escape(part).replace(r"\.\.\.", ".*")
        for n, part in enumerate(re.split("<(.*?)>", line))
    )


def mistakes(group: str) -> list[Any]:
    """Parameters from a table of told.yaml: what is written, and a pattern of what is told."""
    return [
        pytest.param(what, pattern_of(line, **dict(*fields)), id=what or "nothing")
        for what, line, *fields in load("told.yaml")[group]
    ]
