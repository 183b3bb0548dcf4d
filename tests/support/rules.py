"""Mappings, written in short."""

from __future__ import annotations

from collections.abc import Mapping as AnyMapping
from collections.abc import Sequence
from typing import Any

from nats_transform import AccountMappings, Destination, Mapping


def mappings(rules: AnyMapping[str, str | Sequence[Any]]) -> AccountMappings:
    """The mappings of an account.

    Args:
        rules: by source a destination, or a list: each is a subject, the arguments of a
            `Destination`, or one.
    """
    return AccountMappings([mapping(source, to) for source, to in rules.items()])


def mapping(source: str, to: str | Sequence[Any]) -> Mapping:
    """One mapping."""
    return Mapping(source, [_destination(one) for one in ([to] if isinstance(to, str) else to)])


def _destination(given: Any) -> Destination:
    if isinstance(given, Destination):
        return given
    return Destination(given) if isinstance(given, str) else Destination(*given)
