"""Counts in messages for people."""

from __future__ import annotations


def plural(count: int, one: str, many: str = "") -> str:
    """A count and what is counted, such as `1 error` or `2,000 errors`.

    Args:
        count: how many there are.
        one: the noun, and perhaps a verb, for one of them.
        many: the same for several; by default `one` with an s, but `info` stays as it is.
    """
    many = many or (one if one == "info" else f"{one}s")
    return f"{count:,} {one if count == 1 else many}"


def and_more(count: int) -> str:
    """How many there are besides what was named, such as ` (and 2 more)`."""
    return f" (and {count:,} more)" if count else ""
