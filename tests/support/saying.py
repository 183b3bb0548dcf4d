"""What a command prints of an error, whatever the words."""

from __future__ import annotations

import re
from collections import defaultdict

from nats_transform.errors import sentences


class _Anything:
    __repr__ = __format__ = lambda *_: "\0"


def saying(code: str, /, **fields: object) -> str:
    """A pattern of the sentence with this code. Fields that are left out may be anything."""
    text = sentences()[code].format_map(defaultdict(_Anything, fields))
    return re.escape(text).replace("\0", ".*")


def says(printed: str, code: str, /, **fields: object) -> bool:
    """Whether the sentence with this code, and these fields, was printed."""
    return re.search(saying(code, **fields), printed) is not None
