"""Counting, in exact hundredths of a message because weights are percent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nats_transform.migration.findings import Example
from nats_transform.words import plural

EXAMPLES = 5
"""How many of the largest subjects are kept as examples."""

MOST_NAMES = 5
"""How many names a message has."""

PARTS = 100
"""How many parts a message has. Weights are percent, so a share is a whole number of parts."""


@dataclass(frozen=True, slots=True)
class Count:
    """The number of messages, in parts, and of distinct subjects, with the largest as examples."""

    parts: int = 0
    subjects: int = 0
    examples: tuple[Example, ...] = ()


def whole(parts: int) -> float:
    """A number of parts as messages; an int if they are whole messages."""
    return parts // PARTS if parts % PARTS == 0 else parts / PARTS


def messages(parts: int) -> str:
    """A number of messages in words: exact if it is whole, otherwise rounded to four digits."""
    if 0 < parts < PARTS:
        return "fewer than 1 message"
    is_whole = parts % PARTS == 0
    count = parts // PARTS if is_whole else rounded(parts / PARTS)
    return ("" if is_whole else "about ") + plural(count, "message")


def rounded(count: float) -> int:
    """A count rounded to four digits: 360,692.98 is about 360,700."""
    digits = len(str(int(count)))
    return int(round(count, 4 - digits)) if digits > 4 else round(count)


def listed(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more
